"""Expected outcomes for pairs of transactions that read the same snapshot.

A cell has the outcome for the transaction of its row after that of its column was committed. Three suites run all cells:
``tests/protocol`` tests the rules, ``tests/client`` the client with a catalog, ``tests/differential`` delta-spark.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)
from cm_delta_dagster.protocol.actions.file_columns import remove_of
from cm_delta_dagster.protocol.commits.conflicts import ConflictKind, IsolationLevel
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.schema.types import LONG, STRING, StructField, StructType, schema_to_json
from tests.support.actions import add_file

SCHEMA = StructType((StructField("p", STRING), StructField("x", LONG)))
PARTITION_COLUMNS = ("p",)
FEATURES = ("domainMetadata", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck")
"""Features of the table in addition to the default ones."""


def _file(name: str, partition: str, low: int | None = None, high: int | None = None) -> AddFile:
    """A file of three rows with ``low <= x <= high``, or without statistics of ``x``."""
    statistics: dict[str, object] = {"numRecords": 3}
    if low is not None:
        statistics |= {"minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": 0}}
    return add_file(f"{name}.parquet", partition_values={"p": partition}, size=100, stats=json.dumps(statistics))


def _vector(role: str) -> DeletionVectorDescriptor:
    name = {
        "earlier": "ab^-aqEH.-t@S}K{vb[*ke",
        "loser": "ab^-aqEH.-t@S}K{vb[*k^",
        "winner": "ab^-aqEH.-t@S}K{vb[*kk",
    }[role]
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, size_in_bytes=40, cardinality=1, offset=1)


BASE: Mapping[str, AddFile] = {
    "a1": _file("a1", "a", 1, 3),
    "a4": _file("a4", "a", 4, 6),
    "b1": _file("b1", "b", 1, 3),
    "c1": replace(_file("c1", "c", 1, 3), deletion_vector=_vector("earlier")),
}
"""The files of the snapshot that both transactions read, by name."""

WHOLE_TABLE = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One transaction.

    Attributes:
        reads: SQL conditions for the rows that it reads.
        removes: files of ``BASE`` that it removes.
        marks: files of ``BASE`` to which it adds a deletion vector.
        adds: partition and range of ``x`` of each file that it adds.
        rearranges: it rewrites files without changing rows.
        features: features that it adds to the protocol.
        metadata: returns the changed metadata.
    """

    reads: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    adds: tuple[tuple[str, int | None, int | None], ...] = ()
    rearranges: bool = False
    app_id: str | None = None
    domain: str | None = None
    features: tuple[str, ...] = ()
    metadata: Callable[[Metadata], Metadata] | None = None

    @property
    def changes_no_row(self) -> bool:
        """Whether it changes neither rows nor metadata nor other state of the table."""
        return self.rearranges or self == Act()

    @property
    def is_blind_append(self) -> bool:
        """Whether it adds rows without reading any; this conflicts only with readers under Serializable."""
        return bool(self.adds) and not self.reads and self.metadata is None

    def actions(self, role: str, protocol: Protocol, metadata: Metadata) -> list[Action]:
        """The actions that it commits; ``role`` makes the file names of two transactions distinct."""
        made: list[Action] = []
        if self.features:
            made.append(with_features(protocol, self.features))
        if self.metadata is not None:
            made.append(self.metadata(metadata))
        if self.app_id is not None:
            made.append(SetTransaction(app_id=self.app_id, version=1))
        if self.domain is not None:
            made.append(DomainMetadata(domain=self.domain, configuration=role))
        changes = not self.rearranges
        for name in (*self.removes, *self.marks):
            made.append(remove_of(BASE[name], deletion_timestamp=1_700_000_000_000, data_change=changes))
        for name in self.marks:
            made.append(replace(BASE[name], deletion_vector=_vector(role)))
        for number, (partition, low, high) in enumerate(self.adds):
            made.append(replace(_file(f"{role}{number}", partition, low, high), data_change=changes))
        return made


def _with_properties(**properties: str) -> Callable[[Metadata], Metadata]:
    named = {f"delta.{name}": value for name, value in properties.items()}
    return lambda metadata: replace(metadata, configuration={**metadata.configuration, **named})


