"""What a merge by key requires of its source (protocol heading "Partition Value Serialization").

An engine finds the facts in one pass over the source.
"""

from dataclasses import dataclass

from cm_delta_dagster.errors import InvalidDataError, PartitionMismatchError
from cm_delta_dagster.protocol.predicates.predicates import Predicate, short_sql


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Results of one pass over the source.

    Attributes:
        duplicate: text of a key that several rows have, or None.
        outside: text of the keys of a row that does not satisfy the declared condition, or None.
        key_range: predicate that every target row with a key of the source satisfies.
        empty_key: text of the keys of a row that holds the empty text in a partition column, or None.
    """

    num_rows: int
    duplicate: str | None
    outside: str | None
    key_range: Predicate
    empty_key: str | None = None


def check_unique(facts: SourceFacts) -> None:
    """Raises InvalidDataError if several rows of the source have the same key."""
    if facts.duplicate is not None:
        raise InvalidDataError(
            f"Several rows of the source have the key {facts.duplicate}; which of them should win is not known. "
            "Nothing was committed. Make the keys unique, e.g. keep the newest row of each key."
        )


def check_keys_are_stored(facts: SourceFacts) -> None:
    """Raises InvalidDataError if a key is the empty text in a partition column, which would be stored as NULL."""
    if facts.empty_key is not None:
        raise InvalidDataError(
            f"A row of the source has the key {facts.empty_key}, with the empty text in a partition column. A partition column "
            "stores it as NULL, and a NULL key matches no row, so each run would insert the row again. Nothing was "
            "committed. Replace the empty text by another value, or leave the row out."
        )


def check_inside(facts: SourceFacts, scope: Predicate | None) -> None:
    """Raises PartitionMismatchError if a row of the source does not satisfy ``scope``, the slice of the merge."""
    if facts.outside is not None and scope is not None:
        raise PartitionMismatchError(
            f"The row with the key {facts.outside} lies outside of {short_sql(scope)}, the slice that this merge "
            "declared. Nothing was committed. Leave such rows out, or widen the slice."
        )
