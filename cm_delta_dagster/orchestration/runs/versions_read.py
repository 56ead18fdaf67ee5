"""Records which version of each input an asset was computed from, as metadata of its materialization.

All steps of a run read one version of a table, so a later step can read a version that is older than the newest event of the
upstream asset. Dagster's own tags name that event; this entry names what was read.
"""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

VERSIONS_READ = "cm_delta/versions_read"
RUN_TAG_PREFIX = "cm_delta_read/"
"""Tags of a run, by the upstream asset's key: what an op of a graph has read that itself materializes no asset."""

_steps: "weakref.WeakKeyDictionary[Any, dict[str, TableVersion]]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table."""

    table_id: str
    version: int

    @classmethod
    def of_data_version(cls, text: str | None) -> "TableVersion | None":
        """What a data version of this package names; None for one of another form."""
        table_id, _, version = (text or "").rpartition("@")
        return cls(table_id, int(version)) if table_id and version.isdecimal() else None

    @property
    def data_version(self) -> str:
        """The data version with this text."""
        return f"{self.table_id}@{self.version}"

    def includes(self, other: "TableVersion") -> bool:
        """Whether the data of ``other`` is in this version."""
        return self.table_id == other.table_id and self.version >= other.version


def record_version_read(step: Any, upstream: dg.AssetKey, table: TableVersion) -> None:
    """Add the version that the step has read of an upstream asset to the materializations of its assets.

    An op of a graph asset that materializes nothing adds it to the run, all steps of which read that version.
    """
    if step is None:
        return
    name = upstream.to_user_string()
    outputs = step.get_output_asset_keys()
    if not outputs:
        if step.job_def.asset_layer.has(upstream):
            step.instance.add_run_tags(step.run_id, {f"{RUN_TAG_PREFIX}{name}": table.data_version})
        return
    read = _steps.setdefault(step, {})
    read[name] = table
    listed = {name: {"table_id": table.table_id, "version": table.version} for name, table in sorted(read.items())}
    for key in outputs:
        step.add_asset_metadata({VERSIONS_READ: dg.MetadataValue.json(listed)}, asset_key=key)


def versions_read_by_run(tags: Mapping[str, str]) -> Mapping[str, TableVersion]:
    """The versions that the ops of a run with these tags have read, by the upstream asset's key."""
    versions = {
        name.removeprefix(RUN_TAG_PREFIX): TableVersion.of_data_version(text)
        for name, text in tags.items()
        if name.startswith(RUN_TAG_PREFIX)
    }
    return {name: table for name, table in versions.items() if table is not None}


def versions_read(metadata: Mapping[str, Any]) -> Mapping[str, TableVersion]:
    """The versions that a materialization with this metadata has read, by the upstream asset's key."""
    entry = metadata.get(VERSIONS_READ)
    listed: Any = None if entry is None else entry.value
    if not isinstance(listed, Mapping):
        return {}
    return {name: TableVersion(entry["table_id"], int(entry["version"])) for name, entry in listed.items()}
