"""DROP TABLE removes the name and changes nothing else."""

import pytest

from cm_delta_dagster.errors import CmDeltaError, TableNotFoundError
from cm_delta_dagster.operations.tables.drop import drop_table
from tests.support.lake import Lake


@pytest.mark.requirements("CM-D6")
def test_a_dropped_table_is_not_found_and_its_files_stay(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    lake.client.wait_for_background()
    before = lake.files(table)
    drop_table(lake.client, identifier="main.test.t")
    with pytest.raises(TableNotFoundError):
        lake.client.table("main.test.t")
    assert lake.files(table) == before


@pytest.mark.requirements("CM-D8")
def test_a_writer_with_a_handle_to_a_dropped_table_gets_an_error(lake: Lake) -> None:
    table = lake.new_table()
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    drop_table(lake.client, identifier="main.test.t")
    with pytest.raises(CmDeltaError):
        transaction.commit()


def test_dropping_an_unknown_name_is_an_error(lake: Lake) -> None:
    with pytest.raises(TableNotFoundError):
        drop_table(lake.client, identifier="main.test.unknown")