def _unchanged(metadata: Metadata) -> Metadata:
    return metadata


def _with_column(metadata: Metadata) -> Metadata:
    wider = StructType((*SCHEMA.fields, StructField("y", LONG)))
    return replace(metadata, schema_string=schema_to_json(wider))


ROW_ACTS: Mapping[str, Act] = {
    "add a": Act(adds=(("a", 1, 3),)),
    "add b": Act(adds=(("b", 1, 3),)),
    "add ?": Act(adds=(("a", None, None),)),
    "copy": Act(reads=("p = 'b'",), adds=(("a", 1, 3),)),
    "del a": Act(reads=("p = 'a'",), removes=("a1", "a4")),
    "del x": Act(reads=("x = 5",), removes=("a4",), adds=(("a", 4, 6),)),
    "mark": Act(reads=("p = 'a' AND x = 2",), marks=("a1",)),
    "upd": Act(reads=("p = 'a' AND x = 3",), marks=("a1",), adds=(("a", 3, 3),)),
    "ovw": Act(reads=(WHOLE_TABLE,), removes=("a1", "a4", "b1", "c1"), adds=(("a", 1, 3),)),
    "ovw b": Act(reads=("p = 'b'",), removes=("b1",), adds=(("b", 1, 3),)),
    "mrg 7": Act(reads=("x >= 7 AND x <= 9",), adds=(("a", 7, 9),)),
    "mrg 4": Act(reads=("x >= 4 AND x <= 5",), removes=("a4",), adds=(("a", 4, 6),)),
    "mrg a": Act(reads=("p = 'a' AND x >= 1 AND x <= 2",), removes=("a1",), adds=(("a", 1, 3),)),
    "mrg b": Act(reads=("p = 'b' AND x >= 1 AND x <= 2",), removes=("b1",), adds=(("b", 1, 3),)),
    "opt a": Act(reads=("p = 'a'",), removes=("a1", "a4"), adds=(("a", 1, 6),), rearranges=True),
    "org c": Act(reads=("p = 'c'",), removes=("c1",), adds=(("c", 1, 3),), rearranges=True),
    "mrk c": Act(reads=("p = 'c' AND x = 2",), marks=("c1",)),
    "rst": Act(reads=(WHOLE_TABLE,), removes=("a4",), adds=(("b", 4, 6),), metadata=_unchanged),
}
"""Transactions that change rows or files: blind appends (the third without statistics), an append of rows that were read,
deletes by rewriting and by a deletion vector, an update of another row by a vector of the same file, overwrites, merges on new
keys, existing keys and keys of one partition, an OPTIMIZE, a REORG that rewrites the file with a deletion vector, a delete that
replaces this vector, and a RESTORE, which always writes the metadata.
"""

