"""What version 0 of a clone contains: files, metadata and protocol (protocol heading "Add File and Remove File").

A shallow clone names the files of its source by absolute paths, and their deletion vectors by descriptors of the storage type
``p``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor, Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, DELETION_VECTOR_TYPE
from cm_delta_dagster.protocol.actions.paths import absolute_paths, encode_location, file_keys, normalise_location
from cm_delta_dagster.protocol.features.deletion_vectors import dv_location, vector_files
from cm_delta_dagster.protocol.features.protocol_evolution import (
    catalog_managed_protocol,
    requested_features,
    required_features,
)
from cm_delta_dagster.protocol.features.table_features import reader_features, writer_features
from cm_delta_dagster.protocol.features.table_properties import (
    CONSTRAINT_PREFIX,
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
    IN_COMMIT_TIMESTAMPS_KEY,
    TABLE_ID_KEY,
    stored_properties,
)
from cm_delta_dagster.protocol.schema.types import parse_schema

_CHECKPOINT_PROTECTION = "checkpointProtection"
_OF_THE_SOURCE = frozenset(
    {
        IN_COMMIT_TIMESTAMPS_KEY,
        ENABLEMENT_VERSION_KEY,
        ENABLEMENT_TIMESTAMP_KEY,
        TABLE_ID_KEY,
        "delta.requireCheckpointProtectionBeforeVersion",
    }
)
"""Properties that describe the log of the source, or its place in a catalog."""

_OF_THE_DATA = (
    CONSTRAINT_PREFIX,
    "delta.columnMapping.",
    "delta.rowTracking.",
    "delta.enableRowTracking",
    "delta.enableIcebergCompat",
)
"""Prefixes of properties that the existing files must comply with."""


def shallow_files(files: pa.Table, *, location: str) -> pa.Table:
    """The live files of the table at ``location`` as add actions of a shallow clone (columns of ``ADD_SCHEMA``).

    Row ids stay; the commit versions of rows start again with version 0 of the clone.

    Raises:
        CorruptLogError: a deletion vector of the source is damaged.
    """
    return _cloned(files, absolute_paths(location, files["path"]), _absolute_vectors(files["deletionVector"], location))


def named_files(location: str, files: Sequence[pa.Table]) -> pa.Array:
    """Keys of the files that the table at ``location`` names, with the files of its deletion vectors.

    Args:
        files: add or remove actions of the table.
    """
    keys = [pa.array([], pa.string())]
    for part in files:
        vectors = [normalise_location(vector) for vector in vector_files(location, part)]
        keys += [file_keys(location, part["path"]), pa.array(vectors, pa.string())]
    return pa.concat_arrays(keys).unique()


def directories_above(locations: pa.Array) -> frozenset[str]:
    """The directories of the files at these locations, and all directories above them."""
    directories = pc.replace_substring_regex(locations.drop_null(), "(?s)/[^/]*$", "").unique().to_pylist()
    steps = (directory.split("/") for directory in directories)
    return frozenset("/".join(parts[:depth]) for parts in steps for depth in range(1, len(parts) + 1))


def copied_files(files: pa.Table, *, paths: pa.Array, vectors: pa.Array) -> pa.Table:
    """The live files of a table as add actions of a deep clone, which has them at ``paths`` with ``vectors``."""
    return _cloned(files, paths, vectors)


def _cloned(files: pa.Table, paths: pa.Array | pa.ChunkedArray, vectors: pa.Array) -> pa.Table:
    columns = {name: files[name] for name in ADD_SCHEMA.names}
    columns["path"] = paths
    columns["deletionVector"] = vectors
    columns["dataChange"] = pa.repeat(pa.scalar(True), files.num_rows)
    columns["defaultRowCommitVersion"] = pa.nulls(files.num_rows, pa.int64())
    return pa.table(columns, schema=ADD_SCHEMA)


def _absolute_vectors(vectors: pa.ChunkedArray, location: str) -> pa.Array:
    names = vector_names(vectors)
    # A file of deletion vectors holds many of them; each location is computed once.
    known = {name: _absolute_vector(name, location) for name in set(names) if name is not None}
    return renamed_vectors(vectors, known)


def _absolute_vector(name: tuple[str, str], location: str) -> tuple[str, str]:
    at = dv_location(location, descriptor_named(name))
    return name if at is None else ("p", encode_location(at))


def vector_names(vectors: pa.ChunkedArray) -> list[tuple[str, str] | None]:
    """Storage type and ``pathOrInlineDv`` of each deletion vector; None without one."""
    array = vectors.combine_chunks()
    if array.null_count == len(array):
        return [None] * len(array)
    types, texts = (pc.struct_field(array, name).to_pylist() for name in ("storageType", "pathOrInlineDv"))
    return [None if kind is None else (kind, text) for kind, text in zip(types, texts, strict=True)]


def descriptor_named(name: tuple[str, str]) -> DeletionVectorDescriptor:
    """A descriptor with these names, from which the location of its file follows."""
    return DeletionVectorDescriptor(storage_type=name[0], path_or_inline_dv=name[1], size_in_bytes=0, cardinality=0)


def renamed_vectors(vectors: pa.ChunkedArray, names: Mapping[tuple[str, str], tuple[str, str]]) -> pa.Array:
    """``vectors`` with other storage types and names, which ``names`` gives for the present ones."""
    array = vectors.combine_chunks()
    if array.null_count == len(array):
        return pa.nulls(len(array), DELETION_VECTOR_TYPE)
    new = [None if name is None else names[name] for name in vector_names(vectors)]
    children = {
        "storageType": pa.array([None if name is None else name[0] for name in new], pa.string()),
        "pathOrInlineDv": pa.array([None if name is None else name[1] for name in new], pa.string()),
    }
    arrays = [
        children[field.name] if field.name in children else pc.struct_field(array, field.name)
        for field in DELETION_VECTOR_TYPE
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(DELETION_VECTOR_TYPE), mask=array.is_null())


def cloned_metadata(source: Metadata, overrides: Mapping[str, str], *, metadata_id: str, created_ms: int) -> Metadata:
    """The metadata of a clone: columns, partition columns and properties of ``source``, the latter with ``overrides``.

    Args:
        overrides: checked table properties.
        created_ms: epoch milliseconds.

    Raises:
        InvalidArgumentError: an override would need other files than those of the source.
    """
    for key, value in overrides.items():
        if key.startswith(_OF_THE_DATA) and source.configuration.get(key) != value:
            raise InvalidArgumentError(
                f"A clone cannot set the table property {key!r}, because the existing files must comply with it. Nothing was "
                "created. Clone the table without it, and change the clone."
            )
    kept = {key: value for key, value in source.configuration.items() if key not in _OF_THE_SOURCE}
    return replace(
        source,
        id=metadata_id,
        name=None,
        created_time=created_ms,
        configuration={**kept, **stored_properties(overrides)},
    )


def cloned_protocol(source: Protocol, metadata: Metadata, overrides: Mapping[str, str]) -> Protocol:
    """The protocol of a catalog-managed clone: each feature of ``source``, and those that ``metadata`` and ``overrides`` need.

    ``checkpointProtection`` is left out: it describes the log of the source.

    Raises:
        UnsupportedFeatureError: this client cannot write tables with one of the features.
        InvalidArgumentError: ``overrides`` request a feature of an unknown name.
    """
    of_source = (writer_features(source) | reader_features(source)) - {_CHECKPOINT_PROTECTION}
    needed = required_features(parse_schema(metadata.schema_string), metadata.configuration)
    return catalog_managed_protocol(extra_features=of_source | needed | requested_features(overrides))
