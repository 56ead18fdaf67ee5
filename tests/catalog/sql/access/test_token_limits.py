"""What a read-only token, and one that is limited to a scope, may do: every operation of every part of the catalog."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind, CommitPolicyRule
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.access.token_limits import FOR_EVERYBODY, READS, RULE, interfaces
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitRefusedError, OperationRefusedError
from tests.contracts.catalog_bench import NAME, create
from tests.support.commit_builder import ADD, commit_of

ELSEWHERE = TableIdentifier("main", "staff", "salaries")
OPERATIONS = tuple(
    f"{part}.{name}"
    for part, interface in interfaces().items()
    for name, member in inspect.getmembers(interface, callable)
    if not name.startswith("_")
)


@pytest.fixture
def owner(catalog_url: str) -> Iterator[SqlCatalog]:
    with SqlCatalog(catalog_url, warehouse="memory://w", principal="owner") as catalog:
        create(catalog)
        create(catalog, ELSEWHERE)
        yield catalog


def by_token(owner: SqlCatalog, *, read_only: bool = False, scope: str = "*") -> SqlCatalog:
    """The catalog as a server gives it to the holder of a new token of the owner."""
    secret = owner.tokens.create_token("owner", read_only=read_only, scope=scope).secret
    return owner.for_token(owner.tokens.authenticate(secret))


def refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((OperationRefusedError, CommitRefusedError), match=message) as caught:
        call()
    assert caught.value.refusal is not None and caught.value.refusal.rule == RULE


def test_every_listed_operation_exists() -> None:
    assert set(OPERATIONS) >= READS and FOR_EVERYBODY < READS and len(OPERATIONS) > 80


def arguments_of(operation: str, owner: SqlCatalog, name: TableIdentifier) -> dict[str, Any]:
    """Arguments that concern the table, and otherwise are of no use; a refused call does not read them."""
    part, _, method = operation.partition(".")
    values: dict[str, Any] = {
        "table_id": owner.registry.load_table(name).table_id,
        "identifier": name,
        "identifiers": (name,),
        "scope": str(name),
        "name": str(name),
        "rule": CommitPolicyRule(scope=str(name), policy=CommitPolicy(kind=CommitPolicyKind.STAGED)),
        "proposals": {owner.registry.load_table(name).table_id: commit_of(1, ADD)},
    }
    parameters = inspect.signature(getattr(interfaces()[part], method)).parameters.values()
    required = [p.name for p in parameters if p.name != "self" and p.default is p.empty]
    return {name: values.get(name, ()) for name in required}


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - READS - {"recovery.adopt_table"}))
def test_a_read_only_token_changes_nothing(sqlite_url: str, operation: str) -> None:
    """The check is one for both databases, and before the operation."""
    with SqlCatalog(sqlite_url, warehouse="memory://w", principal="owner") as owner:
        create(owner)
        part, _, method = operation.partition(".")
        call = getattr(getattr(by_token(owner, read_only=True), part), method)
        arguments = arguments_of(operation, owner, NAME)
        if operation.startswith("holds."):
            arguments["hold_id"] = "none"
        refused(lambda: call(**arguments), "is read-only")


def test_a_read_only_token_reads(owner: SqlCatalog) -> None:
    reader = by_token(owner, read_only=True)
    table = reader.registry.load_table(NAME)
    assert len(reader.registry.load_tables(iter([NAME, ELSEWHERE]))) == 2
    assert reader.coordinator.get_ratified_commits(table.table_id).latest_version == 0
    assert reader.pins.pin_version(table.table_id, 0, owner="run") == 0
    assert reader.access.whoami().principal == "owner"
    assert len(reader.feed.feed(after=0, limit=9)) == 2


@pytest.mark.parametrize("scope", ["main.sales", str(NAME)])
def test_a_token_of_a_scope_works_there_and_nowhere_else(owner: SqlCatalog, scope: str) -> None:
    limited = by_token(owner, scope=scope)
    table_id, other_id = (owner.registry.load_table(name).table_id for name in (NAME, ELSEWHERE))
    assert isinstance(limited.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
    assert limited.registry.load_table(NAME).table_id == limited.registry.load_table_by_id(table_id).table_id
    assert set(limited.registry.list_tables()) == {NAME, ELSEWHERE}
    assert [entry.identifier for entry in limited.registry.readable_tables().entries] == [NAME]
    for call in (
        lambda: limited.registry.load_table(ELSEWHERE),
        lambda: limited.registry.load_tables([NAME, ELSEWHERE]),
        lambda: limited.registry.load_table_by_id(other_id),
        lambda: limited.coordinator.commit(other_id, commit_of(1, ADD)),
        lambda: limited.coordinator.commit_together({table_id: commit_of(2, ADD), other_id: commit_of(1, ADD)}),
        lambda: limited.registry.rename_table(table_id, TableIdentifier("main", "staff", "taken")),
        lambda: limited.registry.create_staging_table(TableIdentifier("main", "staff", "new")),
        lambda: limited.registry.create_staging_table(TableIdentifier("main", "sales", "new"), clone_of=other_id),
        lambda: limited.access.grant([Privilege.OWN], "main", "eve"),
        lambda: limited.access.grant([Privilege.OWN], "*", "eve"),
        lambda: limited.access.add_to_role("r", ["eve"]),
        lambda: limited.audit_log.audit(),
        lambda: limited.tokens.create_token("owner"),
        limited.tokens.tokens,
        lambda: limited.namespaces.create_namespace("main.salesother"),
    ):
        refused(call, f"is limited to {scope}")
    assert owner.coordinator.get_ratified_commits(other_id).latest_version == 0
    assert owner.coordinator.get_ratified_commits(table_id).latest_version == 1
    refusals = [entry for entry in owner.audit_log.audit(limit=100) if entry.outcome.value == "refused"]
    assert len(refusals) == 15 and all("is limited to" in entry.reason for entry in refusals)


def test_a_token_of_a_table_follows_the_table_and_not_its_name(owner: SqlCatalog) -> None:
    limited = by_token(owner, scope=str(NAME))
    table_id = owner.registry.load_table(NAME).table_id
    moved = TableIdentifier("main", "staff", "orders")
    owner.registry.rename_table(table_id, moved)
    create(owner)
    assert limited.registry.load_table(moved).table_id == table_id
    refused(lambda: limited.registry.load_table(NAME), "is limited to")


def test_a_token_gives_no_privilege_that_its_principal_lacks(owner: SqlCatalog) -> None:
    owner.access.enable_grants(owner="owner")
    secret = owner.tokens.create_token("ana", scope="main.sales").secret
    limited = owner.for_token(owner.tokens.authenticate(secret))
    with pytest.raises(OperationRefusedError, match="the principal ana does not have the privilege read") as caught:
        limited.registry.load_table(NAME)
    assert caught.value.refusal is not None and caught.value.refusal.rule == "grants"


def test_what_is_not_of_an_interface_is_not_there(owner: SqlCatalog) -> None:
    with pytest.raises(AttributeError):
        by_token(owner, read_only=True).tokens.authenticate("x")