STATE_ACTS: Mapping[str, Act] = {
    "add": Act(adds=(("a", 1, 3),)),
    "del b": Act(reads=("p = 'b'",), removes=("b1",)),
    "opt a": Act(reads=("p = 'a'",), removes=("a1", "a4"), adds=(("a", 1, 6),), rearranges=True),
    "txn m": Act(adds=(("a", 1, 3),), app_id="m"),
    "txn n": Act(adds=(("a", 1, 3),), app_id="n"),
    "dom d": Act(domain="d"),
    "dom e": Act(domain="e"),
    "look": Act(reads=(WHOLE_TABLE,), domain="e"),
    "prop": Act(metadata=_with_properties(logRetentionDuration="interval 9 days")),
    "col": Act(metadata=_with_column, adds=(("a", 1, 3),)),
    "dv": Act(metadata=_with_properties(enableDeletionVectors="true")),
    "ntz": Act(features=("timestampNtz",)),
    "check": Act(features=("checkConstraints",)),
    "ids": Act(features=("rowTracking",)),
    "none": Act(),
}
"""Transactions that change metadata, protocol, ``txn`` or domains, and some that do not. ``look`` writes a domain that depends on
all rows, ``prop`` and ``dv`` set a property (``dv`` does not conflict with row changes), ``col`` appends with a new column, and the
next three list a feature that is not active.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cell at one isolation level. ``expected`` is None if both transactions succeed.

    ``in_delta_spark`` is the outcome in delta-spark, ``difference`` the reason why ours differs.
    """

    loser: str
    winner: str
    isolation: IsolationLevel
    expected: ConflictKind | None
    in_delta_spark: ConflictKind | None
    difference: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTable:
    """Outcomes for losers (rows) and winners (columns) among ``acts``, on a table with ``properties``.

    A cell has one letter for WriteSerializable and one for Serializable. If delta-spark differs, the key of the difference
    and the two letters for delta-spark follow.
    """

    acts: Mapping[str, Act]
    properties: Mapping[str, str]
    text: str

    def cases(self) -> Iterator[Case]:
        header, *rows = self.text.strip("\n").splitlines()
        winners = _cells(header)[1:]
        assert winners == list(self.acts)
        for row in rows:
            loser, *cells = _cells(row)
            for winner, cell in zip(winners, cells, strict=True):
                yield from _of_cell(loser, winner, cell)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _of_cell(loser: str, winner: str, cell: str) -> Iterator[Case]:
    ours, key, theirs = cell[:2], cell[2:3], cell[3:] or cell[:2]
    for isolation, mine, other in zip(
        (IsolationLevel.WRITE_SERIALIZABLE, IsolationLevel.SERIALIZABLE), ours, theirs, strict=True
    ):
        yield Case(
            loser=loser,
            winner=winner,
            isolation=isolation,
            expected=KINDS[mine],
            in_delta_spark=KINDS[other],
            difference=DIFFERENCES[key] if mine != other else None,
        )


KINDS: Mapping[str, ConflictKind | None] = {
    ".": None,
    "A": ConflictKind.CONCURRENT_APPEND,
    "R": ConflictKind.CONCURRENT_DELETE_READ,
    "D": ConflictKind.CONCURRENT_DELETE_DELETE,
    "T": ConflictKind.CONCURRENT_TRANSACTION,
    "O": ConflictKind.CONCURRENT_DOMAIN,
    "M": ConflictKind.METADATA_CHANGED,
    "P": ConflictKind.PROTOCOL_CHANGED,
}
"""Letters in the tables; a dot if both transactions succeed."""

DIFFERENCES: Mapping[str, str] = {
    "s": "Delta-spark compares partitions; we also compare statistics, so that writes of different keys do not conflict.",
    "r": "Delta-spark treats a rewrite of files as a change of their rows; we do not, so that only transactions that remove "
    "the same files conflict.",
    "o": "Delta-spark reports a domain that both wrote as a ConcurrentTransaction; we have a kind of its own.",
}
"""Reasons for differences from delta-spark."""


def base_metadata(table_id: str, table: CaseTable, isolation: IsolationLevel) -> Metadata:
    """The metadata of the snapshot that both transactions read."""
    return Metadata(
        id=table_id,
        schema_string=schema_to_json(SCHEMA),
        partition_columns=PARTITION_COLUMNS,
        configuration={**table.properties, "delta.isolationLevel": isolation.value},
        created_time=1,
    )


