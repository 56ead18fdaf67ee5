"""Random sequences of ALTER TABLE, each act by delta-spark on a table of its own and by this package on another: both refuse it, or
both end in the same schema with the same ids, partition columns, properties and features."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import (
    AddColumns,
    Alteration,
    ChangeColumn,
    DropColumns,
    NewColumn,
    RenameColumn,
    SetProperties,
    UnsetProperties,
    position_of,
)
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME
from cm_delta_dagster.protocol.features.protocol_evolution import catalog_managed_protocol
from cm_delta_dagster.protocol.schema.column_paths import column_path, path_text
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import StructField, StructType, walk_fields
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark
from tests.support.lake import Lake
from tests.support.path_snapshots import load_path_snapshot

pytestmark = [pytest.mark.peers, pytest.mark.slow, pytest.mark.timeout(1800)]

_ACTS = 25
_COLUMNS = {
    "id": "int", "part": "smallint", "st": "struct<a: int, b: string>", "items": "array<struct<x: int, y: float>>",
    "pairs": "map<string, struct<v: int>>", "amount": "decimal(5,2)", "day": "date", "gone": "tinyint",
}  # fmt: skip
_NAMES = ("id", "part", "new", "Other", "ST", "amount", "missing", "two words", "day")
_FIELDS = ("st.a", "st.c", "items.element.x", "items.element.z", "pairs.value.v", "pairs.value.w", "st.no.x", "items.x")
_TYPES = ("int", "bigint", "double", "decimal(10,2)", "decimal(12,4)", "string", "struct<n: int>", "array<int>")
_PROPERTIES = (
    {"delta.columnMapping.mode": "name"}, {"delta.columnMapping.mode": "id"}, {"delta.enableTypeWidening": "true"},
    {"delta.appendOnly": "false"}, {"mine": "1"}, {"delta.unheardOf": "1"}, {"delta.checkpointInterval": "-1"},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Act:
    """One statement: for delta-spark as SQL after ``ALTER TABLE t``, for this package as a value."""

    sql: str
    ours: Alteration


def _acts(chance: random.Random) -> Iterator[Act]:
    yield _properties({"delta.enableTypeWidening": "true"})
    for number in range(_ACTS):
        if number == 5:
            yield _properties({"delta.columnMapping.mode": "name"})
        kind = chance.choice(("add", "add", "rename", "drop", "type", "type", "comment", "move", "null", "properties"))
        column = chance.choice((*_NAMES, *_FIELDS))
        yield _act(chance, kind, column)


def _properties(values: dict[str, str]) -> Act:
    pairs = ", ".join(f"'{key}'='{value}'" for key, value in values.items())
    return Act(sql=f"set tblproperties ({pairs})", ours=SetProperties(properties=values))


def _act(chance: random.Random, kind: str, column: str) -> Act:
    name = path_text(column_path(column))
    wanted = chance.choice(_TYPES)
    neighbour = chance.choice(("id", "a", "x", "neither"))
    first = chance.random() < 0.4
    place = "first" if first else f"after {neighbour}"
    match kind:
        case "add" if chance.random() < 0.5:
            return Act(sql=f"add columns ({name} {wanted})", ours=AddColumns([NewColumn(column, wanted)]))
        case "add":
            new = NewColumn(column, wanted, first=first, after=None if first else neighbour)
            return Act(sql=f"add columns ({name} {wanted} {place})", ours=AddColumns([new]))
        case "rename":
            to = chance.choice(_NAMES)
            return Act(sql=f"rename column {name} to {path_text((to,))}", ours=RenameColumn(column, to))
        case "drop":
            return Act(sql=f"drop column {name}", ours=DropColumns([column]))
        case "type":
            return Act(sql=f"alter column {name} type {wanted}", ours=ChangeColumn(column=column, type=wanted))
        case "comment":
            return Act(sql=f"alter column {name} comment 'é'", ours=ChangeColumn(column=column, comment="é"))
        case "move":
            position = position_of(first=first, after=None if first else neighbour)
            return Act(sql=f"alter column {name} {place}", ours=ChangeColumn(column=column, position=position))
        case "null":
            return Act(sql=f"alter column {name} drop not null", ours=ChangeColumn(column=column, nullable=True))
        case _ if chance.random() < 0.2:
            return Act(sql="unset tblproperties ('mine')", ours=UnsetProperties(names=("mine",)))
        case _:
            return _properties(chance.choice(_PROPERTIES))


def _state(snapshot: Snapshot) -> dict[str, Any]:
    """What both tables must have alike. Physical names differ, unless they are those of the first files."""
    schema = []
    for path, item in walk_fields(snapshot.schema):
        metadata = {key: value for key, value in item.metadata.items() if key != PHYSICAL_NAME}
        physical = str(item.metadata.get(PHYSICAL_NAME, ""))
        changes = metadata.pop("delta.typeChanges", [])
        schema.append(
            (path, _leaf(item), item.nullable, metadata, [sorted(change.items()) for change in changes],
             "col-..." if physical.startswith("col-") else physical)
        )  # fmt: skip
    ours = snapshot.metadata.configuration
    kept = ("mine", "delta.columnMapping.mode", "delta.columnMapping.maxColumnId", "delta.enableTypeWidening")
    features = set(snapshot.protocol.writer_features or ()) - set(
        catalog_managed_protocol(["deletionVectors", "v2Checkpoint"]).writer_features or ()
    )
    return {
        "schema": schema,
        "partitions": snapshot.partition_columns,
        "properties": {key: ours[key] for key in kept if key in ours},
        "features": sorted(features),
    }


def _leaf(item: StructField) -> str:
    return type(item.type).__name__ if isinstance(item.type, StructType) else str(item.type).split("(")[0]


@pytest.mark.exhaustive
@pytest.mark.requirements(
    "COLMAP-3",
    "COLMAP-4",
    "COLMAP-6",
    "COLMAP-10",
    "COLMAP-11",
    "COLMAP-12",
    "COLMAP-13",
    "COLMAP-14",
    "UP-TW-2",
    "UP-TW-3",
    "META-4",
    "META-6",
    "META-7",
)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_alterations_end_as_by_delta_spark(delta_spark: DeltaSpark, tmp_path: Path, seed: int) -> None:
    location = tmp_path / "theirs"
    columns = ", ".join(f"{name} {wanted}" for name, wanted in _COLUMNS.items())
    delta_spark.sql(f"create table delta.`{location}` ({columns}) using delta partitioned by (part)")
    lake = Lake(tmp_path)
    schema = StructType(tuple(StructField(name, parse_column_type(text).type) for name, text in _COLUMNS.items()))
    table = lake.new_table(schema=schema, partition_columns=("part",))
    done = []
    for act in _acts(random.Random(seed)):
        theirs = ours = ""
        try:
            delta_spark.sql(f"alter table delta.`{location}` {act.sql}")
        except RuntimeError as error:
            theirs = str(error).partition("\n")[0][:300]
        try:
            alter_table(table, act.ours)
        except CmDeltaError as error:
            ours = str(error)
        done.append(act.sql)
        said = (
            f"seed {seed}, after {json.dumps(done, indent=1)}\ndelta-spark: {theirs or 'done'}\nours: {ours or 'done'}"
        )
        assert bool(theirs) == bool(ours), said
        assert _state(table.snapshot()) == _state(load_path_snapshot(Stores(), f"file://{location}")), said
    lake.client.close()
