"""Commits that make a table unreadable: one table of cases for proposals, readers, doctor and repairs.

Each case is one line of a commit as another writer may write it, or a commitInfo with one wrong field. A case names the action and
the field that are wrong, and what readers do with the commit.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cm_delta_dagster.protocol.actions.json_text import MAX_DEPTH
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw, FlawFoundError
from cm_delta_dagster.protocol.commits.proposal_checks.content import checked

TABLE_COLUMNS = ("id", "day")
DAY = "2026-01-01"
GOOD_ROWS = 10
"""Rows of each valid add."""

MANY_DIGITS = "9" * 4301
DEEP = "[" * 1000 + "]" * 1000


_NO_METADATA = '"metadata": {}'
_WRONG_SCHEMAS: Mapping[str, tuple[str, str]] = {
    "a key twice": ('"nullable": true', '"nullable": true, "nullable": false'),
    "a type twice": ('"type": "long"', '"type": "long", "type": "string"'),
    "a key of metadata twice": (_NO_METADATA, '"metadata": {"a": 1, "a": 2}'),
    "metadata NaN": (_NO_METADATA, '"metadata": {"a": NaN}'),
    "metadata beyond a double": (_NO_METADATA, '"metadata": {"a": 1e400}'),
    "metadata many digits": (_NO_METADATA, f'"metadata": {{"a": {"9" * 1001}}}'),
    "metadata nested deeply": (_NO_METADATA, f'"metadata": {{"a": {"[" * MAX_DEPTH + "]" * MAX_DEPTH}}}'),
    "metadata with a lone surrogate": (_NO_METADATA, '"metadata": {"a": "\\ud800"}'),
    "an unknown key NaN": (_NO_METADATA, '"metadata": {}, "a": -Infinity'),
}
"""What is replaced in the schema, and by what."""
_NO_PARTITION_TYPES: Mapping[str, Any] = {
    "a map": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    "an array": {"type": "array", "elementType": "long", "containsNull": True},
    "a struct": {"type": "struct", "fields": []},
}


class Reading(StrEnum):
    """How readers take the commit.

    FAILS: the version cannot be read. ROWS_FAIL: its rows cannot be read. WORKS: this package reads it; the readers of other
    implementations may not, so that the catalog refuses it. TOLERATED: all readers ignore what is wrong, and other writers make it,
    so that the catalog ratifies it; this package does not write it.
    """

    FAILS = "fails"
    ROWS_FAIL = "rows_fail"
    WORKS = "works"
    TOLERATED = "tolerated"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableCommit:
    """One commit.

    Attributes:
        action, field: what is wrong; the field is empty if the whole action or its line is wrong.
        line: JSON text of the wrong line; empty if it is the commitInfo, of which ``info`` replaces fields.
        info: raw JSON text by field of the commitInfo.
    """

    name: str
    action: str
    field: str
    reading: Reading
    line: str = ""
    info: Mapping[str, str] = field(default_factory=dict)

    def data(self, *, txn_id: str, timestamp_ms: int, good: tuple[str, ...] = ()) -> bytes:
        """The content of the commit, with the lines ``good`` before the wrong one."""
        fields = {
            "inCommitTimestamp": str(timestamp_ms),
            "timestamp": str(timestamp_ms),
            "operation": '"WRITE"',
            "txnId": json.dumps(txn_id),
            "engineInfo": '"other"',
            **self.info,
        }
        members = ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items())
        lines = [f'{{"commitInfo":{{{members}}}}}', *good, *([self.line] if self.line else [])]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


ADD: Mapping[str, str] = {
    "path": '"b.parquet"',
    "partitionValues": f'{{"day":"{DAY}"}}',
    "size": "100",
    "modificationTime": "1700000000000",
    "dataChange": "true",
    "stats": '"{\\"numRecords\\":10}"',
}
REMOVE: Mapping[str, str] = {"path": '"old.parquet"', "deletionTimestamp": "1700000000000", "dataChange": "true"}
CDC: Mapping[str, str] = {
    "path": '"_change_data/c.parquet"',
    "partitionValues": f'{{"day":"{DAY}"}}',
    "size": "100",
    "dataChange": "false",
}
TXN: Mapping[str, str] = {"appId": '"app"', "version": "1", "lastUpdated": "1700000000000"}
DOMAIN: Mapping[str, str] = {"domain": '"user.domain"', "configuration": '"{}"', "removed": "false"}
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)


def schema_of(*fields: Mapping[str, Any]) -> str:
    """The JSON text of a ``schemaString`` with these fields; a field is a nullable ``long`` unless it says otherwise."""
    usual = {"type": "long", "nullable": True, "metadata": {}}
    return json.dumps(json.dumps({"type": "struct", "fields": [{**usual, **field} for field in fields]}))


TIMED = {"delta.enableInCommitTimestamps": "true"}
"""The property of a table that a catalog manages."""


def configuration_of(**properties: str) -> str:
    """The JSON text of the ``configuration`` of a table that a catalog manages."""
    return json.dumps({**TIMED, **properties})


METADATA: Mapping[str, str] = {
    "id": '"0b3f0e1c-6f5f-4a56-9b3c-6a3c6f2b1e11"',
    "format": '{"provider":"parquet","options":{}}',
    "schemaString": json.dumps(_SCHEMA),
    "partitionColumns": '["day"]',
    "configuration": configuration_of(),
    "createdTime": "1700000000000",
}
PROTOCOL: Mapping[str, str] = {
    "minReaderVersion": "3",
    "minWriterVersion": "7",
    "readerFeatures": '["catalogManaged"]',
    "writerFeatures": '["catalogManaged","inCommitTimestamp"]',
}
_FIELDS = {
    "add": ADD,
    "remove": REMOVE,
    "cdc": CDC,
    "txn": TXN,
    "domainMetadata": DOMAIN,
    "metaData": METADATA,
    "protocol": PROTOCOL,
}
VECTOR: Mapping[str, str] = {
    "storageType": '"u"',
    "pathOrInlineDv": '"ab^-aqEH.-t@S}K{vb[*k^"',
    "offset": "1",
    "sizeInBytes": "40",
    "cardinality": "2",
}


def flaw_of(data: bytes) -> CommitFlaw | None:
    """Why a catalog does not ratify a commit with this content; None if it does."""
    try:
        checked(data)
    except FlawFoundError as error:
        return error.flaw
    return None


def line_of(action: str, **texts: str | None) -> str:
    """The line of an action with raw JSON texts in place of its valid fields; None leaves a field out."""
    fields = {**_FIELDS[action], **texts}
    members = ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items() if text is not None)
    return f'{{"{action}":{{{members}}}}}'


def vector_of(**texts: str | None) -> str:
    """The JSON text of a deletion vector, as :func:`line_of`."""
    fields = {**VECTOR, **texts}
    return "{" + ",".join(f'"{name}":{text}' for name, text in fields.items() if text is not None) + "}"


def _case(action: str, name: str, reading: Reading, of: str | None = None, **texts: str | None) -> UnreadableCommit:
    """A case in which one field has another text; ``of`` names the field in messages if it is another one."""
    wrong = next(iter(texts)) if of is None else of
    return UnreadableCommit(
        name=f"{action}.{name}", action=action, field=wrong, reading=reading, line=line_of(action, **texts)
    )


FAILS, ROWS_FAIL, WORKS, TOLERATED = Reading.FAILS, Reading.ROWS_FAIL, Reading.WORKS, Reading.TOLERATED

_BAD_PATHS: Mapping[str, str] = {
    "above the table": "../x",
    "absolute with dots": "file:///a/../x",
    "broken escape": "a%zz",
    "escape cut off": "a%f",
    "no UTF-8": "a%ff",
    "the root": "/",
    "the table": ".",
    "empty": "",
    "dots within": "x/../f",
    "escaped dots": "x/%2e%2E/f",
    "a scheme alone": "file:///",
    "dots before an escaped slash": "..%2Fy",
    "escaped dots and slash": "%2E%2E%2fy",
    "dots between escaped slashes": "x%2F..%2Fy",
    "dots between two kinds of slashes": "a%2F../b",
    "an escaped slash": "%2F.%2F",
}
_WRONG_TEXTS: Mapping[str, str] = {
    "a number": "5",
    "an array": "[]",
    "a lone surrogate": '"\\ud800"',
}
_WRONG_LONGS: Mapping[str, str] = {
    "text": '"5"',
    "exponent beyond": "1e400",
    "fraction": "1.5",
    "beyond 64 bits": "9223372036854775808",
    "many digits": MANY_DIGITS,
    "an object": "{}",
    "NaN": "NaN",
}
_WRONG_MARKS: Mapping[str, str] = {
    "both keys": '{"highWaterMark":9,"rowIdHighWaterMark":3}',
    "a mark twice": '{"rowIdHighWaterMark":9,"rowIdHighWaterMark":3}',
    "the same mark twice": '{"rowIdHighWaterMark":9,"rowIdHighWaterMark":9}',
    "another key": '{"rowIdHighWaterMark":9,"other":1}',
    "the key in another case": '{"rowIdHighWaterMark":9,"rowIDHighWaterMark":3}',
    "another domain": '{"rowIdHighWaterMark":9,"domainName":"delta.clustering"}',
}
_WRONG_MAPS: Mapping[str, str] = {"text": '"x"', "a number": "5", "an array": "[1]"}


def _cases() -> Iterator[UnreadableCommit]:
    for action in ("add", "remove", "cdc"):
        for name, path in _BAD_PATHS.items():
            yield _case(action, f"path {name}", FAILS, path=json.dumps(path))
        for name, text in _WRONG_TEXTS.items():
            yield _case(action, f"path {name}", FAILS, path=text)
        yield _case(action, "without path", FAILS, path=None)
        yield _case(action, "size fraction", FAILS, size="1.5")
        yield _case(action, "size text", FAILS, size='"big"')
        yield _case(action, "size beyond 64 bits", FAILS, size="9223372036854775808")
        yield _case(action, "size many digits", FAILS, size=MANY_DIGITS)
        for name, text in _WRONG_MAPS.items():
            yield _case(action, f"partitionValues {name}", FAILS, partitionValues=text)
        yield _case(action, "partitionValues a number within", FAILS, partitionValues='{"day":5}')
        yield _case(action, "tags a list within", FAILS, tags='{"a":[]}')
    # A remove may repeat them, because the file could not be removed otherwise.
    for action in ("add", "cdc"):
        yield _case(action, "path NUL", WORKS, path='"a%00b"')
        yield _case(action, "path NUL unescaped", WORKS, path='"a\\u0000b"')
        yield _case(action, "path a directory", WORKS, path='"a/"')
        yield _case(action, "path of the log", WORKS, path='"_delta_log/x"')
        yield _case(action, "size negative", WORKS, size="-1")
    yield _case("add", "baseRowId negative", WORKS, baseRowId="-5")
    yield _case(
        "add", "deletionVector numbers negative", WORKS, deletionVector=vector_of(offset="-5", sizeInBytes="-1")
    )
    for action in ("add", "remove"):
        yield _case(action, "stats NaN", TOLERATED, stats=json.dumps('{"numRecords":10,"maxValues":{"id":NaN}}'))
        yield _case(action, "stats Infinity", TOLERATED, stats=json.dumps('{"minValues":{"id":-Infinity}}'))
        yield _case(action, "stats numRecords decimal", TOLERATED, stats=json.dumps('{"numRecords":10.0}'))
        yield _case(action, "dataChange text", FAILS, dataChange='"true"')
        yield _case(action, "stats a number", FAILS, stats="5")
        yield _case(action, "stats no JSON", WORKS, stats='"{"')
        yield _case(action, "stats a list", WORKS, stats='"[]"')
        yield _case(action, "stats nested deeply", WORKS, stats=json.dumps('{"a":' + DEEP + "}"))
        for again in (3, 10):
            twice = json.dumps(f'{{"numRecords":10,"numRecords":{again}}}')
            reading = WORKS if action == "add" else TOLERATED
            yield _case(action, f"stats numRecords twice, at last {again}", reading, stats=twice)
        yield _case(action, "stats numRecords negative", WORKS, stats='"{\\"numRecords\\":-1}"')
        yield _case(action, "baseRowId text", FAILS, baseRowId='"a"')
        yield _case(action, "deletionVector text", FAILS, deletionVector='"u"')
        for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"):
            yield _case(action, f"deletionVector without {name}", FAILS, deletionVector=vector_of(**{name: None}))
        yield _case(
            action, "deletionVector size beyond 32 bits", FAILS, deletionVector=vector_of(sizeInBytes="2147483648")
        )
        yield _case(action, "deletionVector offset text", FAILS, deletionVector=vector_of(offset='"x"'))
    yield _case("add", "deletionVector unknown storage", ROWS_FAIL, deletionVector=vector_of(storageType='"x"'))
    yield _case("add", "deletionVector name too short", ROWS_FAIL, deletionVector=vector_of(pathOrInlineDv='"ab"'))
    yield _case(
        "add",
        "deletionVector above the table",
        ROWS_FAIL,
        deletionVector=vector_of(pathOrInlineDv='"../ab^-aqEH.-t@S}K{vb[*k^"'),
    )
    yield _case(
        "add",
        "deletionVector absolute with dots",
        ROWS_FAIL,
        deletionVector=vector_of(storageType='"p"', pathOrInlineDv='"file:///a/../x"'),
    )
    yield _case(
        "add",
        "deletionVector inline no Z85",
        ROWS_FAIL,
        deletionVector=vector_of(storageType='"i"', pathOrInlineDv='"abc"', offset=None),
    )
    yield _case("add", "modificationTime text", FAILS, modificationTime='"now"')
    yield _case("add", "modificationTime beyond year 9999", WORKS, modificationTime="9223372036854775807")
    yield _case("add", "clusteringProvider a number", FAILS, clusteringProvider="5")
    yield _case("remove", "deletionTimestamp text", FAILS, deletionTimestamp='"now"')
    for name, text in _WRONG_LONGS.items():
        yield _case("txn", f"version {name}", FAILS, version=text)
        yield _case("txn", f"lastUpdated {name}", FAILS, lastUpdated=text)
    yield _case("txn", "version exponent", WORKS, version="1e2")
    yield _case("txn", "lastUpdated exponent", WORKS, lastUpdated="1e2")
    yield _case("txn", "without version", FAILS, version=None)
    for name, text in _WRONG_TEXTS.items():
        yield _case("txn", f"appId {name}", FAILS, appId=text)
        yield _case("domainMetadata", f"domain {name}", FAILS, domain=text)
        yield _case("domainMetadata", f"configuration {name}", FAILS, configuration=text)
    yield _case("domainMetadata", "removed text", FAILS, removed='"no"')
    yield _case(
        "domainMetadata",
        "row tracking no JSON",
        WORKS,
        of="configuration",
        domain='"delta.rowTracking"',
        configuration='"{"',
    )
    for name, text in _WRONG_MARKS.items():
        yield _case(
            "domainMetadata",
            f"row tracking with {name}",
            WORKS,
            of="configuration",
            domain='"delta.rowTracking"',
            configuration=json.dumps(text),
        )
    yield _case(
        "domainMetadata",
        "clustering columns twice",
        WORKS,
        of="configuration",
        domain='"delta.clustering"',
        configuration=json.dumps('{"clusteringColumns":[["id"]],"clusteringColumns":[["day"]]}'),
    )
    yield _case(
        "domainMetadata",
        "clustering no columns",
        WORKS,
        of="configuration",
        domain='"delta.clustering"',
        configuration='"{}"',
    )
    yield from _definitions()
    yield from _columns()
    yield from _infos()
    yield from _lines()


MAPPED_SCHEMA = schema_of(
    {"name": "id", "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}},
    {
        "name": "day",
        "type": "date",
        "metadata": {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-2"},
    },
)
_BAD_PROPERTIES: Mapping[str, str] = {
    "delta.columnMapping.mode": "xyz",
    "delta.isolationLevel": "abc",
    "delta.checkpointInterval": "0",
    "delta.checkpointPolicy": "v3",
    "delta.minWriterVersion": MANY_DIGITS,
    "delta.deletedFileRetentionDuration": "abc",
    "delta.logRetentionDuration": "interval 1 month",
    "delta.appendOnly": "yes",
    "delta.dataSkippingNumIndexedCols": "-2",
    "delta.inCommitTimestampEnablementVersion": "x",
}


def _columns() -> Iterator[UnreadableCommit]:
    """Definitions whose JSON is right, and whose columns or properties clients cannot use."""
    day = {"name": "day", "type": "date"}
    twice = {"type": "struct", "fields": json.loads(json.loads(schema_of({"name": "a"}, {"name": "A"})))["fields"]}
    schemas: Mapping[str, Sequence[Mapping[str, Any]]] = {
        "a column twice": ({"name": "id"}, {"name": "id"}, day),
        "a column twice but for case": ({"name": "id"}, {"name": "ID"}, day),
        "a nested column twice": ({"name": "s", "type": twice}, day),
        "a column of an array twice": (
            {"name": "s", "type": {"type": "array", "elementType": twice, "containsNull": True}},
            day,
        ),
        "a column without a name": ({"name": ""}, day),
        "a change to another type": (
            {
                "name": "id",
                "type": "string",
                "metadata": {"delta.typeChanges": [{"fromType": "long", "toType": "string"}]},
            },
            day,
        ),
        "changes of types no list": ({"name": "id", "metadata": {"delta.typeChanges": 5}}, day),
    }
    for name, fields in schemas.items():
        yield _case("metaData", f"schema with {name}", WORKS, schemaString=schema_of(*fields))
    for name, (replaced, text) in _WRONG_SCHEMAS.items():
        assert replaced in _SCHEMA
        schema = _SCHEMA.replace(replaced, text, 1)
        yield _case("metaData", f"schema with {name}", WORKS, schemaString=json.dumps(schema))
    for name, data_type in _NO_PARTITION_TYPES.items():
        columns = schema_of({"name": "id"}, {"name": "day", "type": data_type})
        yield _case("metaData", f"partitionColumns {name}", WORKS, of="partitionColumns", schemaString=columns)
    nested: Any = "long"
    for _ in range(MAX_DEPTH):
        nested = {"type": "array", "elementType": nested, "containsNull": True}
    yield _case(
        "metaData",
        "schema with a type nested deeply",
        WORKS,
        schemaString=schema_of({"name": "id", "type": nested}, day),
    )
    for key, value in _BAD_PROPERTIES.items():
        yield _case("metaData", f"configuration {key}", WORKS, configuration=configuration_of(**{key: value}))
    identity, name = "delta.columnMapping.id", "delta.columnMapping.physicalName"
    metadatas: Mapping[str, Mapping[str, Any]] = {
        "no physical name": {identity: 2},
        "a physical name of another type": {identity: 2, name: 5},
        "an empty physical name": {identity: 2, name: ""},
        "a physical name twice": {identity: 2, name: "col-1"},
        "a physical name twice but for case": {identity: 2, name: "COL-1"},
        "no id": {name: "col-2"},
        "an id of another type": {identity: "2", name: "col-2"},
        "an id twice": {identity: 1, name: "col-2"},
    }
    for mode, (text, metadata) in itertools.product(("name", "id"), metadatas.items()):
        yield _case(
            "metaData",
            f"mapping by {mode} with {text}",
            WORKS,
            schemaString=schema_of(
                {"name": "id", "metadata": {identity: 1, name: "col-1"}}, {**day, "metadata": metadata}
            ),
            configuration=configuration_of(**{"delta.columnMapping.mode": mode}),
        )


def _definitions() -> Iterator[UnreadableCommit]:
    yield _case("metaData", "schema no JSON", FAILS, schemaString='"no JSON"')
    yield _case("metaData", "schema no struct", FAILS, schemaString='"5"')
    yield _case("metaData", "schema nested deeply", FAILS, schemaString=json.dumps(DEEP))
    yield _case("metaData", "schema many digits", FAILS, schemaString=json.dumps(MANY_DIGITS))
    yield _case("metaData", "schema unknown type", FAILS, schemaString=json.dumps(_SCHEMA.replace("long", "wrong")))
    yield _case("metaData", "schema a number", FAILS, schemaString="5")
    yield _case("metaData", "without schema", FAILS, schemaString=None)
    yield _case("metaData", "without id", FAILS, id=None)
    yield _case("metaData", "format text", FAILS, format='"parquet"')
    yield _case("metaData", "partitionColumns text", FAILS, partitionColumns='"day"')
    yield _case("metaData", "partitionColumns unknown", FAILS, partitionColumns='["nowhere"]')
    yield _case("metaData", "configuration a list within", FAILS, configuration='{"a":[]}')
    yield _case("metaData", "createdTime text", FAILS, createdTime='"now"')
    yield _case("protocol", "minReaderVersion text", FAILS, minReaderVersion='"3"')
    yield _case("protocol", "without minWriterVersion", FAILS, minWriterVersion=None)
    yield _case("protocol", "writerFeatures text", FAILS, writerFeatures='"catalogManaged"')
    yield _case("protocol", "readerFeatures of numbers", FAILS, readerFeatures="[5]")
    yield _case("protocol", "without inCommitTimestamp", WORKS, writerFeatures='["catalogManaged"]')
    yield _case(
        "protocol",
        "writerFeatures unknown",
        WORKS,
        of="",
        writerFeatures='["catalogManaged","inCommitTimestamp","unheardOf"]',
    )
    for name, text in (("without", "{}"), ("off", '{"delta.enableInCommitTimestamps":"false"}')):
        yield _case("metaData", f"in-commit timestamps {name}", WORKS, configuration=text)


def _infos() -> Iterator[UnreadableCommit]:
    def info(field: str, name: str, reading: Reading, text: str) -> UnreadableCommit:
        return UnreadableCommit(
            name=f"commitInfo.{field} {name}", action="commitInfo", field=field, reading=reading, info={field: text}
        )

    yield info("inCommitTimestamp", "text", FAILS, '"2026-01-01"')
    yield info("inCommitTimestamp", "fraction", FAILS, "1.5")
    yield info("inCommitTimestamp", "many digits", FAILS, MANY_DIGITS)
    yield info("inCommitTimestamp", "null", FAILS, "null")
    yield info("unknown", "many digits", WORKS, MANY_DIGITS)
    yield info("unknown", "nested deeply", WORKS, DEEP)
    yield info("unknown", "NaN", WORKS, "NaN")
    yield info("unknown", "beyond a double", WORKS, "1e400")
    yield info("unknown", "a lone surrogate", WORKS, '"\\ud800"')
    yield info("operation", "a number", WORKS, "5")
    yield info("operationParameters", "text", WORKS, '"x"')
    yield info("isBlindAppend", "text", WORKS, '"yes"')
    yield info("readVersion", "text", WORKS, '"1"')
    yield info("tags", "text", WORKS, '"x"')


def _lines() -> Iterator[UnreadableCommit]:
    def line(name: str, reading: Reading, text: str, action: str = "", field: str = "") -> UnreadableCommit:
        return UnreadableCommit(name=f"line {name}", action=action, field=field, reading=reading, line=text)

    add = line_of("add")
    yield line("no JSON", FAILS, add[:-1])
    yield line("an array", FAILS, "[]")
    yield line("a number", FAILS, "5")
    yield line("action no object", FAILS, '{"add":5}', action="add")
    yield line("two actions", WORKS, add[:-1] + ',"txn":' + line_of("txn")[7:])
    yield line("no action", WORKS, "{}")
    yield line("blank", TOLERATED, " ")
    yield line("sidecar", WORKS, '{"sidecar":{"path":"x","sizeInBytes":1,"modificationTime":1}}', action="sidecar")
    yield line("checkpointMetadata", WORKS, '{"checkpointMetadata":{"version":1}}', action="checkpointMetadata")
    yield line("a field twice", WORKS, add.replace('"size":100', '"size":100,"size":100'), action="add", field="size")
    yield line("second commitInfo", WORKS, '{"commitInfo":{}}', action="commitInfo")
    for name, text in (("many digits", MANY_DIGITS), ("nested deeply", DEEP), ("NaN", "NaN")):
        yield line(f"unknown field {name}", WORKS, line_of("add", unknown=text), action="add", field="unknown")
        yield line(f"unknown action {name}", WORKS, f'{{"unknown":{{"a":{text}}}}}', action="unknown", field="a")


CASES: tuple[UnreadableCommit, ...] = tuple(_cases())
BY_NAME: Mapping[str, UnreadableCommit] = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES)
REFUSED: tuple[UnreadableCommit, ...] = tuple(case for case in CASES if case.reading is not TOLERATED)
"""The commits that a catalog does not ratify."""
