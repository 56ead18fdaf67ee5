"""Interface to pinned versions: the version of a table that all steps of a run read."""

import typing

PIN_LIFETIME_MS = 30 * 24 * 60 * 60 * 1000
"""The catalog deletes a pin this long after it was last set; a run takes much less."""


class VersionPins(typing.Protocol):
    """Pinned versions by table, owner and the principal of the client. A client does not see those of other principals."""

    def pin_version(self, table_id: str, version: int, *, owner: str) -> int:
        """Pin the version that ``owner`` reads, unless it has a pin. Returns the pinned version.

        Pins are deleted ``PIN_LIFETIME_MS`` after they were last set. Raises TableNotFoundError for an unknown id.
        """
        ...

    def raise_pinned_version(self, table_id: str, version: int, *, owner: str) -> int:
        """Move the owner's pin forward to ``version``, never back; create it if there is none. Returns the pinned version.

        A caller that may write moves the owner's pins of all principals, which then read what it has written.

        Raises TableNotFoundError for an unknown id.
        """
        ...

    def pinned_version(self, table_id: str, *, owner: str) -> int | None:
        """The version that ``owner`` has pinned, None without a pin."""
        ...
