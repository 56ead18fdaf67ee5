"""Work after a commit: publication, checksum, checkpoint."""
