"""The API of this package: the interfaces of ``catalog`` over HTTP."""
