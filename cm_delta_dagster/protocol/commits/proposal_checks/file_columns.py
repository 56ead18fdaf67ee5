"""The rules of ``proposal_rules`` for many file actions as columns (protocol heading "Add File and Remove File").

The types of the values, and that no key is unknown or repeated, is known already: see ``json_columns.strict_file_actions``. A rule
runs only for the rows that may break it, and for the smallest and the largest number of a column.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from cm_delta_dagster.protocol.actions.file_columns import dv_ids
from cm_delta_dagster.protocol.actions.paths import suspect_paths
from cm_delta_dagster.protocol.commits.proposal_rules import FOREIGN_RULES

_FEW = 64
_RANGES = 16
_MAX_REFUSED = 64
"""A range of statistics that is not right is divided into ``_RANGES``, so often in one commit."""
_MAX_BRACKETS = 64
"""Brackets of statistics up to which the parser of columns, which recurses, reads them."""
# Five characters of Z85, of which the first is below 82: the group has 32 bits, whatever the others are.
_GROUP = r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@][0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{4}"
_USUAL_VECTORS = {"u": rf"^[0-9A-Za-z]*({_GROUP}){{4}}$", "i": rf"^({_GROUP})+$"}
"""What ``pathOrInlineDv`` usually is, by the storage type: a prefix and a UUID, or a bitmap. All texts of this form are right."""


def flaw_of_files(action: str, files: pa.Table) -> tuple[str, str] | None:
    """The first field of the file actions that breaks its rule, and what is wrong with it; None if all fields are right."""
    for field in files.schema:
        column = files[field.name]
        is_required, rule = FOREIGN_RULES[action][field.name]
        if is_required and column.null_count:
            return field.name, "is missing"
        if column.null_count == len(column):
            continue
        for value in _suspects(field, column):
            if (wrong := rule(value)) is not None:
                return field.name, wrong
    return None


def _suspects(field: pa.Field, column: pa.ChunkedArray) -> Iterator[object]:
    """The values of a column that decide whether all of its values are right."""
    if pa.types.is_integer(field.type):
        yield from (pc.min(column).as_py(), pc.max(column).as_py())
    elif field.name == "deletionVector":
        yield from suspect_vectors(_combined(column.drop_null())).to_pylist()
    elif field.name == "path":
        yield from suspect_paths(column).to_pylist()
    elif field.name == "stats":
        yield from suspect_statistics(column.drop_null())


def suspect_vectors(vectors: pa.StructArray) -> pa.StructArray:
    """The deletion vectors that must be checked by themselves: those whose texts or numbers are not of the usual form."""
    kinds, texts = (pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv"))
    are_right = pc.or_(
        *(
            pc.and_(pc.equal(kinds, kind), pc.match_substring_regex(texts, pattern))
            for kind, pattern in _USUAL_VECTORS.items()
        )
    )
    for name, is_required in (("offset", False), ("sizeInBytes", True), ("cardinality", True)):
        is_count = pc.greater_equal(pc.struct_field(vectors, name), 0)
        are_right = pc.and_(are_right, pc.fill_null(is_count, not is_required))
    return vectors.filter(pc.invert(pc.fill_null(are_right, False)))


def suspect_statistics(texts: pa.ChunkedArray) -> Iterator[str]:
    """The texts that must be checked by themselves. A range that is not right as a whole is divided until few are left."""
    pending = [texts]
    num_refused = 0
    while pending:
        texts = pending.pop()
        if _are_statistics(texts):
            continue
        num_refused += 1
        if len(texts) > _FEW and num_refused <= _MAX_REFUSED:
            size = -(-len(texts) // _RANGES)
            pending += [texts.slice(start, size) for start in range(0, len(texts), size)]
        else:
            yield from texts.to_pylist()


def _are_statistics(texts: pa.ChunkedArray) -> bool:
    """Whether the texts are JSON objects whose number of rows is one; false too if that must be found out one by one."""
    lengths = pc.binary_length(texts)
    long = texts.filter(pc.greater(lengths, _MAX_BRACKETS))
    if len(long) and any(pc.max(pc.count_substring(long, bracket)).as_py() > _MAX_BRACKETS for bracket in "[{"):
        return False
    if not pc.all(pc.starts_with(texts, "{")).as_py():
        return False
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], _combined(texts)), "\n")[0].as_buffer()
    try:
        rows = pa_json.read_json(
            pa.BufferReader(lines),
            read_options=pa_json.ReadOptions(block_size=max(1 << 20, 2 * pc.max(lengths).as_py())),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema({"numRecords": pa.int64()}), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return False
    # Each text begins with an object, so as many objects as texts are one for each.
    if rows.num_rows != len(texts):
        return False
    smallest = pc.min(rows["numRecords"]).as_py()
    return smallest is None or smallest >= 0


def _combined(texts: pa.ChunkedArray) -> pa.Array:
    combined = texts.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def repeated_file(adds: pa.Table, removes: pa.Table) -> str | None:
    """A path about which two actions of one kind say something, or an add and a remove with one deletion vector; None if none.

    Args:
        adds, removes: with the columns ``path`` and ``deletionVector``.
    """
    for files in (adds, removes):
        if (path := _repeated(files["path"])) is not None:
            return path
    if not adds.num_rows or not removes.num_rows:
        return None
    return _repeated(pa.chunked_array([*_file_ids(adds).chunks, *_file_ids(removes).chunks], pa.string()))


def _file_ids(files: pa.Table) -> pa.ChunkedArray:
    vectors = pc.fill_null(dv_ids(files), "")
    return pa.chunked_array([pc.binary_join_element_wise(_combined(files["path"]), vectors, " ")], pa.string())


def _repeated(texts: pa.ChunkedArray) -> str | None:
    if len(texts) == pc.count_distinct(texts).as_py():
        return None
    counts = pc.value_counts(_combined(texts))
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    return str(repeated[0].as_py())
