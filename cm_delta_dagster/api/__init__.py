"""The Python API: connections and tables."""
