"""The Delta client: snapshots, commits, post-commit work, creation. Log only, no rows."""
