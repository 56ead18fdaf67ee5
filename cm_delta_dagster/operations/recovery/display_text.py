"""Counts as messages of recovery and doctor show them. Values that programs read stay numbers."""


def counted(number: int, noun: str) -> str:
    """``1 file`` or ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
