"""The rule in Python on the cases that it shares with the file index in Java."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest

from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask
from tests.support.skipping_cases import SKIPPING_TABLES, SkippingTable


def kept_files(table: SkippingTable, condition: str) -> Sequence[int]:
    mask = keep_mask(
        adds_to_table(table.adds()),
        parse_predicate(condition, table.schema, zone=ZoneInfo(table.zone)),
        schema=table.schema,
        partition_columns=table.partition_columns,
        mapping=table.mapping,
        zone=ZoneInfo(table.zone),
    )
    assert mask.null_count == 0
    return [number for number, keeps in enumerate(mask.to_pylist()) if keeps]


@pytest.mark.requirements("SKIP-1", "SKIP-2", "STATS-3", "COLMAP-9", "DV-22", "PART-1")
@pytest.mark.parametrize("name", SKIPPING_TABLES)
def test_the_rule_keeps_the_files_of_the_shared_cases(name: str) -> None:
    table = SKIPPING_TABLES[name]
    answers = {condition: kept_files(table, condition) for condition in table.conditions}
    assert answers == {condition: sorted((*kept.keeps, *kept.python)) for condition, kept in table.conditions.items()}
