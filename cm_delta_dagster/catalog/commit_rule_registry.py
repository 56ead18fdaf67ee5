"""Interface to commit rules. The values are in ``commit_rules``."""

import typing

from cm_delta_dagster.catalog.commit_rules import CommitRule


class CommitRuleRegistry(typing.Protocol):
    """Rules that commits must satisfy. All rules of a table, its schema and its catalog apply.

    Guarantee: a proposal that is made after a rule was set is ratified only if it satisfies the rule, in every commit mode. Commits
    that are made by creating their published file cannot be refused; therefore no rule covers such a table.
    """

    def set_commit_rule(self, rule: CommitRule, *, confirmed: bool = False, may_replace: bool = True) -> CommitRule:
        """Create a rule, or replace the one of that scope and name; returns it as stored.

        Args:
            confirmed: set it although no principal could make, or approve, the commits that it stops, or although it names columns
                or constraints that the table of its scope does not have.
            may_replace: False to replace a rule of that scope and name only if kind and arguments are the same.

        Raises:
            InvalidArgumentError: malformed; or it covers a table or a scope whose commits are made put-if-absent; or it locks
                everybody out, or names what the table does not have, and is not ``confirmed``; or it would replace another one.
            OperationRefusedError: the caller is not an owner of the scope.
        """
        ...

    def remove_commit_rule(self, scope: str, name: str, *, reason: str = "") -> None:
        """Delete a rule. Raises InvalidArgumentError if there is none, OperationRefusedError."""
        ...

    def commit_rules(self, scope: str = "") -> tuple[CommitRule, ...]:
        """The rules that apply at or below ``scope``, those of wider scopes included; all without a scope."""
        ...
