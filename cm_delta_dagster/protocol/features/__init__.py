"""Table features, protocol evolution and table properties, and a module for each feature."""
