"""How commits are made and who decides it (protocol "Catalog-managed tables", commit kinds).

Values of the catalog seam; how a table goes from one policy to another is the catalog's own, in ``catalog.sql.policies``.
"""

from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.errors import InvalidArgumentError


class CommitMode(StrEnum):
    """What a commit was made by: a staged file, its content in the catalog, or the creation of its published file."""

    STAGED = "staged"
    INLINE = "inline"
    PUT_IF_ABSENT = "put_if_absent"


class CommitPolicyKind(StrEnum):
    """How writers are to commit to a table. Readers and publishers take any mixture whatever the policy is."""

    STAGED = "staged"
    INLINE = "inline"
    AUTO = "auto"
    PUT_IF_ABSENT = "put_if_absent"
    SWITCHING = "switching"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicy:
    """How writers are to commit. ``str()`` gives ``staged``, ``auto:65536`` and so on; ``parse`` reads it back.

    Attributes:
        kind: AUTO is inline up to ``inline_max_bytes``, staged above. SWITCHING, between two ways of which one is
            PUT_IF_ABSENT, lets writers wait; only the catalog sets it.
        inline_max_bytes: of AUTO only: size of the largest commit that is made inline.
    """

    kind: CommitPolicyKind = CommitPolicyKind.STAGED
    inline_max_bytes: int | None = None

    def __post_init__(self) -> None:
        limit = self.inline_max_bytes
        if (self.kind is CommitPolicyKind.AUTO) is not (limit is not None) or (limit is not None and limit < 0):
            raise InvalidArgumentError(
                f"The commit policy {self.kind.value} was given with inline_max_bytes {limit}: auto needs a number of "
                "bytes from 0 on, the other policies take none."
            )

    def __str__(self) -> str:
        return self.kind.value if self.inline_max_bytes is None else f"{self.kind.value}:{self.inline_max_bytes}"

    @classmethod
    def parse(cls, text: str) -> "CommitPolicy":
        """Raises InvalidArgumentError for a text that is no policy."""
        name, _, limit = text.partition(":")
        try:
            return cls(kind=CommitPolicyKind(name), inline_max_bytes=int(limit) if limit else None)
        except ValueError as error:
            raise InvalidArgumentError(
                f"{text!r} is no commit policy: use staged, inline, auto:<bytes> or put_if_absent."
            ) from error

    @property
    def through_catalog(self) -> bool:
        """Whether the catalog ratifies staged and inline proposals under this policy."""
        return self.kind not in (CommitPolicyKind.PUT_IF_ABSENT, CommitPolicyKind.SWITCHING)

    def mode_for(self, size: int) -> CommitMode:
        """How a commit of ``size`` bytes is made under a policy that goes through the catalog."""
        limit = self.inline_max_bytes
        inline = self.kind is CommitPolicyKind.INLINE or (limit is not None and size <= limit)
        return CommitMode.INLINE if inline else CommitMode.STAGED


STAGED_POLICY = CommitPolicy()
"""What holds where nothing was chosen."""

BARRIER_OPERATION = "SET COMMIT MODE"
"""Operation of the empty commit that ends a time of put-if-absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicyRule:
    """One line of commit policy; ``scope`` as of :class:`MaintenanceRule`, the longest one decides."""

    scope: str
    policy: CommitPolicy


class PolicyChange(StrEnum):
    """Answer to the wish for another commit policy of a table."""

    DONE = "done"
    PUBLISH_FIRST = "publish_first"
    BARRIER_FIRST = "barrier_first"
