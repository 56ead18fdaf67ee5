"""The one path from a proposal to its outcome."""
