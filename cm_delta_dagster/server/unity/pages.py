"""Pages of lists. A token names the list and the last name of its page, so that the next page begins after that name.

Names that were added or dropped between two pages are neither repeated nor an error.
"""

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import InvalidArgumentError

MAX_PAGE = 10_000
"""Names on a page. Clients that ask for no number read one page: DuckDB and Sail do not follow tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a list.

    Attributes:
        next_token: None on the last page.
    """

    names: Sequence[str]
    next_token: str | None

    def batches(self, size: int) -> Iterator[Sequence[str]]:
        """The names in parts of ``size``."""
        return (self.names[start : start + size] for start in range(0, len(self.names), size))


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which page of a list is asked for.

    Attributes:
        max_results: number of names; 0 for as many as a page may have.
        token: of the page before; empty for the first page.
    """

    max_results: int = 0
    token: str = ""

    def page_of(self, names: Sequence[str], *, listing: str) -> Page:
        """The page of a list.

        Args:
            names: all of them, sorted.
            listing: what is listed. A token of another list is refused.

        Raises:
            InvalidArgumentError: the token is not one of this list.
        """
        start = bisect_right(names, _last_name(self.token, listing)) if self.token else 0
        end = start + min(self.max_results or MAX_PAGE, MAX_PAGE)
        return Page(names=names[start:end], next_token=_token(listing, names[end - 1]) if end < len(names) else None)


def _token(listing: str, last_name: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([listing, last_name]).encode()).decode()


def _last_name(token: str, listing: str) -> str:
    try:
        stated = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        stated = None
    match stated:
        case [str(of_list), str(name)] if of_list == listing:
            return name
    raise InvalidArgumentError(
        "The page_token is not one of this list. Request the first page without a token, and each next one with the token of "
        "the answer before."
    )
