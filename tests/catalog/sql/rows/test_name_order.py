"""Parts of lists are read from an index that has their order."""

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.migrate import create
from cm_delta_dagster.catalog.sql.database.schema import NAME_COLUMNS
from cm_delta_dagster.catalog.sql.rows.table_names import in_order
from cm_delta_dagster.catalog.tables import TableIdentifier

INDEX = {"sqlite": "cm_delta_tables_active_name", "postgresql": "cm_delta_tables_in_order"}
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}


@pytest.mark.parametrize("scope", ["", "main", "main.s"])
def test_a_part_of_the_tables_is_read_from_an_index_without_sorting(catalog_url: str, scope: str) -> None:
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    kind = engine.dialect.name
    with engine.begin() as connection:
        create(connection)
        if kind == "postgresql":  # The table is empty, and other plans are as good.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        after = TableIdentifier("main", "s", "t")
        part = in_order(connection, sa.select(*NAME_COLUMNS), scope=scope, after=after, limit=7)
        statement = part.compile(engine, compile_kwargs={"literal_binds": True})
        plan = str(connection.exec_driver_sql(EXPLAIN[kind] + str(statement)).all())
    assert INDEX[kind] in plan and "Sort" not in plan and "TEMP B-TREE" not in plan, plan
    assert "> " in plan or ">?" in plan or ">(" in plan, plan
