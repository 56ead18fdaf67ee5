"""Actions of a commit, their JSON, paths, partition values and columnar file actions."""
