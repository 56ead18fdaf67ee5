"""SHOW: the names of the catalog, and columns, properties and definition of its tables."""

import re
from collections.abc import Callable, Mapping

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.descriptions import column_type, comment_of
from cm_delta_dagster.operations.sql.names import resolve_one
from cm_delta_dagster.operations.sql.rewriting import quoted
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.operations.tables.create_like import settable_properties
from cm_delta_dagster.operations.tables.namespaces import schemas_of
from cm_delta_dagster.operations.tables.scopes import check_scope
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.generated_columns import generation_expression
from cm_delta_dagster.protocol.features.identity_columns import IdentityColumn, identity_columns
from cm_delta_dagster.protocol.predicates.sql_strings import literal_text
from cm_delta_dagster.protocol.schema.types import StructField


def show(client: DeltaClient, statement: Statement) -> Answer:
    """The answer of a SHOW statement.

    Raises:
        InvalidArgumentError: the statement is malformed, or shows something else; the message has the place. Or the catalog
            has no such schema.
        NamespaceNotFoundError: the schemas of a catalog that does not exist.
        TableNotFoundError: the catalog has no such table.
    """
    words = Words(statement, after=1)
    if words.peek() == "PARTITIONS":
        raise words.refusal(
            "SHOW PARTITIONS",
            "Query the values, SELECT DISTINCT and the partition columns FROM the table. The files of a table are listed with "
            "their partition values and sizes outside of SQL.",
        )
    for names, listing in _LISTINGS.items():
        if words.take(*names):
            return listing(client, words)
    raise words.fault("TABLES, SCHEMAS, CATALOGS, COLUMNS, TBLPROPERTIES or CREATE TABLE")


def _tables(client: DeltaClient, words: Words) -> Answer:
    scope, fits = _scope(words), _filter(words)
    tables = sorted([*client.registry.list_tables(scope), *client.registry.registered_paths(scope)], key=str)
    if scope and not tables:
        check_scope(client.registry, client.namespaces, scope)
    return Answer(
        columns={"namespace": "string", "tableName": "string", "isTemporary": "boolean"},
        rows=tuple((f"{table.catalog}.{table.schema}", table.table, False) for table in tables if fits(table.table)),
    )


def _schemas(client: DeltaClient, words: Words) -> Answer:
    catalog, fits = _scope(words), _filter(words)
    names = [schema.name for schema in schemas_of(client, catalog)]
    rows = tuple((name,) for name in names if fits(name.rpartition(".")[2]))
    return Answer(columns={"namespace": "string"}, rows=rows)


def _catalogs(client: DeltaClient, words: Words) -> Answer:
    fits = _filter(words)
    names = [catalog.name for catalog in client.namespaces.list_catalogs()]
    return Answer(columns={"catalog": "string"}, rows=tuple((name,) for name in names if fits(name)))


def _columns(client: DeltaClient, words: Words) -> Answer:
    snapshot = _table(client, words, "IN", "FROM")
    return Answer(columns={"col_name": "string"}, rows=tuple((name,) for name in snapshot.schema.names))


def _properties(client: DeltaClient, words: Words) -> Answer:
    name = words.name()
    key = words.literal()
    words.done()
    snapshot = resolve_one(client, name).snapshot()
    properties = sorted(snapshot.metadata.configuration.items())
    rows = tuple((known, value) for known, value in properties if key in (None, known))
    if key is not None and not rows:
        rows = ((key, f"Table {snapshot.identifier} does not have property: {key}"),)
    return Answer(columns={"key": "string", "value": "string"}, rows=rows)


def _definition(client: DeltaClient, words: Words) -> Answer:
    snapshot = _table(client, words, "TABLE")
    return Answer(columns={"createtab_stmt": "string"}, rows=((create_statement(snapshot),),))


_LISTINGS: Mapping[tuple[str, ...], Callable[[DeltaClient, Words], Answer]] = {
    ("TABLES",): _tables,
    ("SCHEMAS", "DATABASES", "NAMESPACES"): _schemas,
    ("CATALOGS",): _catalogs,
    ("COLUMNS",): _columns,
    ("TBLPROPERTIES",): _properties,
    ("CREATE",): _definition,
}
"""What is shown, by the word after SHOW."""


def create_statement(snapshot: Snapshot) -> str:
    """A CREATE TABLE statement that creates a table with the same columns, layout, comment and properties.

    Constraints, and properties that only the client sets, are left out.
    """
    identities = identity_columns(snapshot.schema)
    lines = [f"  {quoted(item.name)} {_type_text(item)}{_options(item, identities)}" for item in snapshot.schema.fields]
    clauses = [f"CREATE TABLE {snapshot.identifier} (", ",\n".join(lines) + ")", "USING delta"]
    if snapshot.partition_columns:
        clauses.append(f"PARTITIONED BY ({', '.join(map(quoted, snapshot.partition_columns))})")
    if snapshot.clustering_columns:
        columns = (".".join(map(quoted, path)) for path in snapshot.clustering_columns)
        clauses.append(f"CLUSTER BY ({', '.join(columns)})")
    if snapshot.metadata.description:
        clauses.append(f"COMMENT {literal_text(snapshot.metadata.description)}")
    properties = settable_properties(snapshot)
    if properties:
        pairs = ",\n".join(f"  {literal_text(key)} = {literal_text(value)}" for key, value in properties.items())
        clauses.append(f"TBLPROPERTIES (\n{pairs})")
    return "\n".join(clauses)


def _options(item: StructField, identities: Mapping[str, IdentityColumn]) -> str:
    """What follows the type of a column."""
    parts = [] if item.nullable else ["NOT NULL"]
    default, generated, identity = default_of(item), generation_expression(item), identities.get(item.name)
    if default is not None:
        parts.append(f"DEFAULT {default}")
    if generated is not None:
        parts.append(f"GENERATED ALWAYS AS ({generated})")
    if identity is not None:
        rule = identity.identity
        always = "ALWAYS" if rule.always else "BY DEFAULT"
        parts.append(f"GENERATED {always} AS IDENTITY (START WITH {rule.start} INCREMENT BY {rule.step})")
    comment = comment_of(item)
    if comment is not None:
        parts.append(f"COMMENT {literal_text(comment)}")
    return "".join(f" {part}" for part in parts)


def _type_text(item: StructField) -> str:
    """The type in upper case, unless it has names of fields."""
    text = column_type(item)
    return text if "<" in text else text.upper()


def _table(client: DeltaClient, words: Words, *before: str) -> Snapshot:
    if not words.take(*before):
        raise words.fault(f"{' or '.join(before)} and the name of a table")
    name = words.name()
    words.done()
    return resolve_one(client, name).snapshot()


def _scope(words: Words) -> str:
    """The catalog or schema after IN; "" for all."""
    return ".".join(words.name()) if words.take("IN", "FROM") else ""


def _filter(words: Words) -> Callable[[str], bool]:
    """The condition of ``LIKE 'pattern'`` or ``'pattern'``: ``*`` stands for any characters, ``|`` separates alternatives."""
    has_like = words.take("LIKE")
    pattern = words.literal()
    if pattern is None and has_like:
        raise words.fault("a pattern in quotes")
    words.done()
    if pattern is None:
        return lambda name: True
    parts = [".*".join(map(re.escape, part.strip().split("*"))) for part in pattern.split("|")]
    compiled = re.compile("|".join(parts), re.IGNORECASE)
    return lambda name: compiled.fullmatch(name) is not None
