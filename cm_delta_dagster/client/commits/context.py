"""What a caller adds to a commit: texts for ``commitInfo``, limits, and the ``txn`` that makes a write idempotent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Self

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.action_fields import COMMIT_INFO_FIELDS
from cm_delta_dagster.version import __version__

ENGINE_INFO = f"cm-delta-dagster/{__version__}"
"""``engineInfo`` of every commit made by this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProperties:
    """What the user of a commit says about it. Commit rules and the feed of the catalog see tags and user metadata.

    Attributes:
        tags: texts by name for ``commitInfo.tags``, e.g. ``dagster/run_id``, ``dagster/asset_key``, ``dagster/partition_key``.
        user_metadata: free text for ``commitInfo.userMetadata``, as ``userMetadata`` of delta-spark.
        custom_metadata: texts by name that become fields of ``commitInfo`` itself, as in deltalake.
        max_commit_retries: how often the commit is proposed again after other commits came first, as in deltalake; None for the
            setting of the client, ``ClientSettings.max_commit_attempts``.

    Raises:
        InvalidArgumentError: a value of another type, or custom metadata with the name of a field that each commit has.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    custom_metadata: Mapping[str, str] = field(default_factory=dict)
    max_commit_retries: int | None = None

    def __new__(cls, *arguments: object, **values: object) -> Self:
        """Refuses a name that is not a field, with what to write."""
        names = [known.name for known in fields(cls)]
        for name in values:
            if name == "app_transactions":
                raise TypeError(
                    "CommitProperties() has no argument 'app_transactions': give the write itself an Idempotency, as its argument "
                    "idempotency"
                )
            if name not in names:
                raise TypeError(f"CommitProperties() has no argument {name!r}: its arguments are {', '.join(names)}")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name in ("tags", "custom_metadata"):
            values = getattr(self, name)
            if values is None:  # As in deltalake.
                object.__setattr__(self, name, {})
            elif not _are_texts(values):
                raise InvalidArgumentError(f"{name} of the commit properties is {values!r}; give texts by name.")
        taken = sorted(COMMIT_INFO_FIELDS & self.custom_metadata.keys())
        if taken:
            raise InvalidArgumentError(
                f"custom_metadata cannot set {', '.join(taken)}: commitInfo of each commit has fields of these names. Choose other "
                "names. The fields user_metadata and tags of the commit properties set those two."
            )
        retries = self.max_commit_retries
        if retries is not None and (type(retries) is not int or retries < 0):
            raise InvalidArgumentError(
                f"max_commit_retries is {retries!r}; give a number of retries, 0 or more, or None."
            )

    def with_defaults(self, defaults: "CommitProperties") -> "CommitProperties":
        """These properties, with what they do not set taken from ``defaults``: single tags and custom metadata, and the others."""
        retries = self.max_commit_retries
        return replace(
            self,
            tags={**defaults.tags, **self.tags},
            user_metadata=defaults.user_metadata if self.user_metadata is None else self.user_metadata,
            custom_metadata={**defaults.custom_metadata, **self.custom_metadata},
            max_commit_retries=defaults.max_commit_retries if retries is None else retries,
        )

    def max_attempts(self, of_client: int) -> int:
        """How often the commit is proposed, where the client proposes others ``of_client`` times."""
        return of_client if self.max_commit_retries is None else self.max_commit_retries + 1


def _are_texts(values: Any) -> bool:
    if not isinstance(values, Mapping):
        return False
    return all(isinstance(name, str) and isinstance(value, str) for name, value in values.items())


NO_PROPERTIES = CommitProperties()


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
