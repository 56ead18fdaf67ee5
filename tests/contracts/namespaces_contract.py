"""What every catalog guarantees about catalogs and schemas."""

import threading
from collections.abc import Callable

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    OperationRefusedError,
)
from tests.contracts.catalog_bench import NAME, Bench, create

SCHEMA = "main.sales"


def names(catalog: Catalog) -> tuple[list[str], list[str]]:
    """The names of the catalogs and of the schemas."""
    return (
        [namespace.name for namespace in catalog.namespaces.list_catalogs()],
        [namespace.name for namespace in catalog.namespaces.list_schemas()],
    )


def a_created_namespace_is_listed_with_what_it_was_given(bench: Bench) -> None:
    with bench.client() as catalog:
        assert names(catalog) == ([], [])
        made = catalog.namespaces.create_namespace(SCHEMA, comment="all orders", properties={"team": "sales"})
        assert made == Namespace(
            name=SCHEMA,
            comment="all orders",
            properties={"team": "sales"},
            created_by=catalog.access.whoami().principal,
            created_ms=bench.clock.now,
        )
        catalog.namespaces.create_namespace("empty")
        assert (
            catalog.namespaces.list_schemas() == (made,) == catalog.namespaces.list_schemas("main")
            and catalog.namespaces.list_schemas("empty") == ()
        )
        assert names(catalog) == (["empty", "main"], [SCHEMA])


def a_namespace_is_created_once(bench: Bench) -> None:
    with bench.client() as catalog:
        catalog.namespaces.create_namespace(SCHEMA, comment="first")
        for name in (SCHEMA, "main"):
            with pytest.raises(NamespaceAlreadyExistsError, match=f" {name} exists already; nothing was changed"):
                catalog.namespaces.create_namespace(name, comment="second")
        catalog.namespaces.create_namespace("main.Sales")  # Names are case-sensitive, as those of tables.
        assert [namespace.comment for namespace in catalog.namespaces.list_schemas()] == ["", "first"]


def a_malformed_name_is_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        for name in ("", "main.", "main.sales.orders", "ma in", ".", "main..x"):
            with pytest.raises(InvalidArgumentError):
                catalog.namespaces.create_namespace(name)
            with pytest.raises(InvalidArgumentError):
                catalog.namespaces.drop_namespace(name)
        with pytest.raises(InvalidArgumentError):
            catalog.namespaces.create_namespace("main", comment="\0")
        with pytest.raises(InvalidArgumentError):
            catalog.namespaces.create_namespace("main", properties={"\0": ""})
        assert names(catalog) == ([], [])


