"""Commit policies, maintenance rules, maintenance leases and pinned versions."""
