"""What the definition of an asset says about its audit."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import dagster as dg

AUDITED_BY = "cm_delta/audited_by"
"""Metadata of an audited asset: the names of its checks."""


_OPS = "audit_check_ops"
"""Attribute of the function of an audited asset's op."""


def mark_audit(function: Callable[..., Any], ops: Iterable[dg.OpDefinition]) -> None:
    """Record the ops of the checks of an audit on the function that runs them."""
    setattr(function, _OPS, tuple(ops))


def ops_of_audit(asset: dg.AssetsDefinition) -> tuple[dg.OpDefinition, ...]:
    """The ops of the checks that the step of an asset runs; none if it is not audited."""
    definition = asset.node_def
    return getattr(definition.compute_fn, _OPS, ()) if isinstance(definition, dg.OpDefinition) else ()


class AuditMode(StrEnum):
    """What an audit does if another writer changes rows between its checks and the ratification."""

    RECHECK = "recheck"
    """The checks run again on the rebased state."""

    DISJOINT_OK = "disjoint_ok"
    """They do not; only a conflict of the two commits stops the audit."""
