"""Who gets credentials for the files of which table; where they come from does not matter here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.storage_credentials import FileAccess, LocationCredentials
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.errors import OperationRefusedError, TableNotFoundError
from tests.contracts.catalog_bench import NAME, create, summary

ELSEWHERE = TableIdentifier("main", "staff", "salaries")


@dataclass
class Issuer:
    """Issues whatever is asked for, and records it."""

    issued: list[tuple[str, FileAccess]] = field(default_factory=list)

    def issue(self, location: str, access: FileAccess) -> LocationCredentials:
        self.issued.append((location, access))
        return LocationCredentials(prefix=location, access=access, config={"s3.access-key-id": "AKIA"})


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def owner(catalog_url: str, issuer: Issuer) -> Iterator[SqlCatalog]:
    with SqlCatalog(catalog_url, warehouse="s3://lake/w", principal="owner", issuer=issuer) as catalog:
        create(catalog)
        create(catalog, ELSEWHERE)
        yield catalog


def refused(call: Callable[[str], object], table: TableEntry) -> None:
    with pytest.raises(OperationRefusedError):
        call(table.location)


def test_credentials_are_for_the_table_at_or_above_the_location(owner: SqlCatalog, issuer: Issuer) -> None:
    table = owner.registry.load_table(NAME)
    read, write = owner.storage_credentials.read_credentials, owner.storage_credentials.write_credentials
    for place in (
        table.location,
        f"{table.location}/",
        f"{table.location}/_delta_log/x.json",
        table.location + "/../t",
    ):
        assert read(place) == LocationCredentials(
            prefix=table.location, access=FileAccess.READ, config={"s3.access-key-id": "AKIA"}
        )
    assert read(table.location.replace("s3://", "s3a://")) is not None and "AKIA" not in repr(read(table.location))
    write(table.location)
    assert {location for location, _ in issuer.issued} == {table.location}
    assert [access for _, access in issuer.issued][-1] is FileAccess.READ_WRITE
    issuer.issued.clear()
    above = table.location.rpartition("/")[0]
    for place in (
        above,
        f"{table.location}x",
        "s3://lake/w",
        "s3://lake",
        "s3://",
        "",
        "x" * 10,
        "a/" * 5000,
        "s3://l/\0",
    ):
        for call in (read, write):
            with pytest.raises(TableNotFoundError):
                call(place)
    assert issuer.issued == []


def test_the_grants_decide(owner: SqlCatalog, issuer: Issuer) -> None:
    table = owner.registry.load_table(NAME)
    ana = owner.acting_as("ana").storage_credentials
    owner.access.enable_grants(owner="owner")
    refused(ana.read_credentials, table)
    refused(ana.write_credentials, table)
    owner.access.grant([Privilege.READ], str(NAME), "ana")
    assert ana.read_credentials(table.location) is not None
    refused(ana.write_credentials, table)
    refused(ana.read_credentials, owner.registry.load_table(ELSEWHERE))
    assert issuer.issued == [(table.location, FileAccess.READ)]
    for privilege in (Privilege.APPEND, Privilege.ALTER, Privilege.MAINTAIN):
        owner.access.grant([privilege], str(NAME), privilege.value)
        assert owner.acting_as(privilege.value).storage_credentials.write_credentials(table.location) is not None


def test_tokens_limit_it(owner: SqlCatalog) -> None:
    table, elsewhere = owner.registry.load_table(NAME), owner.registry.load_table(ELSEWHERE)

    def by_token(**limits: object) -> SqlCatalog:
        secret = owner.tokens.create_token("owner", **limits).secret  # type: ignore[arg-type]
        return owner.for_token(owner.tokens.authenticate(secret))

    reader = by_token(read_only=True).storage_credentials
    assert reader.read_credentials(table.location) is not None
    refused(reader.write_credentials, table)
    for scope in ("main.sales", str(NAME)):
        limited = by_token(scope=scope).storage_credentials
        assert limited.write_credentials(table.location) is not None
        refused(limited.read_credentials, elsewhere)


def test_a_table_that_is_created_is_written_by_its_creator(owner: SqlCatalog) -> None:
    staging = owner.registry.create_staging_table(TableIdentifier("main", "sales", "new"))
    assert owner.storage_credentials.write_credentials(staging.location) is not None
    owner.access.enable_grants(owner="owner")
    owner.access.grant([Privilege.READ], "main", "ana")
    with pytest.raises(OperationRefusedError):
        owner.acting_as("ana").storage_credentials.read_credentials(staging.location)


def test_a_reservation_of_a_location_does_not_give_the_files_that_are_there(owner: SqlCatalog, issuer: Issuer) -> None:
    """Else who may create a table gets the files of any directory in the storage roots."""
    name, location = TableIdentifier("main", "sales", "outside"), "s3://lake/raw"
    staging = owner.registry.create_staging_table(name, location=location)
    for call in (owner.storage_credentials.read_credentials, owner.storage_credentials.write_credentials):
        assert call(location) is None
    assert issuer.issued == []
    owner.registry.register_table(staging.table_id, name, summary=summary(1000))
    assert owner.storage_credentials.read_credentials(location) is not None


def test_a_dropped_table_gives_none(owner: SqlCatalog, issuer: Issuer) -> None:
    table = owner.registry.load_table(NAME)
    owner.registry.drop_table(NAME)
    for call in (owner.storage_credentials.read_credentials, owner.storage_credentials.write_credentials):
        with pytest.raises(TableNotFoundError):
            call(table.location)
    assert issuer.issued == []


def test_a_catalog_without_an_issuer_gives_none(sqlite_url: str) -> None:
    with SqlCatalog(sqlite_url, warehouse="s3://lake/w") as catalog:
        assert catalog.storage_credentials.read_credentials(create(catalog).location) is None
