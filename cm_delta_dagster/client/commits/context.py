"""What a caller adds to a commit: tags and user metadata for ``commitInfo``, and the ``txn`` that makes a write idempotent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cm_delta_dagster.version import __version__

ENGINE_INFO = f"cm-delta-dagster/{__version__}"
"""``engineInfo`` of every commit made by this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitContext:
    """Provenance written into ``commitInfo`` and handed to the catalog's feed.

    Attributes:
        tags: free text pairs, e.g. ``dagster/run_id``, ``dagster/asset_key``, ``dagster/partition_key``.
        user_metadata: free text for ``commitInfo.userMetadata``.
        engine_info: name and version of the writer.
        lease_token: of the maintenance lease under which the commit is made. The catalog refuses the commit if that lease ended.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    engine_info: str = ENGINE_INFO
    lease_token: int | None = None

    def with_defaults(self, defaults: "CommitContext") -> "CommitContext":
        """This context, with what it does not set taken from ``defaults``: single tags, user metadata and the writer."""
        return replace(
            self,
            tags={**defaults.tags, **self.tags},
            user_metadata=defaults.user_metadata if self.user_metadata is None else self.user_metadata,
            engine_info=defaults.engine_info if self.engine_info == ENGINE_INFO else self.engine_info,
        )


NO_CONTEXT = CommitContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an application has processed something, recorded by a commit as a ``txn`` action.

    A commit conflicts with another one of the same ``app_id`` that was made meanwhile.

    Attributes:
        after: the version that the table must have recorded before; None for none.
        version: the version to record.
    """

    app_id: str
    after: int | None
    version: int


class IdempotencyRule(StrEnum):
    """When an earlier ``txn`` of the same application means that the work is already done."""

    EXACT = "exact"
    """The table's ``txn`` version equals ours: for ids without order, such as a hash of a run id."""

    MONOTONIC = "monotonic"
    """The table's ``txn`` version is equal to ours or higher: for batch numbers, which increase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotency:
    """Makes a write happen at most once: the commit carries a ``txn`` action of this ``app_id`` and ``version``."""

    app_id: str
    version: int
    rule: IdempotencyRule = IdempotencyRule.MONOTONIC

    def is_done(self, current: int | None) -> bool:
        """Whether ``current``, the table's ``txn`` version for ``app_id`` (None: never seen), means "already written"."""
        if current is None:
            return False
        return current == self.version if self.rule is IdempotencyRule.EXACT else current >= self.version
