"""Steps chosen at random for a state of the model: tables of several shapes, rows, conditions, writes and other calls."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar

from tests.api_model import steps
from tests.api_model.conditions import Both, Compare, Condition, Either, InList, IsNull, Not
from tests.api_model.model import Version
from tests.api_model.steps import Assign, Clause, ColumnSpec, Rows
from tests.api_model.values import INTEGERS, Value, arguments, base_type, inf, nan

T = TypeVar("T")
_BASE = datetime(2024, 2, 29, 12)
_MOMENTS = (
    _BASE,
    _BASE + timedelta(microseconds=1),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 3, 31, 2, 30),
    datetime(1900, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
)
_VALUES: Mapping[str, Sequence[Value]] = {
    "tinyint": (-1, 0, 1, 2, -128, 127),
    "smallint": (-1, 0, 1, 2, -(2**15), 2**15 - 1),
    "int": (0, 1, 2, 3, 4, -(2**31), 2**31 - 1),
    "bigint": (0, 1, 2, 3, 4, 5, 6, 7, 8, -(2**63), 2**63 - 1),
    "float": (0.0, -0.0, 0.5, -1.25, nan, inf, -inf, 16777216.0),
    "double": (0.0, -0.0, 0.1, -2.5, nan, inf, -inf, 1e300),
    "decimal": ("0", "1.25", "-1.25", "999.99", "3"),
    "string": (
        "",
        "a",
        "b",
        "A",
        "é",
        "e\u0301",
        "a b",
        "50%",
        "x=1/y",
        "it's",
        "a\\b",
        "\U0001f600",
        "x" * 40,
        "null",
    ),
    "varchar": ("", "a", "é ", "abcde"),
    "date": (date(2024, 2, 29), date(2024, 3, 1), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": tuple(moment.replace(tzinfo=UTC) for moment in _MOMENTS),
    "timestamp_ntz": _MOMENTS,
    "boolean": (True, False),
    "binary": (b"", b"\x00", b"ab", b"\xff\xfe"),
}
KINDS = (
    "int", "smallint", "tinyint", "float", "double", "decimal(8,2)", "string", "varchar(5)", "date", "timestamp",
    "timestamp_ntz", "boolean", "binary",
)  # fmt: skip
_PARTITION_KINDS = (
    "string", "int", "date", "double", "decimal(8,2)", "timestamp", "boolean", "varchar(5)", "timestamp_ntz", "binary",
)  # fmt: skip
_WIDER = {
    "tinyint": "smallint", "smallint": "int", "int": "bigint", "float": "double", "decimal(8,2)": "decimal(12,4)",
    "date": "timestamp_ntz", "varchar(5)": "string",
}  # fmt: skip
_MAPPED_NAMES = ("c", "Name", "a b", "é", "x.y", "c`d", "50%")
_PLAIN_NAMES = ("c", "Name", "é", "d")


def writable(version: Version) -> list[ColumnSpec]:
    """The columns that a write may set."""
    return [column for column in version.columns if column.twice is None and not column.numbered]


class Chooser:
    """Chooses steps. The same seed and the same state give the same step."""

    def __init__(self, seed: object) -> None:
        self.chance = random.Random(repr(seed))

    def pick(self, options: Sequence[T]) -> T:
        return self.chance.choice(list(options))

    def maybe(self, share: float = 0.5) -> bool:
        return self.chance.random() < share

    def number(self, least: int, most: int) -> int:
        return self.chance.randint(least, most)

    # --- tables -------------------------------------------------------------------------------------------------------

    def creation(self, table: str) -> steps.Create:
        is_mapped = self.maybe()
        names = list(_MAPPED_NAMES if is_mapped else _PLAIN_NAMES)
        self.chance.shuffle(names)
        columns = [
            ColumnSpec("id", "bigint", nullable=self.maybe(0.75)),
            ColumnSpec("p", self.pick(_PARTITION_KINDS)),
            *(ColumnSpec(name, self.pick(KINDS)) for name in names[: self.number(1, 3)]),
        ]
        extra = self.pick(["", "", "", "default", "twice", "numbered"])
        if extra == "default":
            columns.append(ColumnSpec("w", "string", default=self.pick(["new", "it's"])))
        elif extra == "twice":
            columns.append(ColumnSpec("w", "bigint", twice="id"))
        elif extra == "numbered":
            columns.append(ColumnSpec("w", "bigint", numbered=True))
        layout = self.pick(["p", "p", "", "id"])
        return steps.Create(
            table,
            tuple(columns),
            partition_by=("p",) if layout == "p" else (),
            cluster_by=("id",) if layout == "id" else (),
            properties=tuple(self._properties(columns, is_mapped).items()),
        )

    def creation_by_path(self, table: str) -> steps.CreateByPath:
        kinds = [("id", "bigint"), ("p", self.pick(("string", "int", "date", "double"))), ("c", self.pick(KINDS[:8]))]
        kinds = [(name, "string" if kind.startswith("varchar") else kind) for name, kind in kinds]
        values = tuple(
            tuple(None if self.maybe(0.2) else self.value(kind) for _, kind in kinds) for _ in range(self.number(1, 3))
        )
        partition_by = self.pick([(), ("p",)])
        # deltalake names the folder of 1e300 by 301 digits, which no file system takes.
        has_long_name = any(row[1] == 1e300 for row in values)
        return steps.CreateByPath(table, Rows(tuple(kinds), values), () if has_long_name else partition_by)

    def _properties(self, columns: Sequence[ColumnSpec], is_mapped: bool) -> dict[str, str]:
        properties = {
            "delta.enableDeletionVectors": self.pick(["true", "true", "false"]),
            "delta.enableChangeDataFeed": self.pick(["true", "true", "false"]),
            "delta.enableRowTracking": self.pick(["true", "false"]),
            "delta.enableTypeWidening": self.pick(["true", "false"]),
        }
        if is_mapped:
            properties["delta.columnMapping.mode"] = self.pick(["name", "id"])
        if self.maybe(0.2):
            properties["delta.isolationLevel"] = "Serializable"
        if self.maybe(0.3):
            properties["delta.checkpointInterval"] = "2"
        if self.maybe() or any(column.kind == "timestamp_ntz" for column in columns):
            properties["delta.feature.timestampNtz"] = "supported"
        return properties

    # --- rows and conditions ------------------------------------------------------------------------------------------

    def value(self, kind: str) -> Value:
        """A value of that type; not NULL."""
        found = self.pick(_VALUES[base_type(kind)])
        if base_type(kind) != "decimal":
            return found
        return Decimal(found).quantize(Decimal(1).scaleb(-arguments(kind)[1]))

    def rows(self, version: Version, *, most: int = 4, all_columns: bool = False, null_keys: bool = True) -> Rows:
        columns = writable(version)
        if not all_columns and self.maybe(0.3):
            columns = [c for c in columns if c.name in ("id", "p") or not c.nullable or self.maybe()] or columns
        least = 0 if self.maybe(0.1) else 1
        values = [
            tuple(self._cell(column, version, null_keys) for column in columns) for _ in range(self.number(least, most))
        ]
        return Rows(tuple((column.name, column.kind) for column in columns), tuple(values))

    def _cell(self, column: ColumnSpec, version: Version, null_keys: bool) -> Value:
        if self.maybe(0.2 if column.nullable and (null_keys or column.name != "id") else 0.02):
            return None
        if column.name == "id":
            return self.number(0, 8) if self.maybe(0.9) or _has_twice(version) else self.value(column.kind)
        return self.value(column.kind)

    def condition(self, version: Version, *, names: Sequence[str] | None = None, of_stored: bool = False) -> Condition:
        """A condition on these columns; with ``of_stored`` without the empty text for a partition column, which is refused."""
        first = self._leaf(version, names, of_stored)
        match self.pick(["", "", "and", "or", "not"]):
            case "not":
                return Not(first)
            case "and":
                return Both(first, self._leaf(version, names, of_stored))
            case "or":
                return Either(first, self._leaf(version, names, of_stored))
        return first

    def _leaf(self, version: Version, names: Sequence[str] | None, of_stored: bool) -> Condition:
        listed = [c for c in version.columns if not c.numbered and (names is None or c.name in names)]
        column = self.pick(listed)
        known = [row.values[column.name] for row in version.rows if row.values[column.name] is not None]

        def value() -> Value:
            found = self.pick(known) if known and self.maybe(0.7) else self.value(column.kind)
            is_empty = of_stored and column.name in version.partition_by and found == ""
            return "a" if is_empty else found

        match self.pick(["compare", "compare", "in", "null"]):
            case "null":
                return IsNull(column.name, self.maybe())
            case "in":
                return InList(column.name, tuple(value() for _ in range(self.number(1, 3))))
        return Compare(column.name, self.pick(["=", "=", "<>", "<", "<=", ">", ">=", "<=>"]), value())

    # --- writes -------------------------------------------------------------------------------------------------------

    def write(self, table: str, version: Version, client: int = 0) -> steps.OnTable:
        """A write of rows."""
        match self.pick(["append", "append", "overwrite", "delete", "update", "merge", "merge", "key merge"]):
            case "append":
                return steps.Append(table, self.rows(version), parts=self.pick([1, 1, 2]), client=client)
            case "overwrite":
                return self.overwrite(table, version, client)
            case "delete":
                return steps.Delete(table, self.condition(version), client=client)
            case "update":
                where = None if self.maybe(0.1) else self.condition(version)
                return steps.Update(table, self.assignments(version), where, client=client)
            case "merge":
                return self.merge(table, version, client)
        return self.key_merge(table, version, client)

    def assignments(self, version: Version, *, source: Sequence[str] | None = None) -> tuple[Assign, ...]:
        columns = writable(version)
        chosen = self.chance.sample(columns, min(len(columns), self.number(1, 2)))
        return tuple(self._assign(column, version, source) for column in chosen)

    def _assign(self, column: ColumnSpec, version: Version, source: Sequence[str] | None) -> Assign:
        same = [c.name for c in version.columns if c.kind == column.kind and not c.numbered]
        origins = same if source is None else [name for name in same if name in source]
        hows = ["literal", "literal"] + (["column"] if origins else [])
        if source is None and base_type(column.kind) in INTEGERS:
            hows.append("plus")
        match self.pick(hows):
            case "column":
                return Assign(column.name, "column", self.pick(origins))
            case "plus":
                return Assign(column.name, "plus", self.number(1, 2))
        return Assign(column.name, "literal", self._cell(column, version, True))

    def overwrite(self, table: str, version: Version, client: int) -> steps.Overwrite:
        new = self.rows(version)
        match self.pick(["whole", "where", "where", "dynamic", "keys"]):
            case "dynamic" if version.partition_by:
                return steps.Overwrite(table, new, dynamic=True, client=client)
            case "keys" if "id" in new.names:
                new = self.rows(version, null_keys=False)
                return steps.Overwrite(table, new, replace_using=("id",), client=client)
            case "where":
                where = self.condition(version, names=[c.name for c in writable(version)], of_stored=True)
                if self.maybe(0.8):
                    fitting = [row for row in new.values if _fits(row, new, version, where)]
                    new = Rows(new.columns, tuple(fitting))
                return steps.Overwrite(table, new, where=where, client=client)
        return steps.Overwrite(table, new, client=client)

    def merge(self, table: str, version: Version, client: int) -> steps.Merge:
        source = self.rows(version, all_columns=True)
        wanted = self.pick([("id",), ("id",), ("id", "p"), ("p",)])
        keys = tuple(key for key in wanted if key in source.names) or source.names[:1]
        if self.maybe(0.8):
            source = _distinct(source, keys)
        clauses: list[Clause] = []
        for kind, actions in (
            ("matched", ("update", "update_all", "delete")),
            ("not_matched", ("insert", "insert_all")),
            ("not_matched_by_source", ("update", "delete")),
        ):
            for _ in range(self.pick([0, 1, 1, 2])):
                if not any(clause.kind == kind and clause.condition is None for clause in clauses):
                    clauses.append(self._clause(version, kind, actions, source.names))
        and_target = self.condition(version, names=source.names) if self.maybe(0.25) else None
        return steps.Merge(
            table,
            source,
            keys,
            tuple(clauses) or (Clause("matched", "delete"),),
            null_safe=self.maybe(0.3),
            and_target=and_target,
            client=client,
        )

    def _clause(self, version: Version, kind: str, actions: Sequence[str], names: Sequence[str]) -> Clause:
        computed = any(column.twice or column.numbered for column in version.columns)
        action = self.pick([action for action in actions if not (computed and action.endswith("_all"))])
        on_source = kind == "not_matched" or (kind == "matched" and self.maybe())
        condition = self.condition(version, names=names) if self.maybe() else None
        given: tuple[Assign, ...] = ()
        if action == "update":
            given = self.assignments(version, source=None if kind == "not_matched_by_source" else names)
        elif action == "insert":
            columns = [c for c in writable(version) if c.name in ("id", "p") or not c.nullable or self.maybe()]
            given = tuple(Assign(c.name, "column", c.name) for c in columns or writable(version)[:1])
        return Clause(kind, action, condition, on_source, given)

    def key_merge(self, table: str, version: Version, client: int) -> steps.MergeKeys:
        source = self.rows(version, all_columns=self.maybe())
        wanted = self.pick([("id",), ("id", "p")])
        keys = tuple(key for key in wanted if key in source.names) or source.names[:1]
        if self.maybe(0.85):
            source = _distinct(source, keys)
        where = None
        if self.maybe(0.3):
            where = self.condition(version, names=source.names, of_stored=True)
            fitting = [row for row in source.values if _fits(row, source, version, where)]
            source = Rows(source.columns, tuple(fitting)) if self.maybe(0.8) else source
        mode = self.pick(["upsert", "upsert", "insert_only", "update_only", "delete_unmatched"])
        return steps.MergeKeys(table, source, keys, mode, where, client=client)

    # --- other calls --------------------------------------------------------------------------------------------------

    def alteration(self, table: str, version: Version, client: int) -> steps.OnTable:
        column = self.pick(version.columns)
        match self.pick(["add", "add", "rename", "drop", "widen", "widen", "property", "property", "evolve"]):
            case "add":
                return self._addition(table, version, client)
            case "rename" if version.is_mapped or self.maybe(0.3):
                return steps.RenameColumn(table, column.name, self.pick([*_MAPPED_NAMES, "f", "g"]), client=client)
            case "drop" if len(writable(version)) > 2 and (version.is_mapped or self.maybe(0.3)):
                return steps.DropColumn(table, column.name, client=client)
            case "widen":
                column = self.pick([c for c in version.columns if c.kind in _WIDER] or [column])
                wider = _WIDER.get(column.kind, "string")
                if wider != "timestamp_ntz" or _has_ntz(version):
                    return steps.WidenColumn(table, column.name, wider, client=client)
            case "evolve":
                return self._evolving_append(table, version, client)
        return self._property(table, client)

    def _addition(self, table: str, version: Version, client: int) -> steps.AddColumn:
        names = [*_MAPPED_NAMES, "h"] if version.is_mapped else [*_PLAIN_NAMES, "h", "ID"]
        free = [name for name in names if name not in version.types] if self.maybe(0.9) else names
        kinds = [kind for kind in KINDS if kind != "timestamp_ntz" or _has_ntz(version)]
        return steps.AddColumn(table, self.pick(free or names), self.pick(kinds), client=client)

    def _evolving_append(self, table: str, version: Version, client: int) -> steps.OnTable:
        new = self.rows(version, most=2)
        extra = self.pick(["e1", "e2", "e3"])
        if extra in version.types:
            return steps.Append(table, new, client=client)
        kind = self.pick(["int", "string", "double"])
        values = tuple((*row, None if self.maybe(0.2) else self.value(kind)) for row in new.values)
        return steps.Append(table, Rows((*new.columns, (extra, kind)), values), "merge", client=client)

    def _property(self, table: str, client: int) -> steps.SetProperty:
        key = self.pick(
            [
                "delta.enableChangeDataFeed", "delta.enableDeletionVectors", "delta.enableTypeWidening",
                "delta.enableRowTracking", "delta.columnMapping.mode", "owner",
            ]
        )  # fmt: skip
        if key == "delta.columnMapping.mode":
            return steps.SetProperty(table, key, "name", client=client)
        if key in ("delta.enableRowTracking", "delta.enableTypeWidening"):
            return steps.SetProperty(table, key, "true", client=client)
        return steps.SetProperty(table, key, self.pick(["true", "false"]), client=client)

    def maintenance(self, table: str, client: int) -> steps.OnTable:
        match self.pick(["optimize", "optimize", "vacuum", "log"]):
            case "optimize":
                how = self.pick(["compact", "compact", "zorder", "full", "reorg"])
                return steps.Optimize(table, how, client=client)
            case "vacuum":
                return steps.Vacuum(table, self.pick([None, None, 0, 24]), client=client)
        what = self.pick(["checkpoint", "checkpoint", "clean_log", "publish", "clean_staged", "compact_log"])
        return steps.LogStep(table, what, client=client)


def _has_twice(version: Version) -> bool:
    return any(column.twice for column in version.columns)


def _has_ntz(version: Version) -> bool:
    return version.properties.get("delta.feature.timestampNtz") == "supported"


def _fits(row: tuple[Value, ...], new: Rows, version: Version, where: Condition) -> bool:
    values = {column.name: column.default for column in version.columns} | dict(zip(new.names, row, strict=True))
    return where.holds(values)


def _distinct(rows: Rows, keys: Sequence[str]) -> Rows:
    """The rows without those whose key an earlier one has."""
    positions = [rows.names.index(key) for key in keys]
    found = {repr([row[position] for position in positions]): row for row in rows.values}
    return Rows(rows.columns, tuple(found.values()))
