"""SQL statements drawn at random, over a table whose columns are known. ``{t}`` stands for the name of the table."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.schema.types import StructType, data_type_text

VALUES: Mapping[str, str] = {
    "bigint": "id",
    "int": "CAST(id % 7 AS INT)",
    "smallint": "CAST(id % 5 AS SMALLINT)",
    "double": "id / 4.0D",
    "decimal(8,2)": "CAST(id / 4.0D AS DECIMAL(8,2))",
    "string": "element_at(array('a b', '50%', NULL, 'é/=', ''), CAST(id % 5 AS INT) + 1)",
    "date": "date_add(DATE'2024-02-27', CAST(id % 4 AS INT))",
    "timestamp": "timestamp_seconds(1704067200 + id * 5003)",
    "boolean": "IF(id % 3 = 0, NULL, id % 2 = 0)",
    "binary": "CAST(CAST(id % 3 AS STRING) AS BINARY)",
    "struct<a: int, b: string>": "IF(id % 5 = 0, NULL, named_struct('a', CAST(id AS INT), 'b', 'x'))",
    "array<int>": "IF(id % 4 = 0, NULL, array(CAST(id AS INT), NULL))",
    "map<string, int>": "map('k', CAST(id % 2 AS INT))",
}
"""An expression of ``id`` for each type of a column."""
_OTHERS: Mapping[str, tuple[str, ...]] = {
    "bigint": ("7", "-1"),
    "int": ("3", "NULL", "{c} + 10"),
    "smallint": ("2", "{c}"),
    "double": ("0.5D", "CAST('NaN' AS DOUBLE)", "-0.0D"),
    "decimal(8,2)": ("1.25", "{c} + 1", "999999.99"),
    "string": ("'moved'", "upper({c})", "NULL", "''"),
    "date": ("DATE'2024-03-01'", "date_add({c}, 1)"),
    "timestamp": ("TIMESTAMP'2024-03-01 00:00:00'", "NULL"),
    "boolean": ("true", "NOT {c}"),
    "binary": ("X'00FF'", "NULL"),
    "struct<a: int, b: string>": ("named_struct('a', 1, 'b', 'z')", "NULL"),
    "array<int>": ("array(1, 2)", "array()"),
    "map<string, int>": ("map('x', 1)", "NULL"),
}
"""Values that UPDATE and MERGE set; ``{c}`` is the column."""
_WIDER = {"smallint": "int", "int": "bigint", "decimal(8,2)": "decimal(12,4)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the statements may do with a table.

    Attributes:
        properties: of CREATE TABLE.
        layout: the clause PARTITIONED BY or CLUSTER BY, or "".
        partitions: the partition columns.
    """

    columns: str
    properties: Mapping[str, str]
    layout: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def create(self) -> str:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        return f"CREATE TABLE {{t}} ({self.columns}) USING DELTA {self.layout} TBLPROPERTIES ({listed})"


def draw_shape(chance: random.Random) -> Shape:
    """Columns, layout and properties of a table."""
    types = [kind for kind in VALUES if kind != "bigint"]
    columns = {"id": "bigint", "p": chance.choice(("string", "int", "date")), "n": "int"}
    columns |= {f"c{number}": kind for number, kind in enumerate(chance.sample(types, chance.randrange(1, 5)))}
    listed = [f"{name} {kind}" for name, kind in columns.items()]
    properties = {
        "delta.enableDeletionVectors": chance.choice(("true", "false")),
        "delta.enableChangeDataFeed": chance.choice(("true", "true", "false")),
        "delta.enableRowTracking": chance.choice(("true", "false", "false")),
        "delta.enableTypeWidening": chance.choice(("true", "false")),
    }
    if chance.random() < 0.5:
        properties["delta.columnMapping.mode"] = chance.choice(("name", "id"))
    if chance.random() < 0.4:
        listed.append("g bigint GENERATED ALWAYS AS (id * 2)")
    if chance.random() < 0.4:
        properties["delta.feature.allowColumnDefaults"] = "supported"
        listed.append("w string DEFAULT 'none'")
    layout, partitions = chance.choice((("", ()), ("PARTITIONED BY (p)", ("p",)), ("CLUSTER BY (id, n)", ())))
    return Shape(columns=", ".join(listed), properties=properties, layout=layout, partitions=partitions)


