"""Plans: what an operation would do, as a value whose :meth:`~Plan.apply` does that and nothing else.

An operation makes a plan and applies it; the entry point binds the two, so that a user has one object. Applying a plan never takes
the arguments again. What has changed since the plan was made is found when it is applied: a plan that deletes files leaves those
that are needed now, a plan that rewrites or restores rows conflicts with commits that changed them, and other plans are refused.
"""

import copy
import typing
from collections.abc import Callable

from cm_delta_dagster.errors import InvalidArgumentError

ResultT = typing.TypeVar("ResultT")


class Plan(typing.Generic[ResultT]):
    """A base of the classes of plans, which are frozen dataclasses. The binding is not part of their value."""

    __slots__ = ("_run",)

    _run: Callable[[typing.Any], ResultT]

    def apply(self) -> ResultT:
        """Carry out this plan, and return what the operation returns. Raises as the operation."""
        try:
            run = self._run
        except AttributeError:
            raise InvalidArgumentError(
                f"This {type(self).__name__} is a copy that belongs to no connection, so that it cannot be applied. Make the plan "
                "again, and apply that one."
            ) from None
        return run(self)

    def bound(self, run: Callable[[typing.Self], ResultT]) -> typing.Self:
        """Return this plan with ``run`` to apply it."""
        plan = copy.copy(self)
        object.__setattr__(plan, "_run", run)
        return plan
