"""Add and drop CHECK constraints."""

from dataclasses import replace

from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.transaction import Committed
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, InvalidDataError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.operations.tables.alter import AlterResult
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.constraints import Constraint, constraint_key, with_constraint
from cm_delta_dagster.protocol.features.expressions import checked_text, known_columns
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.features.table_properties import CONSTRAINT_PREFIX
from cm_delta_dagster.spark.library import Row, SparkSession
from cm_delta_dagster.spark.rules.constraints import check_boolean, is_true
from cm_delta_dagster.spark.session.cancellation import collected_rows
from cm_delta_dagster.spark.session.errors import spark_errors

_MAX_SHOWN_VALUE = 100


@names_table
def add_constraint(
    table: Table, *, spark: SparkSession, name: str, check: str, context: CommitProperties = NO_PROPERTIES
) -> AlterResult:
    """Add a CHECK constraint, after one Spark job has shown that every row of the table satisfies it.

    Args:
        name: case is ignored; it is stored in lower case.
        check: boolean SQL expression over the columns of a row. NULL is a violation.

    Raises:
        InvalidArgumentError: the name is taken, or the expression is not a deterministic boolean expression over the columns.
        InvalidDataError: a row does not satisfy the constraint; the message shows one.
        UnsupportedFeatureError: this client must not write to the table.
        CommitConflictError: a concurrent commit added rows or changed the metadata.
    """
    snapshot = table.snapshot()
    expression = checked_text(check)
    configuration = with_constraint(snapshot.metadata.configuration, name, expression)
    constraint = Constraint(name=name.lower(), expression=expression)
    check_boolean(spark, snapshot.schema, constraint)
    parameters = {"name": constraint.name, "expr": expression}
    transaction = table.start_transaction(snapshot, operation="ADD CONSTRAINT", parameters=parameters, context=context)
    transaction.read_whole_table()
    check_rows(table, snapshot, spark, constraint)
    transaction.set_metadata(replace(snapshot.metadata, configuration=configuration))
    protocol = with_features(snapshot.protocol, ["checkConstraints"])
    if protocol != snapshot.protocol:
        transaction.set_protocol(protocol)
    return altered(table, transaction.commit())


@names_table
def drop_constraint(
    table: Table, *, name: str, if_exists: bool = False, context: CommitProperties = NO_PROPERTIES
) -> AlterResult:
    """Drop a CHECK constraint; the table keeps the feature ``checkConstraints``.

    Args:
        name: case is ignored.
        if_exists: do nothing, and commit nothing, if there is no such constraint.

    Raises:
        InvalidArgumentError: the table has no such constraint, and not ``if_exists``.
    """
    snapshot = table.snapshot()
    configuration = dict(snapshot.metadata.configuration)
    key = constraint_key(configuration, name)
    if key is None and if_exists:
        return AlterResult(table_id=table.table_id, version=snapshot.version, snapshot=snapshot)
    if key is None:
        known = ", ".join(_names(snapshot.metadata)) or "none"
        raise InvalidArgumentError(
            f"Table {snapshot.identifier} has no CHECK constraint {name!r}; its constraints: {known}. Nothing was changed."
        )
    expression = configuration.pop(key)
    parameters = {"name": key.removeprefix(CONSTRAINT_PREFIX), "expr": expression, "existed": "true"}
    transaction = table.start_transaction(snapshot, operation="DROP CONSTRAINT", parameters=parameters, context=context)
    transaction.set_metadata(replace(snapshot.metadata, configuration=configuration))
    return altered(table, transaction.commit())


def altered(table: Table, committed: Committed) -> AlterResult:
    """The result of an alteration in one commit."""
    version = committed.version
    return AlterResult(table_id=table.table_id, version=version, versions=(version,), snapshot=committed.snapshot)


def check_rows(table: Table, snapshot: Snapshot, spark: SparkSession, constraint: Constraint) -> None:
    """Raises InvalidDataError if a row of the snapshot does not satisfy the constraint."""
    if not snapshot.num_files:
        return
    with spark_errors(f"checking the rows of {snapshot.identifier} against a new constraint"):
        rows = read(SnapshotScan(snapshot=snapshot, store=table.store), spark=spark)
        offending = collected_rows(rows.where(~is_true(constraint)).limit(1))
    if offending:
        names = tuple(dict.fromkeys(path[0] for path in known_columns(constraint.expression, snapshot.schema)))
        raise InvalidDataError(
            f"{snapshot.identifier} has a row for which {constraint.description} is not true, so the constraint was not added. "
            f"Correct or delete such rows first. The row has {_row_text(offending[0], names or snapshot.schema.names)}."
        )


def _row_text(row: Row, names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} = {_value_text(row[name])}" for name in names)


def _value_text(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _MAX_SHOWN_VALUE else text[:_MAX_SHOWN_VALUE] + " ..."


def _names(metadata: Metadata) -> list[str]:
    return sorted(
        key.removeprefix(CONSTRAINT_PREFIX) for key in metadata.configuration if key.startswith(CONSTRAINT_PREFIX)
    )
