"""Texts as messages and commands show them. Values that programs read stay as they are."""

import re

_NOT_ASCII_PRINTABLE = re.compile(r"[^ -~\n]")


def counted(number: int, noun: str) -> str:
    """``1 file`` or ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    r"""``text`` as one line that a terminal shows and does not obey.

    Line ends, control characters, the escape sequences that begin with them, marks that change the direction of the text and
    unpaired surrogates are written as Python writes them in a literal, e.g. ``\x1b`` and ``\u202e``. Names, reasons and
    operations are texts of other users, and could otherwise clear the screen or look like a line about another principal.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable_json(text: str) -> str:
    """JSON with the same value, in which such characters are written as escapes; line ends between the values stay."""
    return _NOT_ASCII_PRINTABLE.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