def whatever_names_a_table_creates_its_schema(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        assert names(catalog) == (["main"], [SCHEMA])
        catalog.registry.rename_table(table, TableIdentifier("lake", "orders", "all"))
        catalog.registry.register_path(TableIdentifier("paths", "raw", "files"), "file:///elsewhere")
        assert names(catalog) == (["lake", "main", "paths"], ["lake.orders", SCHEMA, "paths.raw"])
        catalog.registry.create_staging_table(
            TableIdentifier("none", "none", "reserved")
        )  # A reservation is no name yet.
        assert names(catalog)[0] == ["lake", "main", "paths"]


def only_an_empty_namespace_is_dropped(bench: Bench) -> None:
    with bench.client() as catalog:
        create(catalog)
        path = TableIdentifier("main", "raw", "files")
        catalog.registry.register_path(path, "file:///elsewhere")
        with pytest.raises(NamespaceNotEmptyError, match=r"it has main\.sales\.orders\. Drop or rename"):
            catalog.namespaces.drop_namespace(SCHEMA)
        with pytest.raises(NamespaceNotEmptyError, match=r"it has main\.raw\.files\."):
            catalog.namespaces.drop_namespace("main.raw")
        with pytest.raises(NamespaceNotEmptyError, match=r"it has main\.raw, main\.sales\. Drop its schemas"):
            catalog.namespaces.drop_namespace("main")
        catalog.registry.unregister_path(path)
        catalog.registry.drop_table(NAME)
        for name in (SCHEMA, "main.raw", "main"):
            catalog.namespaces.drop_namespace(name)
        assert names(catalog) == ([], [])
        for name in (SCHEMA, "main"):
            with pytest.raises(NamespaceNotFoundError, match="nothing was changed"):
                catalog.namespaces.drop_namespace(name)


def restoring_a_table_creates_its_schema_again(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.registry.drop_table(NAME)
        catalog.namespaces.drop_namespace(SCHEMA)
        catalog.namespaces.drop_namespace("main")
        assert catalog.registry.undrop_table(table).identifier == NAME
        assert names(catalog) == (["main"], [SCHEMA])


def creation_and_drop_are_in_audit_and_feed(bench: Bench) -> None:
    with bench.client() as catalog:
        catalog.namespaces.create_namespace("main")
        catalog.namespaces.create_namespace(SCHEMA, comment="all orders")
        catalog.namespaces.drop_namespace(SCHEMA)
        assert [
            (entry.action, entry.scope, entry.before, entry.after) for entry in catalog.audit_log.audit(limit=9)
        ] == [
            ("create catalog", "main", None, None),
            ("create schema", SCHEMA, None, "all orders"),
            ("drop schema", SCHEMA, "all orders", None),
        ]
        events = catalog.events.events(after=0, limit=9).events
        assert [(event.kind, event.scope) for event in events] == [
            (FeedKind.NAMESPACE_CHANGED, scope) for scope in ("main", SCHEMA, SCHEMA)
        ]


def with_grants_a_schema_takes_alter_to_create_and_own_to_drop(bench: Bench) -> None:
    with bench.client_of("rosa") as owner, bench.client_of("ana") as ana, bench.client_of("eve") as eve:
        owner.access.enable_grants()
        owner.access.grant([Privilege.ALTER], "main", "ana")
        for name in (SCHEMA, "main"):
            with pytest.raises(OperationRefusedError, match="does not have the privilege alter"):
                eve.namespaces.create_namespace(name)
        assert ana.namespaces.create_namespace(SCHEMA).created_by == "ana"
        with pytest.raises(OperationRefusedError, match="does not have the privilege own"):
            ana.namespaces.drop_namespace(SCHEMA)
        with pytest.raises(OperationRefusedError, match="does not have the privilege alter"):
            ana.namespaces.create_namespace("other.sales")
        owner.access.grant([Privilege.OWN], SCHEMA, "ana")
        ana.namespaces.drop_namespace(SCHEMA)
        refused = [entry.scope for entry in owner.audit_log.audit(limit=99) if entry.outcome is AuditOutcome.REFUSED]
        assert refused == [SCHEMA, "main", SCHEMA, "other.sales"]
        assert [grant.scope for grant in owner.access.grants(SCHEMA) if grant.grantee == "ana"] == ["main", SCHEMA]


def a_drop_and_a_creation_never_leave_a_table_without_its_schema(bench: Bench) -> None:
    with bench.client() as first, bench.client() as second:
        for number in range(20):
            name = TableIdentifier("main", f"s{number}", "t")
            first.namespaces.create_namespace(f"main.s{number}")
            outcomes = _together(
                lambda name=name: create(first, name),
                lambda number=number: second.namespaces.drop_namespace(f"main.s{number}"),
            )
            assert outcomes[0] is None and isinstance(outcomes[1], NamespaceNotEmptyError | None)
            assert name in first.registry.list_tables() and f"main.s{number}" in names(second)[1]


def a_drop_of_a_catalog_and_a_creation_of_a_schema_leave_both_or_none(bench: Bench) -> None:
    with bench.client() as first, bench.client() as second:
        for number in range(20):
            catalog = f"c{number}"
            first.namespaces.create_namespace(catalog)
            outcomes = _together(
                lambda catalog=catalog: first.namespaces.create_namespace(f"{catalog}.s"),
                lambda catalog=catalog: second.namespaces.drop_namespace(catalog),
            )
            assert outcomes[0] is None and isinstance(outcomes[1], NamespaceNotEmptyError | None)
            assert catalog in names(first)[0] and f"{catalog}.s" in names(first)[1]


def many_creations_in_a_new_schema_create_it_once(bench: Bench) -> None:
    clients = [bench.connect(bench.clock) for _ in range(4)]
    try:
        for number in range(5):
            tables = [TableIdentifier(f"c{number}", "s", f"t{place}") for place in range(4)]
            outcomes = _together(
                *(
                    lambda client=client, table=table: create(client, table)
                    for client, table in zip(clients, tables, strict=True)
                )
            )
            assert outcomes == [None] * 4 and names(clients[0])[1].count(f"c{number}.s") == 1
    finally:
        for client in clients:
            client.close()


def _together(*calls: Callable[[], object]) -> list[CmDeltaError | None]:
    """Run the calls at the same time. Returns the error of each."""
    outcomes: list[CmDeltaError | None] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(place: int) -> None:
        barrier.wait()
        try:
            calls[place]()
        except CmDeltaError as error:
            outcomes[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


NAMESPACES_CONTRACT = (
    a_created_namespace_is_listed_with_what_it_was_given,
    a_namespace_is_created_once,
    a_malformed_name_is_refused,
    whatever_names_a_table_creates_its_schema,
    only_an_empty_namespace_is_dropped,
    restoring_a_table_creates_its_schema_again,
    creation_and_drop_are_in_audit_and_feed,
    with_grants_a_schema_takes_alter_to_create_and_own_to_drop,
    a_drop_and_a_creation_never_leave_a_table_without_its_schema,
    a_drop_of_a_catalog_and_a_creation_of_a_schema_leave_both_or_none,
    many_creations_in_a_new_schema_create_it_once,
)
