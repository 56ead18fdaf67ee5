"""Change columns together with their defaults, and the high-water marks of identity columns."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.operations.tables.alter import AlterResult, alter_table
from cm_delta_dagster.operations.tables.alterations import Alteration, ChangeColumn, ChangeColumns, ColumnDefault
from cm_delta_dagster.operations.tables.constraints import altered
from cm_delta_dagster.operations.tables.expression_types import check_expressions
from cm_delta_dagster.protocol.features.default_columns import with_default
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.identity_columns import identity_columns, with_high_water_marks
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.schema.column_paths import ColumnName, column_path
from cm_delta_dagster.protocol.schema.types import StructType, schema_to_json
from cm_delta_dagster.remedies import EnableTableFeature
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import F, SparkSession
from cm_delta_dagster.spark.session.cancellation import collected_rows
from cm_delta_dagster.spark.session.errors import spark_errors

_FEATURE = "allowColumnDefaults"


@names_table
def change_columns(
    table: Table,
    changes: Sequence[ChangeColumn],
    *,
    spark: Callable[[], SparkSession],
    context: CommitProperties = NO_PROPERTIES,
) -> AlterResult:
    """Change one column or several in one commit, in the given order. Commits nothing if the table is already as wanted.

    Args:
        spark: returns the session that checks new defaults; called only if there are some.

    Raises:
        InvalidArgumentError: a change cannot be made, or a column is changed twice. A default needs a column that is neither
            generated nor an identity column, an expression without columns whose type can be stored in it, and the feature
            ``allowColumnDefaults``, without which writers that do not know defaults may write to the table.
        InvalidDataError: the value of a default cannot be stored in its column.
        CommitConflictError: a concurrent commit changed the metadata.
    """
    snapshot = table.snapshot()
    for change in changes:
        if change.default is not None and change.default.text is not None:
            _check_default(snapshot, change, change.default.text, spark())
    alteration: Alteration = changes[0] if len(changes) == 1 else ChangeColumns(tuple(changes))
    return alter_table(table, alteration, context=context)


def set_default(
    table: Table,
    *,
    spark: SparkSession,
    column: ColumnName,
    default: str | None,
    context: CommitProperties = NO_PROPERTIES,
) -> AlterResult:
    """Set the default of a column for later writes; None drops it. Raises as :func:`change_columns`."""
    change = ChangeColumn(column=column, default=ColumnDefault(default))
    return change_columns(table, (change,), spark=lambda: spark, context=context)


def _check_default(snapshot: Snapshot, change: ChangeColumn, text: str, spark: SparkSession) -> None:
    """Raises InvalidArgumentError or InvalidDataError as :func:`change_columns`."""
    schema = with_default(snapshot.schema, change.column, text)
    item = schema.field(column_path(change.column)[0])
    assert item is not None
    if item.name in generated_columns(schema) or item.name in identity_columns(schema):
        raise InvalidArgumentError(
            f"Column {item.name!r} of {snapshot.identifier} is generated or an identity column and cannot have a default. Nothing "
            "was changed."
        )
    _check_feature(snapshot, item.name)
    check_expressions(StructType((item,)), lambda: spark)


def _check_feature(snapshot: Snapshot, column: str) -> None:
    if not supports(snapshot.protocol, _FEATURE):
        raise InvalidArgumentError(
            f"Column {column!r} of {snapshot.identifier} cannot get a default, because the table does not have the feature "
            f"{_FEATURE}; writers that do not know it would store NULL. Nothing was changed. As in delta-spark, the "
            "feature is not enabled by a default."
        ).with_remedy(EnableTableFeature(feature=_FEATURE))


@names_table
def sync_identity(
    table: Table, *, spark: SparkSession, column: str, context: CommitProperties = NO_PROPERTIES
) -> AlterResult:
    """Move the high-water mark of an identity column to the furthest value in the column, so that later values do not repeat it.

    Raises:
        InvalidArgumentError: there is no such identity column.
        CommitConflictError: a concurrent commit added rows or changed the metadata.
    """
    snapshot = table.snapshot()
    column_identity = {name.lower(): item for name, item in identity_columns(snapshot.schema).items()}.get(
        column.lower()
    )
    if column_identity is None:
        raise InvalidArgumentError(
            f"{snapshot.identifier} has no identity column {column!r}; its identity columns: "
            f"{', '.join(identity_columns(snapshot.schema)) or 'none'}. Nothing was changed."
        )
    furthest = F.max if column_identity.identity.step > 0 else F.min
    with spark_errors(f"reading the identity column {column!r}"):
        rows = read(SnapshotScan(snapshot=snapshot, store=table.store, columns=[column_identity.name]), spark=spark)
        (row,) = collected_rows(rows.agg(furthest(quoted(column_identity.name)).alias("value")))
    high_water_mark = None if row["value"] is None else column_identity.further(int(row["value"]))
    if high_water_mark is None:
        return AlterResult(table_id=table.table_id, version=snapshot.version, snapshot=snapshot)
    schema = with_high_water_marks(snapshot.schema, {column_identity.name: high_water_mark})
    transaction = table.start_transaction(
        snapshot, operation="SYNC IDENTITY", parameters={"column": column_identity.name}, context=context
    )
    transaction.read_whole_table()
    transaction.set_metadata(replace(snapshot.metadata, schema_string=schema_to_json(schema)))
    return altered(table, transaction.commit())
