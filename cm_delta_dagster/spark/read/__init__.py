"""Scans of data files, with a file index in the JVM or by names."""
