"""The statements of SQL for remedies. A remedy that is absent here has none, and is said in the words of the process."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cm_delta_dagster import remedies
from cm_delta_dagster.advice import EntryPoint, RemedyWords
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.sql.rewriting import quoted
from cm_delta_dagster.remedies import TableRemedy

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = "catalog.schema.table"
"""For a table whose name is not known."""


def _name(text: str) -> str:
    return text if _WORD.fullmatch(text) else quoted(text)


def _table(remedy: TableRemedy) -> str:
    return _PLACEHOLDER if remedy.table is None else ".".join(map(_name, remedy.table.split(".")))


def _alter(remedy: TableRemedy, change: str) -> str:
    return f"ALTER TABLE {_table(remedy)} {change}"


def _set_property(remedy: TableRemedy, key: str, value: str) -> str:
    return _alter(remedy, f"SET TBLPROPERTIES ({_literal(key)} = {_literal(value)})")


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _drop_or_rename(remedy: remedies.DropOrRenameColumn) -> tuple[str, ...]:
    column = _name(remedy.column)
    return _alter(remedy, f"DROP COLUMN {column}"), _alter(remedy, f"RENAME COLUMN {column} TO new_name")


def _run_maintenance(remedy: remedies.RunMaintenance) -> tuple[str, ...]:
    verb = {"vacuum": "VACUUM", "optimize": "OPTIMIZE"}.get(remedy.task)
    return () if verb is None else (f"{verb} {_table(remedy)}",)


def _rewrite(remedy: remedies.RewriteFiles) -> tuple[str, ...]:
    if remedy.column is None:
        return (f"REORG TABLE {_table(remedy)} APPLY (PURGE)",)
    return (f"OPTIMIZE {_table(remedy)} ZORDER BY ({_name(remedy.column)})",)


WORDS: RemedyWords = {
    remedies.RenameTable: lambda remedy: (_alter(remedy, "RENAME TO catalog.schema.new_name"),),
    remedies.SetClusteringColumns: lambda remedy: (_alter(remedy, "CLUSTER BY (columns)"),),
    remedies.RemoveClusteringColumns: lambda remedy: (_alter(remedy, "CLUSTER BY NONE"),),
    remedies.EnableTableFeature: lambda remedy: (
        _set_property(remedy, f"delta.feature.{remedy.feature}", "supported"),
    ),
    remedies.DropTableFeature: lambda remedy: (_alter(remedy, f"DROP FEATURE {_name(remedy.feature)}"),),
    remedies.SetTableProperty: lambda remedy: (_set_property(remedy, remedy.key, remedy.value),),
    remedies.DropOrRenameColumn: _drop_or_rename,
    remedies.RunMaintenance: _run_maintenance,
    remedies.AddConstraint: lambda remedy: (_alter(remedy, "ADD CONSTRAINT name CHECK (condition)"),),
    remedies.ReplaceByOwnRows: lambda remedy: (f"REPLACE TABLE {_table(remedy)} AS SELECT * FROM {_table(remedy)}",),
    remedies.RewriteFiles: _rewrite,
}
"""The statements for each kind of remedy."""


@contextmanager
def errors_in_sql() -> Iterator[None]:
    """Give errors that leave the block the words of SQL."""
    try:
        yield
    except CmDeltaError as error:
        error.entry_point = EntryPoint.SQL
        raise
