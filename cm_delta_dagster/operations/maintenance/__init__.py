"""Maintenance that the catalog has to allow: optimize, vacuum, checkpoint, publication, cleanup."""
