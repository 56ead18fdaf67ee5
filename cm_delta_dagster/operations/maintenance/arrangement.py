"""Ordering rows by columns in OPTIMIZE: clustering of clustered tables, and Z-order of other tables.

Files that OPTIMIZE clustered carry the provider, the columns and the id of the run in their add actions. A later run leaves them as
they are, except for runs that made less than one file of the target size: those are clustered again together with new files.
"""

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.maintenance.packing import is_sparse, pack
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features.clustering import PROVIDER, is_clustered, stored_clustering_columns
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType, StructType
from cm_delta_dagster.protocol.statistics.curve_ranges import LayoutColumn
from cm_delta_dagster.protocol.statistics.curves import MAX_Z_ORDER_COLUMNS, Curve, curve_for
from cm_delta_dagster.protocol.statistics.layout_columns import check_layout_columns
from cm_delta_dagster.remedies import SetClusteringColumns

RUN_TAG = "ZCUBE_ID"
"""Tag of a clustered file with the id of the run. delta-spark uses the same names."""
COLUMNS_TAG = "ZCUBE_ZORDER_BY"
CURVE_TAG = "ZCUBE_ZORDER_CURVE"

_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The columns by which a rewrite orders rows.

    Attributes:
        stored: the columns by physical names; empty for a Z-order.
        clusters: whether they are the clustering columns of the table.
        run: id of the rewrite.
    """

    columns: tuple[LayoutColumn, ...]
    stored: tuple[ColumnPath, ...] = ()
    clusters: bool
    run: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def names(self) -> list[str]:
        """The columns by their logical names, for the history of the table."""
        return [".".join(column.path) for column in self.columns]

    @property
    def curve(self) -> Curve:
        """The curve along which rows are ordered."""
        return curve_for(len(self.columns), hilbert=self.clusters)

    @property
    def columns_tag(self) -> str:
        """The columns as the tag of files records them."""
        return json.dumps([".".join(path) for path in self.stored], separators=(",", ":"), ensure_ascii=False)


def arrangement_of(snapshot: Snapshot, z_order_by: Sequence[str], *, full: bool) -> Arrangement | None:
    """The columns by which a rewrite orders the rows; None for a rewrite by bin packing.

    Raises:
        InvalidArgumentError: rows cannot be Z-ordered by a column, the table is a clustered table and cannot be Z-ordered, or it
            has no clustering columns and cannot be clustered in full.
    """
    clustering = snapshot.clustering_columns
    if full and not clustering:
        raise InvalidArgumentError(
            f"{snapshot.identifier} has no clustering columns, so that its files cannot be clustered in full. Nothing was done."
        ).with_remedy(SetClusteringColumns())
    if z_order_by and is_clustered(snapshot.protocol):
        raise InvalidArgumentError(
            f"{snapshot.identifier} is a clustered table and cannot be Z-ordered. Nothing was done. Without a Z-order the "
            "rows are ordered by the clustering columns."
        )
    if z_order_by:
        if len(z_order_by) > MAX_Z_ORDER_COLUMNS:
            raise InvalidArgumentError(
                f"The Z-order has {len(z_order_by)} columns; give at most {MAX_Z_ORDER_COLUMNS}. Nothing was done."
            )
        paths = check_layout_columns(snapshot.layout, z_order_by, verb="Z-ordered")
        return Arrangement(columns=_typed(snapshot.schema, paths), clusters=False)
    if clustering:
        stored = stored_clustering_columns(snapshot.domains)
        return Arrangement(columns=_typed(snapshot.schema, clustering), stored=stored, clusters=True)
    return None


def _typed(schema: StructType, paths: Sequence[ColumnPath]) -> tuple[LayoutColumn, ...]:
    columns = []
    for path in paths:
        level: DataType = schema
        for name in path:
            item = level.field(name) if isinstance(level, StructType) else None
            assert item is not None
            level = item.type
        columns.append(LayoutColumn(path=path, type=level))
    return tuple(columns)


def files_to_arrange(files: pa.Table, arrangement: Arrangement, *, target_size: int, full: bool) -> pa.Table:
    """The files whose rows are ordered: all files for a Z-order and a full clustering.

    Otherwise those that no other implementation has clustered, except for files that an earlier run clustered by the same columns.
    """
    if full or not arrangement.clusters or not files.num_rows:
        return files
    providers = files["clusteringProvider"].combine_chunks()
    ours = pc.fill_null(pc.equal(providers, PROVIDER), False)
    same = pc.and_(ours, pc.fill_null(pc.equal(_tag(files, COLUMNS_TAG), arrangement.columns_tag), False))
    fresh = pc.or_(pc.is_null(providers), pc.and_(ours, pc.invert(same)))
    fresh = pc.or_(fresh, pc.and_(same, is_sparse(files)))
    kept = files.filter(pc.invert(fresh)).filter(same.filter(pc.invert(fresh)))
    small = _small_runs(kept, target_size)
    if not pc.any(fresh).as_py() and len(small) < 2:
        return files.slice(0, 0)
    runs = pc.is_in(pc.fill_null(_tag(files, RUN_TAG), ""), value_set=pa.array(sorted(small), pa.string()))
    return files.filter(pc.or_(fresh, pc.and_(same, runs)))


def _small_runs(files: pa.Table, target_size: int) -> set[str]:
    """The runs whose files have together less than ``target_size`` bytes."""
    sizes: Counter[str] = Counter()
    for run, size in zip(_tag(files, RUN_TAG).to_pylist(), files["size"].to_pylist(), strict=True):
        sizes[run or ""] += size
    return {run for run, size in sizes.items() if size < target_size}


def _tag(files: pa.Table, name: str) -> pa.Array:
    tags = files["tags"].combine_chunks()
    return pc.map_lookup(tags, pa.scalar(name, tags.type.key_type), "first")


def by_partition(files: pa.Table, *, partition_columns: Sequence[str]) -> tuple[pa.Table, ...]:
    """The files of each partition."""
    return pack(files, partition_columns=partition_columns, target_size=_NO_LIMIT, min_size=0, all_files=True)


def num_parts(files: pa.Table, *, target_size: int) -> int:
    """The number of files into which the rows of ``files`` are distributed."""
    return max(1, -(-size_of(files) // target_size))


def as_clustered(adds: Sequence[AddFile], arrangement: Arrangement) -> tuple[AddFile, ...]:
    """Files of a run with what later runs need to know of them."""
    tags = {RUN_TAG: arrangement.run, COLUMNS_TAG: arrangement.columns_tag, CURVE_TAG: "hilbert"}
    return tuple(replace(add, clustering_provider=PROVIDER, tags=tags) for add in adds)
