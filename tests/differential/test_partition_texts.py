"""delta-spark reads the texts of partition values by Spark's cast: the table of casts is what it reads."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.differential.peers import DeltaSpark
from tests.support.cast_cases import CAST_CASES, ZONE
from tests.support.foreign import ForeignTable, field

_TYPES = {
    "tinyint": "byte",
    "int": "integer",
    "bigint": "long",
    "boolean": "boolean",
    "double": "double",
    "float": "float",
    "date": "date",
    "timestamp": "timestamp",
    "decimal(5,2)": "decimal(5,2)",
    "decimal(38,0)": "decimal(38,0)",
}
_NUMBERS = {"date": "unix_date({})", "timestamp": "unix_micros({})"}


@pytest.mark.requirements("PART-3", "PART-4", "PART-5", "PART-6")
def test_delta_spark_reads_partition_values_by_the_table_of_casts(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """Also where the cast is NULL, which this package refuses instead."""
    names = {f"c{number}": kind for number, kind in enumerate(_TYPES)}
    fields = [field(name, _TYPES[kind]) for name, kind in names.items()]
    table = ForeignTable(tmp_path / "t", field("row", "long"), *fields, partitions=list(names))
    cases = {name: list(CAST_CASES[kind].items()) for name, kind in names.items()}
    expected, actions = {}, []
    for row in range(max(map(len, cases.values()))):
        chosen = {name: found[row % len(found)] for name, found in cases.items()}
        expected[row] = {name: value for name, (_, value) in chosen.items()}
        path = table.root / f"f{row}.parquet"
        pq.write_table(pa.table({"row": [row]}), path)
        values = {name: text for name, (text, _) in chosen.items()}
        add = {"path": path.name, "partitionValues": values, "size": path.stat().st_size, "modificationTime": 0}
        actions.append({"add": {**add, "dataChange": True}})
    table.commit(*actions)
    shown = [f"cast({_NUMBERS.get(kind, '{}').format(name)} as string) as {name}" for name, kind in names.items()]
    query = f"select row, {', '.join(shown)} from delta.`{table.root}`"
    rows = delta_spark.sql(f"set time zone '{ZONE}'", query).to_pylist()
    delta_spark.sql("set time zone 'UTC'", "select 1")
    assert {row.pop("row"): row for row in rows} == expected
