"""What the definition of an asset says about its audit."""

from enum import StrEnum

AUDITED_BY = "cm_delta/audited_by"
"""Metadata of an audited asset: the names of its checks."""


class AuditMode(StrEnum):
    """What an audit does if another writer changes rows between its checks and the ratification."""

    RECHECK = "recheck"
    """The checks run again on the rebased state."""

    DISJOINT_OK = "disjoint_ok"
    """They do not; only a conflict of the two commits stops the audit."""
