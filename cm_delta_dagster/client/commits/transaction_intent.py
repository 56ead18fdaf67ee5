"""What a transaction is besides the actions of its commit, as JSON: what it read, and how it is rebased.

With the commit itself it is enough to rebase and commit the transaction later, from another process.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicate_json import decode_predicate, encode_predicate
from cm_delta_dagster.protocol.predicates.predicates import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldAudit:
    """What the checks of a held commit have said.

    Attributes:
        has_passed: False while checks are to read the commit before it may be ratified.
        version: the version that the commit would have become when they read it; None if rows of other writers do not matter.
        tags: recorded in the history with those of the write.
    """

    has_passed: bool
    version: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Mapping[str, Any] | None) -> "HoldAudit | None":
        """The audit of the fields; None without them."""
        return None if value is None else cls(**value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionIntent:
    """The part of a transaction that its commit does not contain.

    Attributes:
        read_version: the version that it read.
        reads, reads_whole_table: what its result depends on.
        noted: application ids of the ``txn`` actions that conflict only with the same version.
        ordered: application ids of those that conflict with the same version and with later ones.
        updated: paths of the files that are added again with other metadata and the same rows.
        domains: metadata domains that it sets itself.
        used_row_ids: the highest row id of files that bring their own ids.
        audit: of the held commit; None if nothing checks it.
    """

    txn_id: str
    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    context: CommitProperties
    read_version: int
    reads: tuple[Predicate, ...] = ()
    reads_whole_table: bool = False
    noted: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    keeps_row_ids: bool = False
    used_row_ids: int = -1
    drops_feature: bool = False
    audit: HoldAudit | None = None

    def to_json(self) -> str:
        """The text from which :meth:`parse` makes the same value."""
        fields = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        context = {
            "tags": dict(self.context.tags),
            "user_metadata": self.context.user_metadata,
            "custom_metadata": dict(self.context.custom_metadata),
            "max_commit_retries": self.context.max_commit_retries,
        }
        reads = [encode_predicate(predicate) for predicate in self.reads]
        if self.ordered:  # An earlier release understands a text without them.
            fields["ordered"] = self.ordered
        if self.audit is not None:
            fields["audit"] = {**asdict(self.audit), "tags": dict(self.audit.tags)}
        return json.dumps({**fields, "context": context, "reads": reads})

    @classmethod
    def parse(cls, text: str) -> "TransactionIntent":
        """The value of :meth:`to_json`. Raises InvalidArgumentError for any other text."""
        try:
            value: dict[str, Any] = json.loads(text)
            lists: dict[str, Any] = {name: tuple(value.pop(name)) for name in ("noted", "updated", "domains")}
            lists["ordered"] = tuple(value.pop("ordered", ()))
            context = value.pop("context")
            context.pop("engine_info", None)  # That of the earlier release that kept the commit.
            properties = CommitProperties(**context)
            reads = tuple(decode_predicate(predicate) for predicate in value.pop("reads"))
            audit = HoldAudit.of(value.pop("audit", None))
            return cls(**value, **lists, context=properties, reads=reads, audit=audit)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidArgumentError(
                f"What a held commit has read cannot be understood ({error!r}); it was kept by another "
                "release of this package. Nothing was committed. Discard or reject it, and run the write again."
            ) from error


_OWN_FORM = frozenset({"context", "reads", "audit", "ordered"})
_PLAIN_FIELDS = tuple(name for name in TransactionIntent.__dataclass_fields__ if name not in _OWN_FORM)
