"""The API and the model of it side by side, and what a call may do: succeed, be refused, or wait for an approval."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.api_model.driver import ApprovalRequiredError, CmDeltaError, Driver
from tests.api_model.model import Effect, NotApplicableError, TableModel, Version
from tests.api_model.steps import OnTable, Step

HOUR_MS = 3_600_000


class FaultError(AssertionError):
    """The API did something else than the model says."""


@dataclass(slots=True)
class Write:
    """A write that was computed and is not committed."""

    step: OnTable
    model: TableModel
    base: int
    effect: Effect


@dataclass(slots=True)
class Pending:
    """Writes that wait: of an open transaction, or of a commit that needs an approval."""

    handle: Any
    writes: list[Write]
    began_ms: int
    client: int = 0


@dataclass(slots=True)
class World:
    """The API and the model of it."""

    driver: Driver
    tables: dict[str, TableModel] = field(default_factory=dict)
    dropped: dict[str, tuple[TableModel, str]] = field(default_factory=dict)
    released: dict[str, tuple[TableModel, str]] = field(default_factory=dict)
    rules: dict[str, dict[str, bool]] = field(default_factory=dict)
    transactions: list[Pending] = field(default_factory=list)
    waiting: list[Pending] = field(default_factory=list)
    done: list[Step] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """The steps that were run, as Python."""
        return "[\n" + "".join(f"    {step!r},\n" for step in self.done) + "]"

    def table(self, name: str) -> TableModel:
        if name not in self.tables:
            raise NotApplicableError(f"there is no table {name}")
        return self.tables[name]

    @property
    def now(self) -> int:
        return self.driver.clock.now

    def error_of(self, call: Callable[[], object]) -> CmDeltaError | None:
        """The error of the call. Any other exception than CmDeltaError is a fault."""
        try:
            call()
        except CmDeltaError as error:
            return error
        except Exception as error:
            raise FaultError(f"{type(error).__name__} is not a CmDeltaError: {error}") from error
        return None

    def must_refuse(self, call: Callable[[], object], why: str) -> str:
        if self.error_of(call) is None:
            raise FaultError(f"not refused: {self.done[-1]}, although {why}")
        return "refused"

    def committed(self, step: OnTable, model: TableModel, effect: Effect, *, most: int = 1) -> str:
        """Take over the versions that a successful call made."""
        commits = self.driver.version(step.table, step.client) - model.number
        if commits < 0 or commits > most:
            raise FaultError(f"{step} made {commits} commits")
        if commits == 0:
            if not effect.is_empty:
                raise FaultError(f"{step} committed nothing")
            return "nothing to do"
        if effect.must_commit is False and effect.is_empty:
            raise FaultError(f"{step} made a commit without changes")
        model.commit(effect, self.now, commits=commits)
        return "done"

    def change(self, step: OnTable, effect: Effect, call: Callable[[], object], *, most: int = 1) -> str:
        """A call that must succeed, unless a rule stops it."""
        model = self.table(step.table)
        stop = self.stopped_by_rule(step.table, effect, model.latest)
        error = self.error_of(call)
        if stop is not None:
            if error is None:
                raise FaultError(f"{step} was not stopped by the rule")
            if stop == "approval":
                if not isinstance(error, ApprovalRequiredError):
                    raise FaultError(f"{step} needs an approval: {error}") from error
                write = Write(step, model, model.number, effect)
                self.waiting.append(Pending(error.approval_id, [write], self.now))
            return stop
        if error is not None:
            raise FaultError(f"{step} was refused: {type(error).__name__}: {error}") from error
        return self.committed(step, model, effect, most=most)

    def stopped_by_rule(self, table: str, effect: Effect, version: Version) -> str | None:
        """``refused`` or ``approval``."""
        stops = []
        lost = len(effect.removed) - len(effect.inserted)
        for kind, approval in self.rules.get(table, {}).items():
            violates = bool(effect.touched()) if kind == "append_only" else lost > 0
            if violates:
                stops.append("approval" if approval else "refused by rule")
        if not stops:
            return None
        return "refused by rule" if "refused by rule" in stops else "approval"
