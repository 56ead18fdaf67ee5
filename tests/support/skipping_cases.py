"""Cases of data skipping, which the rule in Python and the file index in Java both run.

A table has files with statistics and partition values, and conditions. Each condition lists the files that it ``keeps``. A file
may remain although none of its rows satisfies the condition; ``python`` and ``java`` list the files that only that rule keeps.
A test with Spark evaluates each condition on ``rows``, which are rows that such a file may have: a file with a row that
satisfies it must remain.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.schema.types import StructType, parse_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """One file.

    Attributes:
        stats: as in the log; None for none.
        partition: partition values as in the log, by physical name.
        rows: rows as SQL, with the values of all columns of the schema; none if Spark cannot make such rows from literals.
        has_vector: whether the file has a deletion vector, for the first row after ``rows``.
    """

    stats: str | None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    rows: Sequence[str] = ()
    has_vector: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The files that remain, by position; those in ``python`` and ``java`` by that rule only."""

    keeps: Sequence[int]
    python: Sequence[int] = ()
    java: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippingTable:
    """Files of one schema, and what each condition keeps. ``zone`` is that of the session."""

    schema: StructType
    partition_columns: Sequence[str]
    mapping: ColumnMappingMode
    zone: str
    files: Sequence[SkippedFile]
    conditions: Mapping[str, Kept]

    def adds(self, *, size: int = 100) -> list[AddFile]:
        """The files as actions; file 2 is ``f2.parquet``, of ``size`` bytes."""
        return [
            AddFile(
                path=f"f{number}.parquet",
                partition_values=file.partition,
                size=size,
                modification_time=0,
                stats=file.stats,
                deletion_vector=encode_inline([len(file.rows)]) if file.has_vector else None,
            )
            for number, file in enumerate(self.files)
        ]


def _tables() -> Mapping[str, SkippingTable]:
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    return {
        name: SkippingTable(
            schema=parse_schema(json.dumps({"type": "struct", "fields": table["fields"]})),
            partition_columns=table.get("partition_columns", ()),
            mapping=ColumnMappingMode(table.get("mapping", "none")),
            zone=table.get("zone", "UTC"),
            files=[SkippedFile(**file) for file in table["files"]],
            conditions={condition: Kept(**kept) for condition, kept in table["conditions"].items()},
        )
        for name, table in json.loads(text).items()
    }


SKIPPING_TABLES = _tables()
"""The tables by name."""
