"""Bring a table in line with what its owner declares: properties, constraints, defaults, clustering columns.

:func:`declared_schema` gives the columns of a new table. :func:`apply_declaration` changes a table that exists, in one commit,
and commits nothing if the table is already as declared. What is declared is set; what is not declared stays.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.tables.alter import (
    AlterResult,
    alter_table,
    check_beforehand,
    check_files_permit,
    files_of,
    needs_row_ids,
)
from cm_delta_dagster.operations.tables.alterations import SetProperties
from cm_delta_dagster.operations.tables.clustering import check_statistics
from cm_delta_dagster.operations.tables.constraints import check_rows
from cm_delta_dagster.operations.tables.expression_types import check_expressions
from cm_delta_dagster.operations.writing.column_names import unique_name
from cm_delta_dagster.operations.writing.deferred_writes import DeferredTable, NewDefinition
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.clustering import FEATURE as CLUSTERING
from cm_delta_dagster.protocol.features.clustering import (
    clustering_domain,
    physical_path,
    stored_clustering_columns,
)
from cm_delta_dagster.protocol.features.constraints import Constraint, constraint_key, with_constraint
from cm_delta_dagster.protocol.features.default_columns import has_defaults, with_default
from cm_delta_dagster.protocol.features.enablement import TableDefinition, changed_definition
from cm_delta_dagster.protocol.features.expressions import checked_text
from cm_delta_dagster.protocol.features.generated_columns import generation_expression
from cm_delta_dagster.protocol.features.identity_columns import Identity, identity_column, identity_metadata
from cm_delta_dagster.protocol.features.property_names import canonical_properties
from cm_delta_dagster.protocol.features.protocol_evolution import requested_features
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.table_properties import (
    CONSTRAINT_PREFIX,
    check_user_properties,
)
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.evolution import GENERATION_EXPRESSION
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from cm_delta_dagster.protocol.statistics.layout_columns import check_clustering_columns
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.rules.constraints import check_boolean, expression_type

OPERATION = "ALTER TABLE"
_MAX_CONFLICTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDeclaration:
    """What the owner of a table declares besides its columns.

    Attributes:
        clustering_columns: None if the clustering is not declared; empty for none.
        constraints: SQL conditions by the name of the CHECK constraint; None to drop it.
        defaults: SQL expressions by column; None to drop the default.
        generated: generation expressions by column. They are set when the table is created and cannot change.
        identity: identity columns. They are set when the table is created and cannot change.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    clustering_columns: tuple[str, ...] | None = None
    constraints: Mapping[str, str | None] = field(default_factory=dict)
    defaults: Mapping[str, str | None] = field(default_factory=dict)
    generated: Mapping[str, str] = field(default_factory=dict)
    identity: Mapping[str, Identity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", canonical_properties(self.properties))

    @property
    def fills_columns(self) -> bool:
        """Whether the table computes values of columns."""
        return bool(self.defaults or self.generated or self.identity)

    def check(self) -> None:
        """Check what can be checked without the table.

        Raises:
            InvalidArgumentError: a property or an expression is not valid, or a column is declared in two ways.
        """
        check_user_properties(self.properties)
        requested_features(self.properties)
        for key in self.properties:
            if key.startswith(CONSTRAINT_PREFIX):
                raise InvalidArgumentError(
                    f"The property {key!r} is a constraint. Declare it as a constraint with a name and a condition."
                )
        configuration: dict[str, str] = {}
        for name, condition in self.constraints.items():
            configuration = with_constraint(
                configuration, name, checked_text("true" if condition is None else condition)
            )
        for identity in self.identity.values():
            identity_metadata(identity)
        for text in (*self.generated.values(), *(text for text in self.defaults.values() if text is not None)):
            checked_text(text)
        seen: set[str] = set()
        for column in (*self.defaults, *self.generated, *self.identity):
            if column.lower() in seen:
                raise InvalidArgumentError(
                    f"Column {column!r} is declared in two ways; it has a default, is generated, or is an identity column."
                )
            seen.add(column.lower())

    def creation_properties(self) -> dict[str, str]:
        """Properties of a new table, with the constraints."""
        declared = {name: text for name, text in self.constraints.items() if text is not None}
        return {
            **self.properties,
            **{CONSTRAINT_PREFIX + name.lower(): checked_text(text) for name, text in declared.items()},
        }


def declared_schema(
    schema: StructType, declaration: TableDeclaration, *, spark: Callable[[], SparkSession]
) -> StructType:
    """The columns of a new table: ``schema``, the declared columns that it lacks, and what is declared of them.

    Args:
        schema: columns of the first rows. Generated columns that it lacks get the type of their expression, identity columns
            that it lacks the type bigint, both after the other columns.
        spark: returns the session that analyses expressions; called only if there are some.

    Raises:
        InvalidArgumentError: an expression is not valid, or a column with a default is missing.
    """
    declared = schema
    for name, expression in declaration.generated.items():
        text = checked_text(expression)
        item = schema.field(name)
        if item is None:
            kind = expression_type(spark(), schema, text, f"the generated column {name!r} ({text})")
            item = StructField(name, kind, True, {})
        declared = _with_field(declared, replace(item, metadata={**item.metadata, GENERATION_EXPRESSION: text}))
    for name, identity in declaration.identity.items():
        item = declared.field(name) or StructField(name, LONG, True, {})
        declared = _with_field(declared, replace(item, metadata={**item.metadata, **identity_metadata(identity)}))
    for name, default in declaration.defaults.items():
        declared = with_default(declared, name, default)
    if has_defaults(declared) or declaration.generated:
        check_expressions(declared, spark)
    for name, condition in declaration.constraints.items():
        if condition is not None:
            check_boolean(spark(), declared, Constraint(name=name.lower(), expression=checked_text(condition)))
    return declared


def _with_field(schema: StructType, item: StructField) -> StructType:
    if schema.field(item.name) is None:
        return StructType((*schema.fields, item))
    return StructType(tuple(item if field.name == item.name else field for field in schema.fields))


@names_table
def apply_declaration(
    table: Table,
    declaration: TableDeclaration,
    *,
    spark: Callable[[], SparkSession],
    context: CommitProperties = NO_PROPERTIES,
) -> AlterResult:
    """Bring the table in line with ``declaration``, in one commit; commit nothing if it already is.

    Enabling row tracking on a table with files takes further commits. A new or changed constraint is checked against all rows.

    Args:
        spark: returns the session that analyses expressions and checks rows; called only if some are new.

    Raises:
        InvalidArgumentError: the table cannot be changed in this way; nothing was changed.
        InvalidDataError: a row does not satisfy a new constraint; nothing was changed.
        UnsupportedFeatureError: this client must not write to the table, or lacks a feature that is needed.
        CommitConflictError: concurrent commits changed rows or metadata again and again.
    """
    for attempt in range(_MAX_CONFLICTS):
        try:
            return _apply(table, declaration, spark, context)
        except CommitConflictError:
            # Nothing was committed. Another writer changed the table; it may have made the same change.
            if attempt == _MAX_CONFLICTS - 1:
                raise
    raise AssertionError("unreachable")


def declare_with_write(
    table: DeferredTable, declaration: TableDeclaration, *, spark: Callable[[], SparkSession]
) -> None:
    """Have the commit of the write to ``table`` bring it in line with ``declaration``, which no reader sees before.

    Clustering columns, and row tracking of a table with files, need commits of their own: :func:`apply_declaration` makes them.

    Raises as :func:`apply_declaration`.
    """
    snapshot = table.snapshot()
    plan = _plan(snapshot, replace(declaration, clustering_columns=None))
    if plan.is_empty:
        return
    _check(table.table, snapshot, plan, spark)
    for constraint in plan.constraints:
        check_rows(table.table, snapshot, spark(), constraint)
    table.define(
        NewDefinition(
            snapshot=snapshot,
            protocol=plan.after.protocol,
            metadata=plan.after.metadata,
            depends_on_rows=plan.depends_on_rows,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeclaredChange:
    """The change of one table.

    Attributes:
        after: the table afterwards, without row ids.
        constraints: new constraints, which all rows must satisfy.
        clustering: new clustering columns, as physical paths; None if they stay.
        tracks_rows: whether row tracking is enabled afterwards, with ids for the rows that exist.
        depends_on_rows: rows that another writer adds meanwhile could make the change wrong.
    """

    before: TableDefinition
    after: TableDefinition
    constraints: tuple[Constraint, ...]
    clustering: tuple[ColumnPath, ...] | None
    tracks_rows: bool
    depends_on_rows: bool

    @property
    def is_empty(self) -> bool:
        return self.after == self.before and self.clustering is None


def _apply(
    table: Table, declaration: TableDeclaration, spark: Callable[[], SparkSession], context: CommitProperties
) -> AlterResult:
    snapshot = table.snapshot()
    plan = _plan(snapshot, declaration)
    versions: tuple[int, ...] = ()
    if not plan.is_empty:
        _check(table, snapshot, plan, spark)
        transaction = table.start_transaction(
            snapshot, operation=OPERATION, parameters=_parameters(plan, declaration), context=context
        )
        if plan.depends_on_rows:
            transaction.read_whole_table()
        if plan.after.metadata != plan.before.metadata:
            transaction.set_metadata(plan.after.metadata)
        if plan.after.protocol != plan.before.protocol:
            transaction.set_protocol(plan.after.protocol)
        if plan.clustering is not None:
            transaction.set_clustering(clustering_domain(plan.clustering))
        for constraint in plan.constraints:
            check_rows(table, snapshot, spark(), constraint)
        committed = transaction.commit()
        versions, snapshot = (committed.version,), committed.snapshot
    if plan.tracks_rows:
        tracked = alter_table(table, SetProperties(properties={row_tracking.ENABLED: "true"}), context=context)
        versions, snapshot = (*versions, *tracked.versions), tracked.snapshot
    return AlterResult(
        table_id=table.table_id,
        version=versions[-1] if versions else snapshot.version,
        versions=versions,
        snapshot=snapshot,
    )


def _plan(snapshot: Snapshot, declaration: TableDeclaration) -> _DeclaredChange:
    """What is to change. Raises InvalidArgumentError if the table cannot be changed in this way."""
    check_writable(snapshot.protocol, snapshot.identifier)
    _check_computed(snapshot, declaration)
    before = TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
    properties = SetProperties(properties=declaration.properties)
    tracks_rows = needs_row_ids(properties, snapshot)
    if tracks_rows:
        check_beforehand(snapshot, properties)
        others = {key: value for key, value in declaration.properties.items() if key != row_tracking.ENABLED}
        properties = SetProperties(properties=others)
    change = properties.apply(before, files_of(snapshot))
    definition = change.definition
    schema = definition.schema
    for column, default in declaration.defaults.items():
        schema = with_default(schema, column, default)
    if schema != definition.schema:
        definition = definition.with_schema(schema)
    definition, constraints = _with_constraints(definition, declaration.constraints)
    features = change.features
    features |= {"allowColumnDefaults"} if has_defaults(schema) else frozenset()
    clustering = _clustering(snapshot, declaration.clustering_columns)
    features |= {CLUSTERING} if clustering is not None else frozenset()
    after = changed_definition(before, definition, new_name=unique_name, features=features)
    check_writable(after.protocol, snapshot.identifier)
    check_files_permit(snapshot, after)
    return _DeclaredChange(
        before=before,
        after=after,
        constraints=constraints,
        clustering=clustering,
        tracks_rows=tracks_rows,
        depends_on_rows=change.depends_on_rows or bool(constraints) or after.schema != before.schema,
    )


def _check_computed(snapshot: Snapshot, declaration: TableDeclaration) -> None:
    """Refuse generated and identity columns that the table does not have as declared."""
    for name, text in declaration.generated.items():
        item = snapshot.schema.field(name)
        present = None if item is None else generation_expression(item)
        if present is None or present != checked_text(text):
            raise _not_possible(snapshot, f"the generated column {name!r} ({text})", present)
    for name, identity in declaration.identity.items():
        item = snapshot.schema.field(name)
        column = None if item is None else identity_column(item)
        if column is None or column.identity != identity:
            raise _not_possible(
                snapshot, f"the identity column {name!r} ({identity})", None if column is None else str(column.identity)
            )


def _not_possible(snapshot: Snapshot, what: str, present: str | None) -> InvalidArgumentError:
    has = f"has {present} instead" if present else "has no such column"
    return InvalidArgumentError(
        f"{snapshot.identifier} {has} for {what}. Generated and identity columns are defined when a table is created and cannot "
        "change. Nothing was changed. Correct the declaration, or write to a new table."
    )


def _with_constraints(
    definition: TableDefinition, constraints: Mapping[str, str | None]
) -> tuple[TableDefinition, tuple[Constraint, ...]]:
    """The definition with the declared constraints, and those that are new or changed."""
    configuration, new = dict(definition.metadata.configuration), []
    for name, condition in constraints.items():
        key = constraint_key(configuration, name)
        text = None if condition is None else checked_text(condition)
        if key is not None and configuration[key] == text:
            continue
        if key is not None:
            del configuration[key]
        if text is not None:
            configuration = with_constraint(configuration, name, text)
            new.append(Constraint(name=name.lower(), expression=text))
    return replace(definition, metadata=replace(definition.metadata, configuration=configuration)), tuple(new)


def _clustering(snapshot: Snapshot, columns: tuple[str, ...] | None) -> tuple[ColumnPath, ...] | None:
    """The new clustering columns as physical paths; None if they stay."""
    if columns is None:
        return None
    present = stored_clustering_columns(snapshot.domains)
    if not columns and not present:
        return None
    paths = check_clustering_columns(snapshot.layout, columns)
    stored = tuple(physical_path(path, snapshot.schema, snapshot.column_mapping) for path in paths)
    if stored == present:
        return None
    for path, names in zip(paths, stored, strict=True):
        check_statistics(snapshot, path, names)
    return stored


def _check(table: Table, snapshot: Snapshot, plan: _DeclaredChange, spark: Callable[[], SparkSession]) -> None:
    """Have Spark analyse new expressions. Raises InvalidArgumentError."""
    for constraint in plan.constraints:
        check_boolean(spark(), plan.after.schema, constraint)
    known = {item.name: item for item in plan.before.schema.fields}
    changed = tuple(item for item in plan.after.schema.fields if known.get(item.name) != item)
    for item in changed:
        if has_defaults(StructType((item,))):
            if generation_expression(item) is not None or identity_column(item) is not None:
                raise InvalidArgumentError(
                    f"Column {item.name!r} of {snapshot.identifier} is generated or an identity column and cannot have a default. "
                    "Nothing was changed."
                )
            check_expressions(StructType((item,)), spark)


def _parameters(plan: _DeclaredChange, declaration: TableDeclaration) -> dict[str, str]:
    before, after = plan.before.metadata.configuration, plan.after.metadata.configuration
    changed = {key: after.get(key) for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)}
    parameters = {"properties": json.dumps(changed, separators=(",", ":"), ensure_ascii=False)}
    if plan.after.schema != plan.before.schema:
        parameters["defaults"] = json.dumps(dict(declaration.defaults), separators=(",", ":"), ensure_ascii=False)
    if plan.clustering is not None:
        parameters["clusterBy"] = json.dumps(list(declaration.clustering_columns or ()))
    return parameters
