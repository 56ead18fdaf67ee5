"""Column lineage of a materialization: the columns of upstream assets from which each column of an output is computed.

It follows from the analyzed plan of the DataFrame and covers the inputs that the IO manager loaded in the same step. Columns
whose sources are not certain are left out.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import dagster as dg

from cm_delta_dagster.orchestration.metadata.metadata import COLUMN_LINEAGE
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.column_sources import RelationNumbers, Source
from cm_delta_dagster.spark.library import DataFrame, is_frame

_inputs: weakref.WeakKeyDictionary[Any, list[tuple[dg.AssetKey, DataFrame]]] = weakref.WeakKeyDictionary()


def remember_input(context: dg.InputContext, step: Any, loaded: Any) -> None:
    """Remember which asset the step has loaded as the DataFrame ``loaded``; other types of inputs have no lineage."""
    if step is not None and context.has_asset_key and is_frame(loaded):
        _inputs.setdefault(step, []).append((context.asset_key, loaded))


def column_lineage(step: Any, frame: Any) -> Mapping[str, tuple[dg.TableColumnDep, ...]]:
    """For each column of an output, in lower case, the columns of inputs that it is computed from.

    Without an entry are columns whose sources are not certain, and constants.
    """
    inputs = [] if step is None else _inputs.get(step, [])
    if not inputs or not is_frame(frame):
        return {}
    numbers = RelationNumbers(frame.sparkSession)
    known: dict[Source, set[dg.TableColumnDep]] = {}
    for asset_key, loaded in inputs:
        for name, sources in zip(loaded.columns, numbers.registered(loaded) or (), strict=False):
            for source in sources or ():
                known.setdefault(source, set()).add(dg.TableColumnDep(asset_key=asset_key, column_name=name))
    lineage: dict[str, tuple[dg.TableColumnDep, ...]] = {}
    for name, sources in zip(frame.columns, numbers.sources(frame) or (), strict=False):
        candidates = [known.get(source, set()) for source in sources or ()]
        # A stored column that belongs to no column of its table, or to two, shows nothing.
        if candidates and all(len(columns) == 1 for columns in candidates):
            unique = {column for columns in candidates for column in columns}
            lineage[name.lower()] = tuple(sorted(unique, key=lambda item: (item.asset_key.path, item.column_name)))
    return lineage


def lineage_metadata(lineage: Mapping[str, tuple[dg.TableColumnDep, ...]], schema: StructType) -> dict[str, Any]:
    """The entry of a materialization, with the names of columns as in the table; empty if no lineage is known."""
    columns = {name: list(lineage[name.lower()]) for name in schema.names if name.lower() in lineage}
    return {COLUMN_LINEAGE: dg.TableColumnLineage(columns)} if columns else {}
