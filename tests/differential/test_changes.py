"""The change feed of tables that delta-spark writes: its own answer and ours, for every range and for what is refused."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_changes_arrow
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark, canonical

pytestmark = pytest.mark.peers

_FEED = "'delta.enableChangeDataFeed'='true'"
_VECTORS = f"{_FEED}, 'delta.enableDeletionVectors'='true'"
_MAPPED = f"{_VECTORS}, 'delta.columnMapping.mode'='name'"

_STATEMENTS = (
    "insert into {t} select id, element_at(array('a b', '50%', null), cast(id % 3 as int) + 1), 'x' from range(0, 12, 1, 1)",
    "delete from {t} where id % 4 = 1",
    "update {t} set v = 'y' where id in (2, 3)",
    "merge into {t} using (select * from values (0, 'm'), (50, 'n') s(id, v)) s on {t}.id = s.id "
    "when matched then update set v = s.v when not matched then insert (id, p, v) values (s.id, 'a b', s.v)",
    "restore table {t} to version as of 1",
    "insert into {t} values (77, 'a b', 'q')",
    "delete from {t} where p = '50%'",
    "alter table {t} add column (w int)",
    "insert into {t} select 99, 'new', 'z', 7",
)


def their_changes(peer: DeltaSpark, location: Path, start: int, end: int | None) -> Any:
    arguments = f"'{location}', {start}" if end is None else f"'{location}', {start}, {end}"
    return peer.sql(f"select * from table_changes_by_path({arguments})")


def check_range(peer: DeltaSpark, location: Path, start: int, end: int | None) -> bool:
    """Whether both give the same rows; False if both refuse."""
    table = open_path_table(Stores(), str(location))
    try:
        theirs = canonical(their_changes(peer, location, start, end))
    except RuntimeError:
        with pytest.raises(CmDeltaError):
            read_changes_arrow(open_changes(table, ChangeRange(starting_version=start, ending_version=end)))
        return False
    ours = canonical(read_changes_arrow(open_changes(table, ChangeRange(starting_version=start, ending_version=end))))
    assert ours == theirs, (start, end)
    return True


@pytest.mark.requirements("CDF-5", "CDF-6", "CDF-7", "CDF-8", "CDF-10")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(_FEED, id="plain"),
        pytest.param(_VECTORS, id="vectors"),
        pytest.param(_MAPPED, id="mapped"),
    ],
)
@pytest.mark.exhaustive
def test_changes_are_those_that_delta_spark_returns(delta_spark: DeltaSpark, tmp_path: Path, properties: str) -> None:
    """Commit times included."""
    location = tmp_path / "t"
    name = f"delta.`{location}`"
    create = (
        f"create table {name} (id long, p string, v string) using delta partitioned by (p) tblproperties ({properties})"
    )
    delta_spark.sql(create, *(statement.format(t=name) for statement in _STATEMENTS))
    ranges = [(0, None), (1, 3), (4, 6), (9, 50)]
    assert all(check_range(delta_spark, location, start, end) for start, end in ranges)
    assert not check_range(delta_spark, location, 30, None)
    assert not check_range(delta_spark, location, 3, 2)
    delta_spark.sql(f"alter table {name} set tblproperties ('delta.enableChangeDataFeed'='false')")
    assert not check_range(delta_spark, location, 8, None)
    assert check_range(delta_spark, location, 8, 9)
    times = read_changes_arrow(
        open_changes(open_path_table(Stores(), str(location)), ChangeRange(starting_version=2, ending_version=3))
    )
    assert all(isinstance(time, datetime) for time in times["_commit_timestamp"].to_pylist())


@pytest.mark.exhaustive
@pytest.mark.requirements("CDF-6", "COLMAP-15")
def test_a_range_with_a_renamed_column_is_mapped_where_delta_spark_refuses_it(
    delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    location = tmp_path / "t"
    name = f"delta.`{location}`"
    create = (
        f"create table {name} (id long, p string, v string) using delta partitioned by (p) tblproperties ({_MAPPED})"
    )
    first, second = (_STATEMENTS[number].format(t=name) for number in (0, 1))
    third = f"update {name} set renamed = 'y' where id = 2"
    delta_spark.sql(create, first, second, f"alter table {name} rename column v to renamed", third)
    assert all(check_range(delta_spark, location, start, end) for start, end in ((0, 2), (3, None)))
    for start in (0, 2):
        with pytest.raises(RuntimeError, match="INCOMPATIBLE"):
            their_changes(delta_spark, location, start, None)
        found = read_changes_arrow(
            open_changes(open_path_table(Stores(), str(location)), ChangeRange(starting_version=start))
        )
        assert "renamed" in found.schema.names and "v" not in found.schema.names