_ROWS = """
     | add a| add b| add ?| copy | del a| del x| mark | upd  | ovw  | ovw b| mrg 7| mrg 4| mrg a| mrg b| opt a| org c| mrk c| rst
add a| ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..
add b| ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..
add ?| ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..
copy | ..   | .A   | ..   | ..   | ..   | ..   | ..   | ..   | RR   | AA   | ..   | ..   | ..   | AA   | ..   | ..   | ..   | AA
del a| .A   | ..   | .A   | AA   | RR   | AA   | AA   | AA   | AA   | ..   | AA   | AA   | AA   | ..   | DDrAA| ..   | ..   | RR
del x| ..s.A| ..s.A| .A   | ..sAA| RR   | AA   | ..sAA| ..sAA| RRsAA| ..sAA| ..sAA| AA   | ..sAA| ..sAA| DDrAA| ..rAA| ..sAA| AA
mark | .A   | ..   | .A   | AA   | RR   | ..sAA| AA   | AA   | AA   | ..   | ..sAA| ..sAA| AA   | ..   | DDrAA| ..   | ..   | ..sRR
upd  | .A   | ..   | .A   | AA   | RR   | ..sAA| AA   | AA   | AA   | ..   | ..sAA| ..sAA| AA   | ..   | DDrAA| ..   | ..   | ..sRR
ovw  | .A   | .A   | .A   | AA   | RR   | AA   | AA   | AA   | AA   | AA   | AA   | AA   | AA   | AA   | DDrAA| DDrAA| AA   | AA
ovw b| ..   | .A   | ..   | ..   | ..   | ..   | ..   | ..   | RR   | AA   | ..   | ..   | ..   | AA   | ..   | ..   | ..   | AA
mrg 7| ..s.A| ..s.A| .A   | ..sAA| ..sRR| ..sAA| ..sAA| ..sAA| ..sAA| ..sAA| AA   | ..sAA| ..sAA| ..sAA| ..rAA| ..rAA| ..sAA| ..sAA
mrg 4| ..s.A| ..s.A| .A   | ..sAA| RR   | AA   | ..sAA| ..sAA| RRsAA| ..sAA| ..sAA| AA   | ..sAA| ..sAA| DDrAA| ..rAA| ..sAA| AA
mrg a| .A   | ..   | .A   | AA   | RR   | ..sAA| AA   | AA   | AA   | ..   | ..sAA| ..sAA| AA   | ..   | DDrAA| ..   | ..   | ..sRR
mrg b| ..   | .A   | ..   | ..   | ..   | ..   | ..   | ..   | RR   | AA   | ..   | ..   | ..   | AA   | ..   | ..   | ..   | ..sAA
opt a| ..   | ..   | ..   | ..   | RR   | RR   | RR   | RR   | RR   | ..   | ..   | RR   | RR   | ..   | DDrRR| ..   | ..   | RR
org c| ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | RR   | ..   | ..   | ..   | ..   | ..   | ..   | DDrRR| RR   | ..
mrk c| ..   | ..   | ..   | ..   | ..   | ..   | ..   | ..   | RR   | ..   | ..   | ..   | ..   | ..   | ..   | DDrAA| AA   | ..
rst  | AA   | AA   | AA   | AA   | RR   | AA   | AA   | AA   | AA   | AA   | AA   | AA   | AA   | AA   | DDrAA| ..rAA| AA   | MM
"""

_STATE = """
      | add   | del b | opt a | txn m | txn n | dom d | dom e | look  | prop  | col   | dv    | ntz   | check | ids   | none
add   | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | ..    | ..    | ..    | ..
del b | ..    | RR    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | ..    | ..    | ..    | ..
opt a | ..    | ..    | DDrRR | ..    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | ..    | ..    | ..    | ..
txn m | ..    | ..    | ..    | TT    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | ..    | ..    | ..    | ..
txn n | ..    | ..    | ..    | ..    | TT    | ..    | ..    | ..    | MM    | MM    | ..    | ..    | ..    | ..    | ..
dom d | ..    | ..    | ..    | ..    | ..    | OOoTT | ..    | ..    | MM    | MM    | ..    | ..    | ..    | ..    | ..
dom e | ..    | ..    | ..    | ..    | ..    | ..    | OOoTT | OOoTT | MM    | MM    | ..    | ..    | ..    | ..    | ..
look  | .A    | RR    | ..rAA | .A    | .A    | ..    | OOoTT | OOoTT | MM    | MM    | ..    | ..    | ..    | ..    | ..
prop  | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | MM    | ..    | ..    | ..    | ..
col   | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | MM    | ..    | ..    | ..    | ..
dv    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | MM    | ..    | ..    | ..    | ..
ntz   | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | PP    | PP    | PP    | ..
check | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | PP    | PP    | PP    | ..
ids   | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | PP    | PP    | PP    | ..
none  | ..    | ..    | ..    | ..    | ..    | ..    | ..    | ..    | MM    | MM    | ..    | ..    | ..    | ..    | ..
"""

TABLES: Mapping[str, CaseTable] = {
    "rows": CaseTable(acts=ROW_ACTS, properties={"delta.enableDeletionVectors": "true"}, text=_ROWS),
    "state": CaseTable(acts=STATE_ACTS, properties={"delta.enableDeletionVectors": "false"}, text=_STATE),
}
