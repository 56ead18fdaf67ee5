"""Which rows of which files a change concerns: Spark counts them, a row for 64 positions of a file; bitmaps are made of these."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind, FileChanges, FoundChanges
from cm_delta_dagster.spark.library import DataFrame, F
from cm_delta_dagster.spark.read.file_values import FILE_COLUMN, OWN_PREFIX, POSITION_COLUMN, spark_file_key

_WORD_COLUMN = f"{OWN_PREFIX}word"


def counted_changes(joined: DataFrame, *, pair: str, changes: Sequence[str], source_row: str | None) -> DataFrame:
    """A query whose result :func:`found_changes` reads.

    Args:
        joined: pairs of a row of the table, with file and position, and a row of the source, and rows that change without one.
        pair: SQL text: whether the row of the source is there.
        changes: SQL texts: whether clauses of a kind and action apply.
        source_row: column with the number of the row of the source, to count the rows that have partners.
    """
    names = _bit_names(len(changes))
    values = dict(
        zip(("file", "position", "pairs", *names), (FILE_COLUMN, POSITION_COLUMN, pair, pair, *changes), strict=True)
    )
    if source_row is None:
        touched = joined.selectExpr(*[f"{value} AS {name}" for name, value in values.items()])
    else:
        # The rows of the source are counted as those of a file without a name.
        row = f"CASE WHEN {pair} THEN {source_row} END"
        partner = dict(zip(values, ("''", row, "FALSE", pair, *["FALSE"] * len(changes)), strict=True))
        touched = joined.selectExpr(f"explode(array({_struct(values)}, {_struct(partner)})) AS entry").selectExpr(
            "entry.*"
        )
    bit = "shiftleft(1L, CAST(position & 63 AS INT))"
    words = touched.selectExpr(
        f"file AS {FILE_COLUMN}",
        f"shiftright(position, 6) AS {_WORD_COLUMN}",
        "pairs",
        *[f"CASE WHEN {name} THEN {bit} END AS {name}" for name in names],
    )
    return words.groupBy(FILE_COLUMN, _WORD_COLUMN).agg(
        F.expr("count_if(pairs) AS pairs"), *[F.expr(f"bit_or({name}) AS {name}") for name in names]
    )


def _struct(values: Mapping[str, str]) -> str:
    parts = [f"'{name}', {value}" for name, value in values.items()]
    return f"named_struct({', '.join(parts)})"


def _bit_names(num_groups: int) -> list[str]:
    return ["matched", *(f"group{place}" for place in range(num_groups))]


def found_changes(
    counted: pa.Table, groups: Sequence[tuple[ClauseKind, ClauseAction]], *, counts_source: bool
) -> FoundChanges:
    """The changes of each file from rows of :func:`counted_changes`.

    Args:
        groups: kind and action of the clauses of each of its ``changes``.
        counts_source: it was given ``source_row``.
    """
    of_source = pc.equal(counted[FILE_COLUMN], "")
    num_partners = int(_flags(_bits(counted.filter(of_source), "matched")).sum()) if counts_source else None
    counted = counted.filter(pc.invert(of_source))
    counted = counted.combine_chunks()
    words = counted[_WORD_COLUMN].to_numpy()
    files = counted[FILE_COLUMN].combine_chunks().dictionary_encode()
    indices = files.indices.to_numpy()
    bits = {name: _bits(counted, name) for name in _bit_names(len(groups))}
    pairs = counted["pairs"].to_numpy()
    ambiguous = int(pairs.sum()) - int(_flags(bits["matched"]).sum())
    order = np.argsort(indices, kind="stable")
    bounds = np.searchsorted(indices[order], np.arange(len(files.dictionary) + 1))
    changes_by_file: dict[str, FileChanges] = {}
    for place, name in enumerate(files.dictionary.to_pylist()):
        rows = order[bounds[place] : bounds[place + 1]]
        updated: dict[ClauseKind, BitMap64] = {}
        deleted: dict[ClauseKind, BitMap64] = {}
        for number, (kind, action) in enumerate(groups):
            positions = _positions(words[rows], bits[f"group{number}"][rows])
            (updated if action is ClauseAction.UPDATE else deleted)[kind] = positions
        matched = _positions(words[rows], bits["matched"][rows])
        changes_by_file[spark_file_key(name)] = FileChanges(matched=matched, updated=updated, deleted=deleted)
    return FoundChanges(files=changes_by_file, num_ambiguous=ambiguous, num_partners=num_partners)


def _bits(counted: pa.Table, name: str) -> npt.NDArray[np.uint64]:
    values: npt.NDArray[np.int64] = counted[name].fill_null(0).to_numpy().astype(np.int64)
    return values.view(np.uint64)


def _positions(words: npt.NDArray[np.int64], bits: npt.NDArray[np.uint64]) -> BitMap64:
    """The positions whose bits are set; word ``i`` holds those from ``64 * i`` on."""
    used = np.flatnonzero(bits)
    rows, places = np.nonzero(_flags(bits[used]))
    return BitMap64((words[used][rows] * 64 + places).astype(np.uint64))


def _flags(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """One row of 64 zeros and ones for each word, lowest bit first."""
    return np.unpackbits(bits.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
