"""Format sizes for people. Interfaces for programs use bytes."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(num_bytes: int) -> str:
    """Format a size: ``10.2 MiB`` for 10648581 bytes."""
    if num_bytes < 1024:
        return f"{num_bytes} byte{'' if num_bytes == 1 else 's'}"
    size = float(num_bytes)
    for unit in _UNITS:
        size /= 1024
        # A size that would be rounded to 1024.0 is 1.0 of the next unit.
        if size < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{size:,.1f} {unit}"
