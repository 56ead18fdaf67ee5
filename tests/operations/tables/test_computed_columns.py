"""Defaults of columns are changed without reading rows."""

from typing import Any

import pytest

from cm_delta_dagster.operations.tables.computed_columns import set_default
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from tests.support.lake import Lake

_SCHEMA = StructType((StructField("id", LONG), StructField("n", LONG, True, {CURRENT_DEFAULT: "7"})))
_NO_SESSION: Any = None  # Dropping a default does not use Spark.


@pytest.mark.requirements("DEF-5", "OCC-5")
def test_a_default_is_dropped_beside_a_concurrent_append_and_once(lake: Lake) -> None:
    table = lake.new_table(schema=_SCHEMA, partition_columns=())
    appended: list[int] = []

    def append_first(method: str, argument: object) -> Exception | None:
        if method == "write_if_absent" and "_staged_commits" in str(argument) and not appended:
            appended.append(1)
            appended.append(lake.append(table, partition_values={}).version)
        return None

    lake.store.fails = append_first
    result = set_default(table, spark=_NO_SESSION, column="N", default=None)
    assert (appended, result.versions) == ([1, 1], (2,))
    snapshot = table.snapshot()
    assert (snapshot.num_files, [item.metadata for item in snapshot.schema.fields]) == (1, [{}, {}])
    again = set_default(table, spark=_NO_SESSION, column="n", default=None)
    assert (again.versions, table.snapshot().version) == ((), 2)
