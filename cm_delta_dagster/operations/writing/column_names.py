"""Names of columns in data files that no other column has."""

import uuid


def unique_name(prefix: str) -> str:
    """``prefix`` and a random UUID, e.g. ``col-8c9e4d31-...``."""
    return f"{prefix}-{uuid.uuid4()}"
