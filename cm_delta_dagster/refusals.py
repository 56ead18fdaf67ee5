"""What a rule of the catalog says about an operation that it refused."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Which rule of the catalog refused what.

    Attributes:
        what: what was refused, as the subject of a sentence, e.g. ``The commit of version 3 to main.sales.orders``.
        reason: why, as a clause, e.g. ``it removes rows, which requires the privilege modify``.
        rule: name of the rule, e.g. ``grants``.
        scope: where the rule applies: a table, a schema, a catalog, or ``*`` for all of them.
        set_by: principal that set the rule; None if it is not known.
        ask: principals who can permit it.
        table_id: id of the table; None if it concerns no single table.
    """

    what: str
    reason: str
    rule: str
    scope: str
    set_by: str | None = None
    ask: tuple[str, ...] = ()
    table_id: str | None = None

    def __str__(self) -> str:
        set_by = "" if self.set_by is None else f", set by {self.set_by}"
        ask = " or ".join(self.ask) or "an owner of the catalog"
        return (
            f"{self.what} was refused: {self.reason} (rule {self.rule} of {self.scope}{set_by}). Nothing was changed. "
            f"Ask {ask} to permit it."
        )
