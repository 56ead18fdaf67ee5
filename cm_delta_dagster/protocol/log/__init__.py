"""The transaction log: file names, segments, checkpoints, checksums, reconciliation, compaction, cleanup."""
