"""The connection to a catalog: what everybody uses on the connection itself, and a namespace of it in a module each."""
