"""What a kind of commit rules consists of, and what it is evaluated on."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, RuleArgument
from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.remedies import Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAuthor:
    """Who proposes a commit.

    Attributes:
        principal: empty if the connection names none.
        names: the principal and its roles, as the catalog stores them.
        is_owner: whether the principal owns the table, its schema or its catalog. True for everybody while grants are off.
    """

    principal: str = ""
    names: frozenset[str] = frozenset()
    is_owner: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardedCommit:
    """A commit, and what the catalog knows of its table before it.

    Attributes:
        before: metadata of the table before the commit; None if the catalog does not have it.
        counts: rows and files before the commit; None if they are not known.
        counts_after: rows and files after the commit, as its writer states them.
    """

    actions: CommitActions
    before: Metadata | None
    counts: TableCounts | None
    counts_after: TableCounts | None
    author: CommitAuthor

    @property
    def after(self) -> Metadata | None:
        """Metadata of the table after the commit; None if not known."""
        return self.actions.metadata or self.before


RuleArguments = Mapping[str, RuleArgument]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A name in the arguments of a rule that a table does not have, and the names of its kind that the table has.

    Attributes:
        what: e.g. ``column``.
    """

    what: str
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        near = difflib.get_close_matches(self.name.lower(), {name.lower() for name in self.known}, n=1)
        meant = next((name for name in self.known if near and name.lower() == near[0]), None)
        has = f"it has {', '.join(self.known[:20])}" if self.known else "it has none"
        return f"the {self.what} {self.name!r}" + (f" (did you mean {meant!r}?)" if meant else f" ({has})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleKind:
    """One kind.

    Attributes:
        takes: names of the arguments.
        arguments: the checked arguments of a rule. Raises InvalidArgumentError.
        violation: what the commit does against a rule with these arguments, a clause without subject; None if nothing.
        summary: one line for people, e.g. in the help of a command.
        remedy: how a writer makes a commit that does not violate such a rule, where that is the same for every table.
        absent: what a rule with these arguments names and a table does not have; nothing for kinds that name nothing of a table.
    """

    kind: CommitRuleKind
    takes: tuple[str, ...]
    arguments: Callable[[Mapping[str, object]], RuleArguments]
    violation: Callable[[RuleArguments, GuardedCommit], str | None]
    summary: str
    remedy: Remedy | None = None
    absent: Callable[[RuleArguments, Metadata], Sequence[Absent]] = lambda _arguments, _metadata: ()


def texts(value: RuleArgument) -> tuple[str, ...]:
    """The names of a rule's argument."""
    return value if isinstance(value, tuple) else (str(value),)


def quoted(names: tuple[str, ...] | list[str]) -> str:
    """Names in a message."""
    return ", ".join(repr(name) for name in names)