class Statements:
    """Chooses statements.

    Args:
        versions: how many states of the table a statement can restore.
    """

    def __init__(self, chance: random.Random, shape: Shape) -> None:
        self.chance = chance
        self.shape = shape
        self.versions = 0
        self._schema = StructType(())
        self._added = 0

    def draw(self, schema: StructType) -> str:
        """A statement for a table with these columns. ``{v3}`` stands for the version after the third statement."""
        self._schema = schema
        kinds: Mapping[Callable[[], str], int] = {
            self._insert: 6, self._update: 5, self._delete: 4, self._merge: 8, self._alter: 5, self._optimize: 2, self._whole: 2,
        }  # fmt: skip
        return self.chance.choices(list(kinds), list(kinds.values()))[0]()

    # --- columns ------------------------------------------------------------------------------------------------------

    def _types(self) -> dict[str, str]:
        """The columns that a statement may set, with types as in :data:`VALUES`."""
        computed = generated_columns(self._schema)
        found = {item.name: data_type_text(item.type) for item in self._schema.fields if item.name not in computed}
        return {name: _spelled(kind) for name, kind in found.items() if _spelled(kind) in VALUES}

    def _rows(self, *, shift: int = 0) -> str:
        low = self.chance.randrange(0, 40) + shift
        return f"range({low}, {low + self.chance.randrange(0, 12)}, 1, 1)"

    def _query(self, names: list[str], types: Mapping[str, str]) -> str:
        values = [f"{VALUES[types[name]]} AS {_quoted(name)}" for name in names]
        return f"SELECT {', '.join(values)} FROM {self._rows()}"

    def _condition(self, alias: str = "") -> str:
        low = self.chance.randrange(0, 40)
        simple = [
            f"{alias}id BETWEEN {low} AND {low + self.chance.randrange(0, 12)}",
            f"{alias}id % 5 = {low % 5}",
            f"{alias}id = {low}",
        ]
        types = self._types()
        if "n" in types:
            simple += [f"{alias}n IS NULL OR {alias}n > 4", f"{alias}n = {low % 7} AND {alias}id < 30"]
        if types.get("p") == "string":
            simple += [f"{alias}p = 'a b'", f"{alias}p IS NULL", f"{alias}p <> '50%'", f"{alias}p IN ('é/=', '')"]
        if types.get("p") == "int":
            simple += [f"{alias}p = {low % 7}", f"{alias}p >= 3 OR {alias}id = 3", f"NOT {alias}p <=> NULL"]
        if types.get("p") == "date":
            simple += [f"{alias}p >= DATE'2024-02-29'", f"{alias}p = '2024-02-28'"]
        for name, kind in types.items():
            if kind.startswith("struct"):
                simple.append(f"{alias}{_quoted(name)}.a > {low}")
            if kind == "boolean":
                simple.append(f"NOT {alias}{_quoted(name)}")
        return self.chance.choice(simple)

    def _assignments(self, alias: str = "") -> str:
        types = self._types()
        names = self.chance.sample([*types], min(len(types), self.chance.randrange(1, 3)))
        found = []
        for name in names:
            column = f"{alias}{_quoted(name)}"
            if types[name].startswith("struct") and self.chance.random() < 0.5:
                found.append(f"{_quoted(name)}.b = 'y'")
            else:
                found.append(f"{_quoted(name)} = {self.chance.choice(_OTHERS[types[name]]).format(c=column)}")
        return ", ".join(found)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _insert(self) -> str:
        types = self._types()
        every = [item.name for item in self._schema.fields if item.name in types]
        some = (
            every if self.chance.random() < 0.6 else self.chance.sample(every, self.chance.randrange(1, len(every) + 1))
        )
        query = self._query(some, types)
        listed = ", ".join(map(_quoted, some))
        where = self._condition()
        return self.chance.choices(
            (
                f"INSERT INTO {{t}} ({listed}) {query}",
                f"INSERT INTO {{t}} BY NAME {query}",
                f"INSERT OVERWRITE {{t}} ({listed}) {query}",
                f"INSERT INTO {{t}} REPLACE WHERE {where} SELECT * FROM ({self._query(every, types)}) WHERE {where}",
                f"INSERT INTO {{t}} {query}",
                f"WITH q AS ({query}) INSERT INTO {{t}} ({listed}) SELECT * FROM q",
            ),
            (5, 3, 1, 2, 1, 1),
        )[0]

    def _update(self) -> str:
        where = f" WHERE {self._condition()}" if self.chance.random() < 0.9 else ""
        return f"UPDATE {{t}} SET {self._assignments()}{where}"

    def _delete(self) -> str:
        return f"DELETE FROM {{t}} WHERE {self._condition()}"

    def _merge(self) -> str:
        types = self._types()
        names = [*types]
        evolves = self.chance.random() < 0.3
        source = self._query(names if self.chance.random() < 0.8 else names[: max(3, len(names) - 1)], types)
        if evolves and self.chance.random() < 0.5:
            self._added += 1
            source = source.replace(" FROM range", f", id AS e{self._added} FROM range")
        on = self.chance.choice(
            ("t.id = s.id", "t.id = s.id", "t.id = s.id AND t.n <=> s.n", "t.id = s.id AND t.id > 9")
        )
        text = f"MERGE {'WITH SCHEMA EVOLUTION ' if evolves else ''}INTO {{t}} t USING ({source}) s ON {on}"
        if self.chance.random() < 0.4:
            text += f" WHEN MATCHED AND {self._condition('t.')} THEN DELETE"
        kind = self.chance.random()
        if kind < 0.4:
            text += " WHEN MATCHED THEN UPDATE SET *"
        elif kind < 0.8:
            text += f" WHEN MATCHED AND s.id % 3 < 2 THEN UPDATE SET {self._assignments('t.')}"
        if self.chance.random() < 0.3:
            listed = [name for name in names if name in ("id", "n", "p")]
            text += (
                f" WHEN NOT MATCHED AND s.id % 4 = 1 THEN INSERT ({', '.join(listed)})"
                f" VALUES ({', '.join(f's.{name}' for name in listed)})"
            )
        if self.chance.random() < 0.7:
            text += " WHEN NOT MATCHED THEN INSERT *"
        if self.chance.random() < 0.3:
            text += f" WHEN NOT MATCHED BY SOURCE AND {self._condition('t.')} THEN UPDATE SET {self._assignments('t.')}"
        if self.chance.random() < 0.3 or text.endswith(on):
            text += " WHEN NOT MATCHED BY SOURCE AND t.id % 11 = 3 THEN DELETE"
        return text

    def _alter(self) -> str:
        types = self._types()
        name = self.chance.choice([*types])
        self._added += 1
        new, kind = f"a{self._added}", self.chance.choice([*VALUES])
        structs = [one for one, of in types.items() if of.startswith("struct")]
        choices = [
            f"ADD COLUMN {new} {kind}",
            f"ADD COLUMNS ({new} {kind} COMMENT 'new' FIRST, {new}b int AFTER id)",
            f"ALTER COLUMN {_quoted(name)} COMMENT 'ö'",
            f"ALTER COLUMN {_quoted(name)} {self.chance.choice(('FIRST', 'AFTER id'))}",
            f"ALTER COLUMN {_quoted(name)} DROP NOT NULL",
            f"ALTER COLUMN {_quoted(name)} TYPE {_WIDER.get(types[name], 'string')}",
            f"SET TBLPROPERTIES ('mine' = '{self._added}', 'delta.appendOnly' = 'false')",
            "UNSET TBLPROPERTIES ('mine')",
            f"ADD CONSTRAINT c{self._added} CHECK ({self.chance.choice(('id < 1000', 'n IS NULL OR n < 400', 'id > 5'))})",
            f"DROP CONSTRAINT IF EXISTS c{self.chance.randrange(1, self._added + 1)}",
            f"RENAME COLUMN {_quoted(name)} TO r{self._added}",
            f"DROP COLUMN {_quoted(name)}",
            f"ALTER COLUMN {_quoted(name)} SET DEFAULT {VALUES[types[name]] if types[name] == 'array<int>' else 'NULL'}",
            "CLUSTER BY (id)",
            "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            "DROP FEATURE typeWidening",
        ]
        if structs:
            choices += [
                f"ADD COLUMN {structs[0]}.x{self._added} int",
                f"RENAME COLUMN {structs[0]}.b TO r{self._added}",
            ]
        return f"ALTER TABLE {{t}} {self.chance.choice(choices)}"

    def _optimize(self) -> str:
        where = " WHERE p IS NOT NULL" if self.shape.partitions and self.chance.random() < 0.5 else ""
        return self.chance.choice(
            (f"OPTIMIZE {{t}}{where}", "OPTIMIZE {t} ZORDER BY (n, id)", f"REORG TABLE {{t}}{where} APPLY (PURGE)")
        )

    def _whole(self) -> str:
        if self.versions and self.chance.random() < 0.6:
            return f"RESTORE TABLE {{t}} TO VERSION AS OF {{v{self.chance.randrange(self.versions)}}}"
        if self.chance.random() < 0.6:
            return "TRUNCATE TABLE {t}"
        return self.shape.create.replace("CREATE TABLE", "CREATE OR REPLACE TABLE")


def _spelled(kind: str) -> str:
    """A type as :data:`VALUES` spells it."""
    return kind.replace(",", ", ").replace(":", ": ") if "<" in kind else kind


def _quoted(name: str) -> str:
    return f"`{name}`"
