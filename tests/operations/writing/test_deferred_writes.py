"""The targets of the writes of one transaction over several tables, without rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.operations.writing.deferred_writes import DeferredWrites
from tests.support.actions import add_file
from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


@pytest.mark.requirements("CM-C1")
def test_a_transaction_of_several_is_not_committed_alone(lake: Lake) -> None:
    table = lake.new_table()
    writes = DeferredWrites(lake.client)
    target = writes.table(table.identifier)
    transaction = target.start_transaction(target.snapshot(), operation="WRITE")
    transaction.add_files([add_file("a.parquet", partition_values={"day": "2026-01-01"})])
    with pytest.raises(IllegalCommitError, match="part of one over several tables"):
        transaction.commit()
    assert writes.commit() == {}
    assert table.snapshot().version == 0
