"""Commits that contradict the types of the columns of their table: one table of cases for every database.

Each case is a table, and a commit to it that sets other types or partition values.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.unreadable_commits import configuration_of, line_of, schema_of, vector_of

WIDENING = line_of(
    "protocol",
    readerFeatures='["catalogManaged","typeWidening"]',
    writerFeatures='["catalogManaged","inCommitTimestamp","typeWidening"]',
)
_MAPPING = line_of(
    "protocol",
    readerFeatures='["catalogManaged","columnMapping"]',
    writerFeatures='["catalogManaged","inCommitTimestamp","columnMapping"]',
)
_VECTORS = line_of(
    "protocol",
    readerFeatures='["catalogManaged","deletionVectors"]',
    writerFeatures='["catalogManaged","inCommitTimestamp","deletionVectors"]',
)
_WIDENS = {"delta.enableTypeWidening": "true"}
MANY = 2000
"""Files with which a commit is checked in columns."""


def table_of(*fields: Mapping[str, Any], partitions: tuple[str, ...] = (), **properties: str) -> str:
    """The line of a ``metaData`` with these columns."""
    return line_of(
        "metaData",
        schemaString=schema_of(*fields),
        partitionColumns=json.dumps(partitions),
        configuration=configuration_of(**properties),
    )


def file_of(path: str, **values: str | None) -> str:
    """The line of an ``add`` with these partition values."""
    return line_of("add", path=json.dumps(path), partitionValues=json.dumps(values))


def gone(path: str) -> str:
    """The line of a ``remove``."""
    return line_of("remove", path=json.dumps(path))


def _file_with_vector(path: str) -> str:
    return line_of("add", path=json.dumps(path), partitionValues="{}", deletionVector=vector_of())


def _column(data_type: Any, *, name: str = "c", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": data_type, "metadata": metadata}


def _changed(before: str, after: str, **more: str) -> dict[str, Any]:
    return _column(after, **{"delta.typeChanges": [{"fromType": before, "toType": after, **more}]})


def _mapped(data_type: Any, physical_name: str, number: int) -> dict[str, Any]:
    return _column(data_type, **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical_name})


def _array(data_type: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": data_type, "containsNull": True}


def _struct(data_type: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": "f", "type": data_type, "nullable": True, "metadata": {}}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCase:
    """A table and a commit to it.

    Attributes:
        before: lines of the commit that defines the table, which has the file ``a`` unless ``num_files`` is 0.
        lines: of the commit.
        refused: part of the message; empty if the catalog ratifies the commit.
        operation: of the commit.
        num_files: files of the table, if the catalog knows their number.
    """

    name: str
    before: tuple[str, ...]
    lines: tuple[str, ...]
    refused: str = ""
    operation: str = "WRITE"
    num_files: int | None = 1


def _change(name: str, before: Any, after: Any, refused: str) -> TypeCase:
    columns = [item if isinstance(item, dict) and "name" in item else _column(item) for item in (before, after)]
    return TypeCase(name=name, before=(table_of(columns[0]),), lines=(table_of(columns[1]),), refused=refused)


_LONG_TO_STRING = (table_of(_column("string")),)
_KEEPS = "changes the type of column c from bigint to string"

TYPE_CHANGES: tuple[TypeCase, ...] = (
    _change("another primitive type", "long", "string", _KEEPS),
    _change("an integer becomes a date", "integer", "date", "from int to date"),
    _change("a narrower type", "long", "integer", "from bigint to int"),
    _change("within a struct", _struct("long"), _struct("string"), "column c.f from bigint to string"),
    _change("within an array", _array("long"), _array("string"), "column c.element from bigint to string"),
    _change(
        "an array of structs",
        _array(_struct("long")),
        _array(_struct("date")),
        "column c.element.f from bigint to date",
    ),
    _change("a struct becomes a primitive type", _struct("long"), "long", "column c from struct"),
    _change(
        "another case of the name", _column("long", name="c"), _column("string", name="C"), "from bigint to string"
    ),
    _change("a wider type without the feature", "integer", "long", "from int to bigint"),
    _change("a column without values gets a type", "void", "string", ""),
    _change("the same type", "long", "long", ""),
    _change(
        "a nullable element",
        {**_array("long"), "containsNull": False},
        _array("long"),
        "",
    ),
    TypeCase(
        name="a wider type that is not recorded",
        before=(WIDENING, table_of(_column("integer"), **_WIDENS)),
        lines=(table_of(_column("long"), **_WIDENS),),
        refused="from int to bigint",
    ),
    TypeCase(
        name="a wider type while the property is off",
        before=(WIDENING, table_of(_column("integer"))),
        lines=(table_of(_changed("integer", "long")),),
        refused="from int to bigint",
    ),
    TypeCase(
        name="another type with type widening",
        before=(WIDENING, table_of(_column("long"), **_WIDENS)),
        lines=(table_of(_column("string"), **_WIDENS),),
        refused=_KEEPS,
    ),
    TypeCase(
        name="a wider type",
        before=(WIDENING, table_of(_column("integer"), **_WIDENS)),
        lines=(table_of(_changed("integer", "long"), **_WIDENS),),
    ),
    TypeCase(
        name="a wider type within an array",
        before=(WIDENING, table_of(_column(_array("integer")), **_WIDENS)),
        lines=(
            table_of(
                _column(
                    _array("long"),
                    **{"delta.typeChanges": [{"fromType": "integer", "toType": "long", "fieldPath": "element"}]},
                ),
                **_WIDENS,
            ),
        ),
    ),
    TypeCase(
        name="a wider type and the feature in one commit",
        before=(table_of(_column("integer")),),
        lines=(WIDENING, table_of(_changed("integer", "long"), **_WIDENS)),
    ),
    TypeCase(
        name="a wider type that a restore takes back",
        before=(WIDENING, table_of(_changed("integer", "long"), **_WIDENS)),
        lines=(table_of(_column("integer"), **_WIDENS),),
        operation="RESTORE",
    ),
    TypeCase(
        name="a narrower type that the column never had",
        before=(WIDENING, table_of(_column("long"), **_WIDENS)),
        lines=(table_of(_column("integer"), **_WIDENS),),
        operation="RESTORE",
        refused="from bigint to int",
    ),
    TypeCase(
        name="a replacement of all files",
        before=(table_of(_column("long")),),
        lines=(*_LONG_TO_STRING, gone("a"), file_of("b")),
    ),
    TypeCase(
        name="a replacement of one of two files",
        before=(table_of(_column("long")),),
        lines=(*_LONG_TO_STRING, gone("a")),
        refused=_KEEPS,
        num_files=2,
    ),
    TypeCase(
        name="a file that is removed and added again",
        before=(
            _VECTORS,
            table_of(_column("long")),
        ),
        lines=(
            *_LONG_TO_STRING,
            gone("a"),
            _file_with_vector("a"),
        ),
        refused=_KEEPS,
    ),
    TypeCase(
        name="files beside a replacement that are many",
        before=(table_of(_column("long")),),
        lines=(*_LONG_TO_STRING, *(file_of(f"b{number}") for number in range(MANY))),
        refused=_KEEPS,
    ),
    TypeCase(
        name="a statement that the table is replaced while its file stays",
        before=(table_of(_column("long")),),
        lines=_LONG_TO_STRING,
        operation="CREATE OR REPLACE TABLE",
        refused=_KEEPS,
    ),
    TypeCase(name="a table without files", before=(table_of(_column("long")),), lines=_LONG_TO_STRING, num_files=0),
    TypeCase(
        name="an unknown number of files of which none is removed",
        before=(table_of(_column("long")),),
        lines=_LONG_TO_STRING,
        num_files=None,
        refused=_KEEPS,
    ),
    TypeCase(
        name="an unknown number of files of which some are removed",
        before=(table_of(_column("long")),),
        lines=(*_LONG_TO_STRING, gone("a")),
        num_files=None,
    ),
    TypeCase(
        name="another column of the same name",
        before=(_MAPPING, table_of(_mapped("long", "col-1", 1), **{"delta.columnMapping.mode": "name"})),
        lines=(table_of(_mapped("string", "col-2", 2), **{"delta.columnMapping.mode": "name"}),),
    ),
    TypeCase(
        name="the same column under another name",
        before=(_MAPPING, table_of(_mapped("long", "col-1", 1), **{"delta.columnMapping.mode": "name"})),
        lines=(table_of({**_mapped("string", "col-1", 1), "name": "d"}, **{"delta.columnMapping.mode": "name"}),),
        refused="changes the type of column d from bigint to string",
    ),
    TypeCase(
        name="the same id under another physical name",
        before=(_MAPPING, table_of(_mapped("long", "col-1", 1), **{"delta.columnMapping.mode": "id"})),
        lines=(table_of(_mapped("string", "col-2", 1), **{"delta.columnMapping.mode": "id"}),),
        refused=_KEEPS,
    ),
)


_BY_NAME = {"delta.columnMapping.mode": "name"}
_FLAT = table_of(_column("long"), _column("date", name="p"))
_BY_P = table_of(_column("long"), _column("date", name="p"), partitions=("p",))
_BY_C = table_of(_column("long"), _column("date", name="p"), partitions=("c",))
_BY_BOTH = table_of(_column("long"), _column("date", name="p"), partitions=("c", "p"))
_BY_BOTH_TURNED = table_of(_column("long"), _column("date", name="p"), partitions=("p", "c"))
_REQUIRED = {**_column("long", name="n"), "nullable": False}


def _mapped_partition(name: str, physical_name: str) -> str:
    column = {**_mapped("date", physical_name, 1), "name": name}
    return table_of(column, _mapped("long", "col-2", 2), partitions=(name,), **_BY_NAME)


def _of_definition(name: str, before: str, after: str, refused: str, *more: str, **case: Any) -> TypeCase:
    return TypeCase(name=name, before=(before,), lines=(after, *more), refused=refused, **case)


_FROM_P = r"changes the partition columns from \(p\) to"
_NEW = "adds the column n, which must not be NULL"

KEPT_FILES: tuple[TypeCase, ...] = (
    _of_definition("a partition column becomes another column", _BY_P, _FLAT, rf"{_FROM_P} \(\)"),
    _of_definition("a column becomes a partition column", _FLAT, _BY_P, r"from \(\) to \(p\)"),
    _of_definition("another partition column", _BY_P, _BY_C, rf"{_FROM_P} \(c\)"),
    _of_definition("one more partition column", _BY_P, _BY_BOTH, rf"{_FROM_P} \(c, p\)"),
    _of_definition("another order of the partition columns", _BY_BOTH, _BY_BOTH_TURNED, ""),
    _of_definition(
        "another case of a partition column",
        _BY_P,
        table_of(_column("long"), _column("date", name="P"), partitions=("P",)),
        rf"{_FROM_P} \(P\)",
    ),
    _of_definition("other partition columns of a replacement of all files", _BY_P, _FLAT, "", gone("a")),
    _of_definition("other partition columns of one of two files", _BY_P, _FLAT, _FROM_P, gone("a"), num_files=2),
    _of_definition("other partition columns of a table without files", _BY_P, _FLAT, "", num_files=0),
    _of_definition("other partition columns of an unknown number of files", _BY_P, _FLAT, _FROM_P, num_files=None),
    _of_definition("partition columns that a restore takes back", _BY_P, _FLAT, "", operation="RESTORE"),
    TypeCase(
        name="the same partition column under another name",
        before=(_MAPPING, _mapped_partition("p", "col-1")),
        lines=(_mapped_partition("q", "col-1"),),
    ),
    TypeCase(
        name="another partition column of the same name",
        before=(_MAPPING, _mapped_partition("p", "col-1")),
        lines=(_mapped_partition("p", "col-3"),),
        refused=r"partition columns from \(col-1\) to \(col-3\)",
    ),
    _of_definition(
        "a new column that is not nullable",
        _FLAT,
        table_of(_column("long"), _column("date", name="p"), _REQUIRED),
        _NEW,
    ),
    _of_definition(
        "a new field of a struct that is not nullable",
        table_of(_column(_struct("long"))),
        table_of(_column({"type": "struct", "fields": [*_struct("long")["fields"], _REQUIRED]})),
        "adds the column c.n, which must not be NULL",
    ),
    _of_definition("a new column that is nullable", table_of(_column("long")), _FLAT, ""),
    _of_definition(
        "a new column that is not nullable of a replacement", _FLAT, table_of(_column("long"), _REQUIRED), "", gone("a")
    ),
    _of_definition(
        "a column that is not nullable and that a restore takes back",
        _FLAT,
        table_of(_column("long"), _REQUIRED),
        "",
        operation="RESTORE",
    ),
    _of_definition(
        "a column that was not nullable before", table_of(_REQUIRED), table_of({**_REQUIRED, "name": "N"}), ""
    ),
)


def _partitions(name: str, data_type: str, value: str | None, refused: str) -> TypeCase:
    table = table_of(_column(data_type, name="p"), _column("long"), partitions=("p",))
    return TypeCase(name=name, before=(table,), lines=(file_of("b", p=value),), refused=refused)


_BY_DAY = table_of(_column("date", name="p"), _column("long"), partitions=("p",))

PARTITION_VALUES: tuple[TypeCase, ...] = (
    _partitions("no date", "date", "yesterday", "'yesterday' .* is not a value of type date"),
    _partitions("no number", "integer", "many", "'many' .* is not a value of type int"),
    _partitions("beyond the type", "byte", "128", "'128' .* is not a value of type tinyint"),
    _partitions("no boolean", "boolean", "2", "'2' .* is not a value of type boolean"),
    _partitions("too many digits", "decimal(3,1)", "123.4", "'123.4' .* is not a value of type decimal"),
    _partitions("no timestamp", "timestamp", "12:00 or so", "is not a value of type timestamp"),
    _partitions("a value", "date", "2026-01-01", ""),
    _partitions("null", "date", None, ""),
    _partitions("an empty text", "date", "", ""),
    _partitions("any text", "string", "yesterday", ""),
    _partitions("a timestamp as Spark reads it", "timestamp", "2026-01-01 12:00:00", ""),
    TypeCase(
        name="one of many files",
        before=(_BY_DAY,),
        lines=(*(file_of(f"b{number}", p="2026-01-01") for number in range(MANY)), file_of("x", p="never")),
        refused="'never' .* is not a value of type date",
    ),
    TypeCase(
        name="many files",
        before=(_BY_DAY,),
        lines=tuple(file_of(f"b{number}", p=f"2026-01-{number % 28 + 1:02d}") for number in range(MANY)),
    ),
    TypeCase(
        name="changed rows",
        before=(_BY_DAY,),
        lines=(line_of("cdc", partitionValues='{"p":"never"}'),),
        refused="of the action cdc .*'never' .* is not a value of type date",
    ),
    TypeCase(
        name="a removal of a file with such a value",
        before=(_BY_DAY,),
        lines=(line_of("remove", path='"a"', partitionValues='{"p":"never"}'),),
    ),
    TypeCase(
        name="the types of the same commit",
        before=(table_of(_column("string", name="p"), _column("long"), partitions=("p",)),),
        lines=(_BY_DAY, gone("a"), file_of("b", p="never")),
        refused="'never' .* is not a value of type date",
    ),
    TypeCase(
        name="the types of the same commit and not those before",
        before=(_BY_DAY,),
        lines=(
            table_of(_column("string", name="p"), _column("long"), partitions=("p",)),
            gone("a"),
            file_of("b", p="never"),
        ),
    ),
    TypeCase(
        name="a column by its physical name",
        before=(
            _MAPPING,
            table_of(
                {**_mapped("date", "col-1", 1), "name": "p"},
                _mapped("long", "col-2", 2),
                partitions=("p",),
                **{"delta.columnMapping.mode": "name"},
            ),
        ),
        lines=(file_of("b", **{"col-1": "never"}),),
        refused="'never' .* is not a value of type date",
    ),
    TypeCase(
        name="a key that names no partition column",
        before=(_BY_DAY,),
        lines=(file_of("b", p="2026-01-01", other="never"),),
    ),
)

_PLAIN = table_of(_column("long"))
_LACKS = "deletionVector of the action add needs the feature deletionVectors"
VECTORS: tuple[TypeCase, ...] = (
    TypeCase(name="a vector without the feature", before=(_PLAIN,), lines=(_file_with_vector("b"),), refused=_LACKS),
    TypeCase(
        name="a vector without the feature among many files",
        before=(_PLAIN,),
        lines=(*(file_of(f"b{number}") for number in range(MANY)), _file_with_vector("c")),
        refused=_LACKS,
    ),
    TypeCase(name="a vector", before=(_VECTORS, _PLAIN), lines=(_file_with_vector("b"),)),
    TypeCase(name="a vector and the feature in one commit", before=(_PLAIN,), lines=(_VECTORS, _file_with_vector("b"))),
    TypeCase(
        name="a vector and a protocol without the feature in one commit",
        before=(_VECTORS, _PLAIN),
        lines=(line_of("protocol"), _file_with_vector("b")),
        refused=_LACKS,
    ),
    TypeCase(
        name="a removal of a file with a vector",
        before=(_PLAIN,),
        lines=(line_of("remove", path='"a"', deletionVector=vector_of()),),
    ),
)

CASES = (*TYPE_CHANGES, *KEPT_FILES, *PARTITION_VALUES, *VECTORS)
