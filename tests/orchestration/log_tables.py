"""Tables whose commits are made by the client alone: no Spark, so that tests of sensors and schedules take no time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.orchestration import CatalogResource
from cm_delta_dagster.protocol.actions.actions import AddFile, SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.support.creation import create_table

SCHEMA = StructType((StructField("id", PrimitiveType("long")),))


def resource_at(directory: Path) -> CatalogResource:
    directory.mkdir(exist_ok=True)
    return CatalogResource(url=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}/warehouse")


def make_table(
    client: DeltaClient, name: str, *, tags: Mapping[str, str] | None = None, by: Mapping[str, str] | None = None
) -> Table:
    """A table with the column ``id`` and the partition columns ``by``, name to type."""
    parts = tuple(StructField(column, PrimitiveType(kind)) for column, kind in (by or {}).items())
    return create_table(
        client,
        identifier=name,
        schema=StructType((*SCHEMA.fields, *parts)),
        partition_columns=tuple(by or {}),
        context=CommitProperties(tags=dict(tags or {})),
    )


def commit(
    table: Table,
    *,
    data_change: bool = True,
    size: int = 10,
    tags: Mapping[str, str] | None = None,
    replace: bool = False,
    partitions: Sequence[Mapping[str, str | None]] = ({},),
    txn: SetTransaction | None = None,
) -> int:
    """One commit that adds files that are never read, one for each of ``partitions``, and removes the others if asked;
    the version."""
    snapshot = table.snapshot()
    transaction = table.start_transaction(
        snapshot, operation="WRITE" if data_change else "OPTIMIZE", context=CommitProperties(tags=dict(tags or {}))
    )
    if txn is not None:
        transaction.set_transaction(txn)
    if replace:
        transaction.remove_files(removes_of(snapshot.files, data_change=data_change))
    files = [
        AddFile(
            path=f"part-{snapshot.version + 1}-{number}.parquet",
            partition_values=dict(values),
            size=size,
            modification_time=0,
            data_change=data_change,
            stats='{"numRecords":1}',
        )
        for number, values in enumerate(partitions)
    ]
    for file in files:  # Recovery takes in no commit of which no file is there.
        table.store.write(f"{table.location}/{file.path}", b"PAR1")
    transaction.add_files(files)
    return transaction.commit().version


def report(instance: dg.DagsterInstance, result: Any) -> None:
    """What the daemon does with the events of a tick."""
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
