"""Resources, and what one run does and reads: checks at its start, provenance of commits, versions, refusals."""
