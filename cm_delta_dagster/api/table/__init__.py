"""One table: the methods that read, write, change and maintain it."""
