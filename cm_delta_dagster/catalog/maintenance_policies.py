"""Interface to the rules that permit or deny maintenance. The values are in ``maintenance``.

Protocol heading "Maintenance Operations on Catalog-managed Tables".
"""

import typing

from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.tables import TableIdentifier


class MaintenancePolicies(typing.Protocol):
    """Maintenance rules of catalogs, schemas and tables. The rule of the narrowest scope applies."""

    def set_maintenance_rule(self, rule: MaintenanceRule) -> None:
        """Create or replace the rule of that scope and kind."""
        ...

    def remove_maintenance_rule(self, scope: str, kind: MaintenanceKind) -> None:
        """Delete the rule of ``scope``; the wider scope or the default applies. A missing rule is not an error."""
        ...

    def maintenance_rules(self) -> tuple[MaintenanceRule, ...]:
        """Every rule, by scope and kind."""
        ...

    def maintenance_decision(
        self, identifier: TableIdentifier, kind: MaintenanceKind, *, table_id: str | None = None
    ) -> MaintenanceDecision:
        """Whether maintenance of ``kind`` is permitted on the table now, and why.

        With ``table_id`` the rules of that table's current name apply, in case it was renamed.
        """
        ...

    def authorize_maintenance(
        self, identifier: TableIdentifier, kind: MaintenanceKind, *, table_id: str | None = None
    ) -> MaintenanceDecision:
        """:meth:`maintenance_decision` for a run that starts now; the audit records the decision.

        Kinds that are permitted by default are recorded only if they are denied. Maintenance that concerns no single table has no
        ``table_id``, and an identifier whose missing parts are empty.
        """
        ...
