"""The adapter of ``check_dml.py`` whose acts are statements of ``lake.sql``, as far as SQL has them."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.golden import dml_adapter
from tests.golden.dml_adapter import SCHEMA, classify

__all__ = ["classify", "open"]


def open(root: str) -> "SqlSession":
    return SqlSession(dml_adapter.open(root).lake)


def _checker() -> Any:
    return sys.modules["__main__"]


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _properties(properties: Mapping[str, str]) -> str:
    return "(" + ", ".join(f"{_literal(key)} = {_literal(value)}" for key, value in properties.items()) + ")"


def _path(column: str | Sequence[str]) -> str:
    """A column as the sequences write it: text with dots, or the list of the names."""
    if isinstance(column, str):
        return ".".join(_quoted(part) for part in column.split(".")) if "`" not in column else column
    return ".".join(_quoted(part) for part in column)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _list(columns: Sequence[str]) -> str:
    return ", ".join(map(_path, columns))


class SqlSession(dml_adapter.Session):
    """Appends and overwrites of frames stay as they are: their rules differ from those of INSERT."""

    def _run(self, name: str, text: str) -> None:
        self.lake.sql(text.replace("{t}", f"{SCHEMA}.{name}"))

    def _update(self, name: str, act: Mapping[str, Any]) -> None:
        values = ", ".join(f"{column} = {value}" for column, value in act["set"].items())
        where = f" WHERE {act['where']}" if act.get("where") else ""
        self._run(name, f"UPDATE {{t}} SET {values}{where}")

    def _delete(self, name: str, act: Mapping[str, Any]) -> None:
        self._run(name, "DELETE FROM {t}" + (f" WHERE {act['where']}" if act.get("where") else ""))

    def _merge(self, name: str, act: Mapping[str, Any]) -> None:
        evolves = "WITH SCHEMA EVOLUTION " if act.get("schema_evolution") else ""
        clauses = " ".join(map(_clause, act["clauses"]))
        source = _checker().source_sql(act)
        self._run(name, f"MERGE {evolves}INTO {{t}} AS t USING ({source}) AS s ON {act['on']} {clauses}")

    def _create(self, name: str, act: Mapping[str, Any]) -> None:
        if "columns" not in act or act.get("replace"):
            super()._create(name, act)
            return
        stated = dict(act.get("properties") or {})
        clauses = [f"TBLPROPERTIES {_properties({**dml_adapter._BARE, **stated})}"]
        if act.get("partition_by"):
            clauses.append(f"PARTITIONED BY ({_list(act['partition_by'])})")
        if act.get("cluster_by"):
            clauses.append(f"CLUSTER BY ({_list(act['cluster_by'])})")
        if act.get("comment"):
            clauses.append(f"COMMENT {_literal(act['comment'])}")
        columns = ", ".join(map(_definition, act["columns"]))
        self._run(name, f"CREATE TABLE {{t}} ({columns}) USING DELTA {' '.join(clauses)}")
        unwanted = [key for key in dml_adapter._DEFAULTS if key not in stated]
        self._run(name, f"ALTER TABLE {{t}} UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(_literal, unwanted))})")

    def _alter(self, name: str, act: Mapping[str, Any]) -> None:
        write = _ALTERATIONS.get(act["do"])
        if write is None:
            super()._alter(name, act)
        else:
            self._run(name, f"ALTER TABLE {{t}} {write(act)}")

    def _optimize(self, name: str, act: Mapping[str, Any]) -> None:
        full = " FULL" if act.get("full") else ""
        where = f" WHERE {act['where']}" if act.get("where") else ""
        order = f" ZORDER BY ({_list(act['zorder_by'])})" if act.get("zorder_by") else ""
        self._run(name, f"OPTIMIZE {{t}}{full}{where}{order}")

    def _reorg_purge(self, name: str, act: Mapping[str, Any]) -> None:
        where = f" WHERE {act['where']}" if act.get("where") else ""
        self._run(name, f"REORG TABLE {{t}}{where} APPLY (PURGE)")

    def _restore(self, name: str, act: Mapping[str, Any]) -> None:
        self._run(name, f"RESTORE TABLE {{t}} TO VERSION AS OF {act['version']}")

    def _clone(self, name: str, act: Mapping[str, Any]) -> None:
        version = f" VERSION AS OF {act['version']}" if act.get("version") is not None else ""
        more = f" TBLPROPERTIES {_properties(act['properties'])}" if act.get("properties") else ""
        mode = act.get("mode", "shallow").upper()
        create = "CREATE OR REPLACE TABLE" if act.get("replace") else "CREATE TABLE"
        self._run(name, f"{create} {{t}} {mode} CLONE {SCHEMA}.{act['source']}{version}{more}")


def _clause(clause: Mapping[str, Any]) -> str:
    kinds = {"matched": "MATCHED", "not_matched": "NOT MATCHED", "not_matched_by_source": "NOT MATCHED BY SOURCE"}
    condition = f" AND {clause['condition']}" if clause.get("condition") else ""
    match clause["action"]:
        case "update":
            done = "UPDATE SET " + ", ".join(f"{column} = {value}" for column, value in clause["set"].items())
        case "update_all":
            done = "UPDATE SET *"
        case "insert":
            values = clause["values"]
            done = f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        case "insert_all":
            done = "INSERT *"
        case _:
            done = "DELETE"
    return f"WHEN {kinds[clause['kind']]}{condition} THEN {done}"


def _definition(column: Mapping[str, Any]) -> str:
    parts = [_quoted(column["name"]), column["type"]]
    if not column.get("nullable", True):
        parts.append("NOT NULL")
    if column.get("default") is not None:
        parts.append(f"DEFAULT {column['default']}")
    if column.get("generated") is not None:
        parts.append(f"GENERATED ALWAYS AS ({column['generated']})")
    identity = column.get("identity")
    if identity is not None:
        kind = "ALWAYS" if identity.get("always", True) else "BY DEFAULT"
        start, step = identity.get("start", 1), identity.get("step", 1)
        parts.append(f"GENERATED {kind} AS IDENTITY (START WITH {start} INCREMENT BY {step})")
    if column.get("comment") is not None:
        parts.append(f"COMMENT {_literal(column['comment'])}")
    return " ".join(parts)


def _added(column: Mapping[str, Any]) -> str:
    place = f" {column['position']}" if column.get("position") else ""
    return _definition({**column, "name": ""}).replace("``", _path(column["name"]), 1) + place


_ALTERATIONS: Mapping[str, Any] = {
    "cluster_by": lambda act: f"CLUSTER BY ({_list(act['columns'])})" if act["columns"] else "CLUSTER BY NONE",
    "add_columns": lambda act: f"ADD COLUMNS ({', '.join(map(_added, act['columns']))})",
    "rename_column": lambda act: f"RENAME COLUMN {_path(act['column'])} TO {_quoted(act['to'])}",
    "drop_column": lambda act: f"DROP COLUMN {_path(act['column'])}",
    "change_type": lambda act: f"ALTER COLUMN {_path(act['column'])} TYPE {act['type']}",
    "set_not_null": lambda act: f"ALTER COLUMN {_path(act['column'])} SET NOT NULL",
    "drop_not_null": lambda act: f"ALTER COLUMN {_path(act['column'])} DROP NOT NULL",
    "comment": lambda act: f"ALTER COLUMN {_path(act['column'])} COMMENT {_literal(act['comment'])}",
    "reorder": lambda act: f"ALTER COLUMN {_path(act['column'])} {act['position']}",
    "set_default": lambda act: f"ALTER COLUMN {_path(act['column'])} SET DEFAULT {act['default']}",
    "drop_default": lambda act: f"ALTER COLUMN {_path(act['column'])} DROP DEFAULT",
    "sync_identity": lambda act: f"ALTER COLUMN {_path(act['column'])} SYNC IDENTITY",
    "set_properties": lambda act: f"SET TBLPROPERTIES {_properties(act['properties'])}",
    "unset_properties": lambda act: f"UNSET TBLPROPERTIES ({', '.join(map(_literal, act['names']))})",
    "add_constraint": lambda act: f"ADD CONSTRAINT {_quoted(act['name'])} CHECK ({act['check']})",
    "drop_constraint": lambda act: (
        f"DROP CONSTRAINT {'IF EXISTS ' if act.get('if_exists') else ''}{_quoted(act['name'])}"
    ),
    "drop_feature": lambda act: f"DROP FEATURE {act['feature']}",
}
"""The text after the name of the table; what is not here has no statement."""
