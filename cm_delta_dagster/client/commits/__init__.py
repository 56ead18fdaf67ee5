"""Writing the log: transactions, proposals, rebase."""
