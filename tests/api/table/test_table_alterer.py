"""``table.alter``: the verbs, and the types that they take."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import types as T

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.table_alterer import TableAlterer
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.alterations import NewColumn
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.schema.types import LONG, schema_text
from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.client.close()


@pytest.mark.requirements("META-6", "COLMAP-10", "COLMAP-11", "COLMAP-12")
def test_every_verb(lake: Lake) -> None:
    table = lake.new_table()
    alter = TableAlterer(table, ClientSession(lake.client))
    alter.set_properties({"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true", "mine": "1"})
    alter.add_columns({"a": "int", "b": T.ArrayType(T.IntegerType()), "c": LONG})
    alter.add_columns(NewColumn("d", T.StructType([T.StructField("x", T.ShortType(), False)]), first=True))
    alter.add_columns([NewColumn(["d", "y.z"], "date", comment="dotted")])
    alter.rename_column("C", "cc")
    alter.drop_column("a")
    alter.change_type("b.element", T.LongType())
    alter.change_type("d.x", "int")
    alter.reorder_column("cc", first=True)
    alter.reorder_column("id", after="b")
    alter.comment_column("id", "key")
    alter.set_not_null("id")
    alter.drop_not_null("d.x")
    alter.unset_properties("mine")
    alter.unset_properties(["mine"])
    alter.enable_feature("timestampNtz")
    alter.set_comment("all")
    last = alter.drop_feature("deletionVectors", commit_properties=CommitProperties(user_metadata="why"))
    snapshot = table.snapshot()
    assert last.version == snapshot.version
    assert schema_text(snapshot.schema).splitlines() == [
        "  cc: bigint",
        "  d: struct",
        "    x: int",
        "    y.z: date",
        "  day: date",
        "  b: array<bigint>",
        "  id: bigint not null",
    ]
    id_column = snapshot.schema.field("id")
    assert id_column is not None
    assert id_column.metadata["comment"] == "key"
    assert (snapshot.metadata.description, "mine" in snapshot.metadata.configuration) == ("all", False)
    assert supports(snapshot.protocol, "timestampNtz")
    entry = next(iter(table.commit_log().load(last.version, last.version)))
    assert entry.version == last.version


def test_a_place_is_named_once(lake: Lake) -> None:
    alter = TableAlterer(lake.new_table(), ClientSession(lake.client))
    with pytest.raises(InvalidArgumentError, match="new place"):
        alter.reorder_column("id")
    with pytest.raises(InvalidArgumentError, match="give one of them"):
        alter.reorder_column("id", first=True, after="day")
