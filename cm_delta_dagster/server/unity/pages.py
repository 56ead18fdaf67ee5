"""Pages of lists. A token names the list and the last name of its page, so that the next page begins after that name.

Names that were added or dropped between two pages are neither repeated nor an error.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.errors import InvalidArgumentError

MAX_PAGE = 10_000
"""Names on a page. Clients that ask for no number read one page: DuckDB and Sail do not follow tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which page of a list is asked for.

    Attributes:
        max_results: number of names; 0 for as many as a page may have.
        token: of the page before; empty for the first page.
    """

    max_results: int = 0
    token: str = ""

    @property
    def limit(self) -> int:
        """The greatest number of names on the page."""
        return min(self.max_results or MAX_PAGE, MAX_PAGE)

    def last_name(self, listing: str) -> str:
        """The last name of the page before; empty for the first page.

        Args:
            listing: what is listed. A token of another list is refused.

        Raises:
            InvalidArgumentError: the token is not one of this list.
        """
        return _last_name(self.token, listing) if self.token else ""

    def split(self, namespaces: Sequence[Namespace], *, listing: str) -> tuple[Sequence[Namespace], str | None]:
        """The page, and the token of the next one, None on the last page.

        Args:
            namespaces: those after :meth:`last_name`, sorted, and one more than the page may have.
        """
        shown = namespaces[: self.limit]
        return shown, token_of(listing, shown[-1].name) if len(namespaces) > len(shown) else None


def token_of(listing: str, last_name: str) -> str:
    """The token of the page that begins after a name."""
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
