"""Values: how commits are made, and the rules that choose it (protocol heading "Catalog-managed tables").

``catalog.sql.policies`` implements the change from one policy to another.
"""

from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.errors import InvalidArgumentError


class CommitMode(StrEnum):
    """How a commit was made: by a staged file, by content in the catalog, or by the creation of its published file."""

    STAGED = "staged"
    INLINE = "inline"
    PUT_IF_ABSENT = "put_if_absent"


class CommitPolicyKind(StrEnum):
    """How writers must commit to a table. Readers and publishers accept every mode under every policy."""

    STAGED = "staged"
    INLINE = "inline"
    AUTO = "auto"
    PUT_IF_ABSENT = "put_if_absent"
    SWITCHING = "switching"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicy:
    """How writers must commit. ``str()`` returns ``staged``, ``auto:65536`` and so on; ``parse`` is its inverse.

    Attributes:
        kind: AUTO is inline up to ``inline_max_bytes``, staged above. During SWITCHING, on the way to or from PUT_IF_ABSENT,
            writers wait; only the catalog sets it.
        inline_max_bytes: AUTO only: bytes of the largest commit that is made inline.
    """

    kind: CommitPolicyKind = CommitPolicyKind.STAGED
    inline_max_bytes: int | None = None

    def __post_init__(self) -> None:
        limit = self.inline_max_bytes
        if (self.kind is CommitPolicyKind.AUTO) is not (limit is not None) or (limit is not None and limit < 0):
            limited = "without a limit" if limit is None else f"with the limit {limit}"
            raise InvalidArgumentError(
                f"The commit mode {self.kind.value} was given {limited} of inline commits: auto requires "
                "a number of bytes of at least 0, the other modes take none."
            )

    def __str__(self) -> str:
        return self.kind.value if self.inline_max_bytes is None else f"{self.kind.value}:{self.inline_max_bytes}"

    @classmethod
    def parse(cls, text: str) -> "CommitPolicy":
        """The policy that ``str()`` wrote. Raises InvalidArgumentError for any other text."""
        name, _, limit = text.partition(":")
        try:
            kind, inline_max_bytes = CommitPolicyKind(name), int(limit) if limit else None
        except ValueError as error:
            raise InvalidArgumentError(
                f"{text!r} is not a commit policy: use staged, inline, auto:<bytes> or put_if_absent."
            ) from error
        return cls(kind=kind, inline_max_bytes=inline_max_bytes)

    @property
    def through_catalog(self) -> bool:
        """Whether the catalog ratifies proposals (staged or inline) under this policy."""
        return self.kind not in (CommitPolicyKind.PUT_IF_ABSENT, CommitPolicyKind.SWITCHING)

    def mode_for(self, size: int) -> CommitMode:
        """How a commit of ``size`` bytes is made. Only for policies with ``through_catalog``."""
        limit = self.inline_max_bytes
        inline = self.kind is CommitPolicyKind.INLINE or (limit is not None and size <= limit)
        return CommitMode.INLINE if inline else CommitMode.STAGED


STAGED_POLICY = CommitPolicy()
"""The default policy."""

NOT_THROUGH_CATALOG = tuple(
    str(CommitPolicy(kind=kind)) for kind in (CommitPolicyKind.PUT_IF_ABSENT, CommitPolicyKind.SWITCHING)
)
"""The texts of the policies under which the catalog cannot refuse a commit."""

BARRIER_OPERATION = "SET COMMIT MODE"
"""Operation of the empty commit that ends the use of put-if-absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicyRule:
    """The commit policy of one scope (``catalog``, ``catalog.schema`` or ``catalog.schema.table``)."""

    scope: str
    policy: CommitPolicy


class PolicyChange(StrEnum):
    """Answer to a change of a table's commit policy: DONE, or what must be done before the next call."""

    DONE = "done"
    PUBLISH_FIRST = "publish_first"
    BARRIER_FIRST = "barrier_first"
