"""Actions of a commit and their JSON, paths, partition values, columnar file actions."""
