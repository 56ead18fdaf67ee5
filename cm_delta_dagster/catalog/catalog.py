"""The catalog: an attribute for each interface of this package.

A client of a catalog names the interface that it needs; only what constructs a Delta client names :class:`Catalog`. A catalog
knows versions, file names, summaries and policies. It does not interpret data files. ``catalog.sql`` implements it over
SQLAlchemy; ``tests/contracts`` checks the guarantees of each interface for every implementation.
"""

import typing

from cm_delta_dagster.catalog.access_control import AccessControl
from cm_delta_dagster.catalog.application_ids import ApplicationIds
from cm_delta_dagster.catalog.audit import AuditLog
from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_feed import CommitFeed
from cm_delta_dagster.catalog.commit_policies import CommitPolicies
from cm_delta_dagster.catalog.commit_rule_registry import CommitRuleRegistry
from cm_delta_dagster.catalog.event_feed import EventFeed
from cm_delta_dagster.catalog.held_commits import HeldCommits
from cm_delta_dagster.catalog.leases import Leases
from cm_delta_dagster.catalog.maintenance_policies import MaintenancePolicies
from cm_delta_dagster.catalog.namespaces import NamespaceRegistry
from cm_delta_dagster.catalog.overview import CatalogOverview
from cm_delta_dagster.catalog.recovery import RecoverableCatalog
from cm_delta_dagster.catalog.storage_credentials import StorageCredentials
from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tokens import Tokens
from cm_delta_dagster.catalog.version_pins import VersionPins


class Catalog(typing.Protocol):
    """Every interface of a catalog, and the end of its use.

    Answers are consistent when several processes use the catalog concurrently, and across restarts. Methods raise only errors
    of this package, CatalogUnavailableError if the catalog cannot be reached.
    """

    @property
    def registry(self) -> TableRegistry:
        """Names of tables."""
        ...

    @property
    def coordinator(self) -> CommitCoordinator:
        """Ratification of commits."""
        ...

    @property
    def recovery(self) -> RecoverableCatalog:
        """Backup and recovery."""
        ...

    @property
    def namespaces(self) -> NamespaceRegistry:
        """Catalogs and schemas."""
        ...

    @property
    def commit_policies(self) -> CommitPolicies:
        """How commits are made."""
        ...

    @property
    def commit_rules(self) -> CommitRuleRegistry:
        """What commits must satisfy."""
        ...

    @property
    def holds(self) -> HeldCommits:
        """Commits that wait for their ratification or for an approval."""
        ...

    @property
    def maintenance_policies(self) -> MaintenancePolicies:
        """Which maintenance is permitted."""
        ...

    @property
    def leases(self) -> Leases:
        """One maintenance run at a time for each table."""
        ...

    @property
    def feed(self) -> CommitFeed:
        """All ratified commits."""
        ...

    @property
    def events(self) -> EventFeed:
        """All events."""
        ...

    @property
    def pins(self) -> VersionPins:
        """The versions that the processes of a run read."""
        ...

    @property
    def access(self) -> AccessControl:
        """Callers, grants and roles."""
        ...

    @property
    def tokens(self) -> Tokens:
        """The tokens of callers of a server."""
        ...

    @property
    def application_ids(self) -> ApplicationIds:
        """Who set the application ids of tables."""
        ...

    @property
    def audit_log(self) -> AuditLog:
        """Changes of rules, and refusals."""
        ...

    @property
    def overview(self) -> CatalogOverview:
        """Lists of tables and commits, in pages."""

    @property
    def storage_credentials(self) -> StorageCredentials:
        """Credentials for the files of tables."""
        ...

    def close(self) -> None:
        """Release the connections. The object must not be used afterwards."""
        ...
