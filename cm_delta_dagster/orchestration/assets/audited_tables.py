"""Refuses an output to a table that an audited asset of the same run writes: readers would see rows that no check has read.

The step of the audited asset refuses it too, see ``audit.run_guard``. Whichever comes first, nothing is written.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.metadata.audit_mode import AUDITED_BY

TableOf = Callable[[Mapping[str, Any], dg.AssetKey], TableIdentifier]
"""The table of an asset with this metadata. Raises InvalidArgumentError for metadata that mean something else."""


def others_with_table(
    step: Any, own: frozenset[dg.AssetKey] | set[dg.AssetKey], table_of: TableOf
) -> Iterator[tuple[dg.AssetKey, TableIdentifier]]:
    """The assets of the run that the step does not write, with the IO manager of those that it does, and their tables."""
    layer = step.job_def.asset_layer
    manager_keys = {layer.get(key).io_manager_key for key in own}
    for key in set(layer.executable_asset_keys) - own:
        entry = layer.get(key)
        if entry.io_manager_key in manager_keys:
            with suppress(InvalidArgumentError):
                yield key, table_of(entry.metadata, key)


def refuse_table_of_audit(step: Any, asset_key: dg.AssetKey | None, table: TableIdentifier, table_of: TableOf) -> None:
    """Check an output of ``asset_key`` before it is written.

    Raises:
        InvalidArgumentError: an audited asset of another step of the run has the same table.
    """
    if step is None or asset_key is None:
        return
    layer, own = step.job_def.asset_layer, step.get_output_asset_keys()
    if not any(AUDITED_BY in layer.get(key).metadata for key in layer.executable_asset_keys):
        return
    for key, other in others_with_table(step, own, table_of):
        if other == table and AUDITED_BY in layer.get(key).metadata:
            raise InvalidArgumentError(
                f"{asset_key.to_user_string()} writes to {table} in the run that audits {key.to_user_string()}, which has the same "
                "table, so that readers would see rows that were not checked. Nothing was written. Give each asset a table of its "
                "own, or materialize them in runs of their own."
            )
