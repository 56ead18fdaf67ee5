"""The sensor over the commit feed."""
