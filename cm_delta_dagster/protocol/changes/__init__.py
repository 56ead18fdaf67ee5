"""Change data feed and the planning of streams."""
