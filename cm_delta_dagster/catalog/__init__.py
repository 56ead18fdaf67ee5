"""The interfaces of a catalog and the values that they exchange."""
