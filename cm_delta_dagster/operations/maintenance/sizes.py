"""Format sizes and durations for people. Interfaces for programs use bytes and milliseconds."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = ((24 * 60 * 60 * 1000, "day"), (60 * 60 * 1000, "hour"), (60 * 1000, "minute"))


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


def span_text(span_ms: int) -> str:
    """Format a duration: ``7 days`` for 604800000 ms. Uses days, hours or minutes if they give a whole number, else seconds."""
    for length, name in _SPANS:
        if span_ms >= length and span_ms % length == 0:
            return f"{span_ms // length:,} {name}{'' if span_ms == length else 's'}"
    return f"{span_ms / 1000:g} seconds"
