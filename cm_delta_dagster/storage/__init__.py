"""Bytes in object stores and file systems: the interface Store and its implementations."""
