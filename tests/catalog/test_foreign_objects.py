"""Grants are not enabled beside objects by which another role would act with the rights of the catalog's owner."""

from collections.abc import Iterator

import psycopg
import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from tests.contracts.catalog_bench import create
from tests.support.database_roles import create_role, raw_client, url_as

pytestmark = pytest.mark.postgres

NAME = TableIdentifier("main", "sales", "orders")
_MINE = "CREATE FUNCTION public.mine{arguments} RETURNS {result} LANGUAGE plpgsql AS 'BEGIN RETURN {value}; END'"
OBJECTS = {
    "the trigger mine on cm_delta_audit": (
        _MINE.format(arguments="()", result="trigger", value="NEW"),
        "CREATE TRIGGER mine BEFORE INSERT ON public.cm_delta_audit FOR EACH ROW EXECUTE FUNCTION public.mine()",
    ),
    "the operator public.||(text[],text[])": (
        _MINE.format(arguments="(text[], text[])", result="text[]", value="$1"),
        "CREATE OPERATOR public.|| (LEFTARG = text[], RIGHTARG = text[], FUNCTION = public.mine)",
    ),
    "the function public.unnest(text[])": (
        "CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT NULL::text'",
    ),
    "the foreign key mine_t_fkey of public.mine to cm_delta_tables": (
        "CREATE TABLE public.mine (t text REFERENCES public.cm_delta_tables)",
    ),
}


@pytest.fixture
def stranger(postgres_url: str) -> Iterator[str]:
    """A role that had every right before grants were enabled."""
    stranger = create_role(postgres_url, "stranger")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        create(owner, NAME)
    with raw_client(postgres_url, "postgres") as client:
        client.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {stranger}")
        client.execute(f"GRANT CREATE ON SCHEMA public TO {stranger}")
    yield stranger


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_another_role_are_named_before_anything_changes(postgres_url: str, stranger: str, name: str) -> None:
    with raw_client(postgres_url, stranger) as client:
        for statement in OBJECTS[name]:
            client.execute(statement)
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        with pytest.raises(InvalidArgumentError, match=r"Grants were not enabled.*Nothing was changed") as refused:
            owner.enable_grants()
        assert name in str(refused.value)
        assert not owner.whoami().grants_enabled and owner.load_table(NAME).ratified.latest_version == 0
    with raw_client(postgres_url, stranger) as client:
        assert client.execute("SELECT count(*) FROM cm_delta_tables").fetchone() == (1,)


def test_the_right_to_create_objects_beside_the_catalog_is_named(postgres_url: str, stranger: str) -> None:
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        with pytest.raises(
            InvalidArgumentError, match=f"the right of the role {stranger} to create objects in the schema"
        ):
            owner.enable_grants()
        with raw_client(postgres_url, "postgres") as client:
            client.execute(f"REVOKE CREATE ON SCHEMA public FROM {stranger}")
        owner.enable_grants()
    with raw_client(postgres_url, stranger) as client, pytest.raises(psycopg.errors.InsufficientPrivilege):
        client.execute(OBJECTS["the function public.unnest(text[])"][0])
    with SqlCatalog(url_as(postgres_url, stranger)) as catalog, pytest.raises(TableNotFoundError):
        catalog.load_table(NAME)


def test_objects_of_the_owner_do_not_matter(postgres_url: str) -> None:
    """Functions of the role that owns the tables, or the schema, take no rights that it does not have."""
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        create(owner, NAME)
        with raw_client(postgres_url, "postgres") as client:
            client.execute(_MINE.format(arguments="(text)", result="text", value="$1"))
        owner.enable_grants()
        assert owner.whoami().grants_enabled
