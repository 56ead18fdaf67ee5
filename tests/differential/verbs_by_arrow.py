"""Every verb that changes rows or files, as calls whose rows Arrow writes. Statements of SQL change definitions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster import Connection, DeltaTable, MergeMode, SchemaMode


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbsByArrow:
    """A table and its definition's connection: ``lake`` has a session of Spark, and ``table`` is of a connection without one."""

    lake: Connection
    table: DeltaTable

    def run(self, steps: Iterable["Step"]) -> None:
        for step in steps:
            if isinstance(step, str):
                self.lake.sql(step.format(t=self.table.name))
            else:
                step(self)


Step = str | Callable[[VerbsByArrow], Any]


_TYPES = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("p", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("code", pa.string()),
        pa.field("short", pa.string()),
        pa.field("at", pa.timestamp("us")),
        pa.field("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        pa.field("items", pa.list_(pa.struct([("x", pa.int32())]))),
        pa.field("pairs", pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
    ]
)


def _rows(first: int, end: int) -> pa.Table:
    rows = [
        {
            "id": number,
            "p": ("a b", "50%", None)[number % 3],
            "n": number % 7,
            "code": "abc",
            "short": None if number % 4 == 0 else "four",
            "at": datetime(2024, 2, 29, 0, 0, 0, 123456),
            "st": None if number % 5 == 0 else {"a": number, "b": "x"},
            "items": [{"x": number}, None],
            "pairs": [("k", {"v": 1})],
        }
        for number in range(first, end)
    ]
    return pa.Table.from_pylist(rows, schema=_TYPES)


def _by_keys(verbs: VerbsByArrow) -> None:
    verbs.table.overwrite([{"id": 3, "p": "key"}, {"id": 4, "p": "key"}], keys="id", engine="arrow")
    if verbs.table.snapshot().partition_columns:
        verbs.table.overwrite([{"id": 90, "p": "alone"}], partitions="dynamic", engine="arrow")
    verbs.table.upsert(pa.table({"id": [5], "p": ["by key"], "n": pa.array([1], pa.int32())}), on="id", engine="arrow")


def _merge(verbs: VerbsByArrow) -> None:
    (
        verbs.table.merge(_rows(15, 40), "target.id = source.id AND target.id % 3 <> 0", engine="arrow")
        .when_matched_delete("source.id % 2 = 0")
        .when_matched_update({"name": "'merged'", "p": "'moved'"})
        .when_not_matched_insert({"id": "source.id", "p": "source.p"}, "source.id >= 30")
        .when_not_matched_by_source_update({"n": "-1"}, "target.id < 5")
        .execute()
    )


def _merge_with_evolution(verbs: VerbsByArrow) -> None:
    source = pa.table({"id": range(12, 18), "grown": range(36, 54, 3)})
    merge = verbs.table.merge(source, on="id", engine="arrow").with_schema_evolution()
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _keys_that_are_absent(verbs: VerbsByArrow) -> None:
    keys = verbs.table.to_arrow(["id"], where="id < 12")
    verbs.table.upsert(keys, on="id", mode=MergeMode.DELETE_UNMATCHED, where="id < 14", engine="arrow")


def _restored(version: int) -> Step:
    return lambda verbs: verbs.table.restore(version)


def _update(assignments: dict[str, str], where: str) -> Step:
    return lambda verbs: verbs.table.update(assignments, where, engine="arrow")


def _delete(where: str) -> Step:
    return lambda verbs: verbs.table.delete(where, engine="arrow")


def _append(first: int, end: int) -> Step:
    return lambda verbs: verbs.table.append(_rows(first, end), engine="arrow")


def _replace(verbs: VerbsByArrow) -> None:
    rows = pa.table({"id": range(35, 45), "p": pc.cast(pa.array(["replaced"] * 10), pa.string())})
    verbs.table.overwrite(rows, where="id >= 35", engine="arrow")


def _widened_append(verbs: VerbsByArrow) -> None:
    rows = [{"id": 70, "p": "new", "beyond": 1.5}]
    verbs.table.append(rows, schema_mode=SchemaMode.MERGE, engine="arrow")


EVERYWHERE: tuple[Step, ...] = (
    _append(0, 20),
    _by_keys,
    _append(20, 30),
    "ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)",
    _update({"n": "n + 10", "st.b": "'y'"}, "id % 5 = 1"),
    _delete("id % 6 = 4 OR p = '50%' AND id < 3"),
    _merge,
    "ALTER TABLE {t} ADD COLUMNS (more int COMMENT 'later' AFTER id, st.c double)",
    _update({"more": "n * 2", "st.c": "0.5D"}, "id BETWEEN 10 AND 25"),
    _merge_with_evolution,
    lambda verbs: verbs.table.optimize(),
    _delete("id = 11"),
    lambda verbs: verbs.table.maintenance.reorg(),
    _replace,
    "ALTER TABLE {t} ALTER COLUMN name SET DEFAULT 'newer'",
    "ALTER TABLE {t} SET TBLPROPERTIES ('mine' = 'yes')",
    _append(50, 55),
    _restored(5),
    _append(60, 63),
    _keys_that_are_absent,
    _widened_append,
    _delete("true"),
    _restored(14),
    "ALTER TABLE {t} DROP CONSTRAINT small",
)
MAPPED: tuple[Step, ...] = (
    "ALTER TABLE {t} RENAME COLUMN short TO `brief text`",
    "ALTER TABLE {t} RENAME COLUMN st.b TO d",
    "ALTER TABLE {t} DROP COLUMN items",
    "ALTER TABLE {t} ADD COLUMN items string",
    "ALTER TABLE {t} ALTER COLUMN n TYPE bigint",
    _update({"n": "5000000000", "items": "'again'", "brief text": "'b'"}, "id % 4 = 1"),
)
CLUSTERED: tuple[Step, ...] = (
    "ALTER TABLE {t} CLUSTER BY (n)",
    lambda verbs: verbs.table.optimize(full=True),
    "ALTER TABLE {t} CLUSTER BY NONE",
    lambda verbs: verbs.table.optimize(),
)
Z_ORDERED: tuple[Step, ...] = (lambda verbs: verbs.table.optimize(z_order_by=["id", "n"]),)
