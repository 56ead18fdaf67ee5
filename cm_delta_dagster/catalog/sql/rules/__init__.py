"""Commit rules, and commits that wait for an approval."""
