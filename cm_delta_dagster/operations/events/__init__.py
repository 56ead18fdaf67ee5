"""The feed of the catalog's events: readers and retention."""
