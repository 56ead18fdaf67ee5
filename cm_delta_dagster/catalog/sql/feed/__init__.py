"""The feed of the catalog: how entries are appended, placed, read and waited for."""
