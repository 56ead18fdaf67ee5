"""On PostgreSQL the role that owns the catalog's tables, or a member of it, always owns the whole catalog."""

from collections.abc import Iterator

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, PermissionDeniedError
from tests.contracts.catalog_bench import create
from tests.support.database_roles import create_role, raw_client, url_as

pytestmark = pytest.mark.postgres


@pytest.fixture
def owner_role(postgres_url: str) -> str:
    """A role that may create objects in the database, and is not a superuser."""
    role = create_role(postgres_url, "lake_owner")
    with raw_client(postgres_url, "postgres") as client:
        client.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    return role


@pytest.fixture
def owner(postgres_url: str, owner_role: str) -> Iterator[SqlCatalog]:
    """A client of the role that owns the catalog's tables."""
    with SqlCatalog(url_as(postgres_url, owner_role), warehouse="memory://w") as catalog:
        catalog.identity()
        yield catalog


def test_an_owner_who_cannot_change_grants_is_refused(owner: SqlCatalog, owner_role: str, postgres_url: str) -> None:
    ana = create_role(postgres_url, "ana")
    for name in ("ghost", ana):
        with pytest.raises(InvalidArgumentError, match=rf"None of the principals.*{name}.*{owner_role}.*lock_out=True"):
            owner.enable_grants(owner=name)
    assert not owner.whoami().grants_enabled and owner.grants() == () and owner.audit() == ()
    owner.enable_grants(owner=ana, lock_out=True)
    assert owner.whoami().grants_enabled


def test_the_last_owner_who_can_change_grants_stays(owner: SqlCatalog, owner_role: str, postgres_url: str) -> None:
    ana = create_role(postgres_url, "ana")
    owner.enable_grants()
    owner.grant([Privilege.OWN], "*", ana)
    owner.add_to_role("owners", [owner_role])
    for refused in (
        lambda: owner.revoke([Privilege.OWN], "*", owner_role),
        lambda: owner.enable_grants(owner=ana) or owner.revoke([Privilege.OWN], "*", owner_role),
    ):
        with pytest.raises(InvalidArgumentError, match="None of the principals that would own"):
            refused()
    owner.grant([Privilege.OWN], "*", "owners")
    owner.revoke([Privilege.OWN], "*", owner_role)
    with pytest.raises(InvalidArgumentError, match="None of the principals that would own"):
        owner.remove_from_role("owners", [owner_role])
    owner.grant([Privilege.READ], "main", ana)


def test_a_member_of_the_role_that_owns_the_tables_is_an_owner(
    owner: SqlCatalog, owner_role: str, postgres_url: str
) -> None:
    member = create_role(postgres_url, "member")
    with raw_client(postgres_url, "postgres") as client:
        client.execute(f"GRANT {owner_role} TO {member}")
    owner.enable_grants(owner=member)
    with SqlCatalog(url_as(postgres_url, member)) as catalog:
        catalog.grant([Privilege.READ], "main", "public")
        assert ("main", "public") in {(one.scope, one.grantee) for one in catalog.grants()}


def test_a_denied_role_reads_which_role_it_can_ask(owner: SqlCatalog, owner_role: str, postgres_url: str) -> None:
    """What grants permit and the database does not: to own a table does not mean to change the catalog's tables."""
    pipeline = create_role(postgres_url, "pipeline")
    orders = create(owner)
    owner.enable_grants()
    owner.grant([Privilege.ALTER, Privilege.OWN], "main", pipeline)
    rule = CommitRule(scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY)
    with SqlCatalog(url_as(postgres_url, pipeline), warehouse="memory://w") as catalog:
        for refused in (
            lambda: catalog.create_staging_table(TableIdentifier("main", "sales", "new")),
            lambda: catalog.drop_table(orders.identifier),
            lambda: catalog.grant([Privilege.READ], "main", "public"),
            lambda: catalog.set_commit_rule(rule),
        ):
            with pytest.raises(PermissionDeniedError, match=rf"permission denied.*Ask {owner_role} to do it") as caught:
                refused()
            assert "Grant the user" not in str(caught.value)
