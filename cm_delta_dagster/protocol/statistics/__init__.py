"""Column statistics, data skipping, answers from metadata."""
