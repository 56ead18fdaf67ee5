"""Table features and properties, and a module for each feature."""
