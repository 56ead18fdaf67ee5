"""The Delta protocol as pure functions and values: no I/O, no clock, no randomness."""
