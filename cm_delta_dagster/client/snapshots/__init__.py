"""Reading the log: commits, snapshots, history, tables by path."""
