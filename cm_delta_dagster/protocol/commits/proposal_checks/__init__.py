"""What a catalog checks in the bytes of a proposed commit before it opens a transaction. Nothing here does I/O."""
