"""Whether metadata and files need features that the protocol of its table does not list (protocol heading "Table Features").

Only features that decide how rows are read count: without column mapping in the protocol, some readers look for columns by their
names and others by their mapped names. Readers ignore the properties of other features that are not listed.
"""

from collections.abc import Mapping
from types import MappingProxyType

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.features.table_features import COLUMN_MAPPING, FEATURES, supports
from cm_delta_dagster.protocol.features.type_widening import TYPE_CHANGES
from cm_delta_dagster.protocol.schema.types import StructType, parse_schema, walk_fields

_DELETION_VECTORS = "deletionVectors"
_FIELD_OF: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        (COLUMN_MAPPING,): "configuration",
        ("timestampNtz",): "schemaString",
        ("variantType", "variantType-preview"): "schemaString",
        ("typeWidening", "typeWidening-preview"): "schemaString",
    }
)
"""The field of ``metaData`` that needs the feature, by its names."""


def flaw_of_features(metadata: Metadata, protocol: Protocol) -> CommitFlaw | None:
    """The first feature that the metadata needs and the protocol lacks; None if it lacks none.

    Args:
        metadata: with a valid schema.
    """
    schema = parse_schema(metadata.schema_string)
    for names, field in _FIELD_OF.items():
        if any(supports(protocol, name) for name in names):
            continue
        try:
            is_needed = _needs(names[0], schema, metadata)
        except InvalidArgumentError as error:  # The metadata of an earlier commit, which was not checked.
            return CommitFlaw(action="metaData", field=field, why=f"is damaged. {str(error).removesuffix('.')}")
        if is_needed:
            return CommitFlaw(
                action="metaData", field=field, why=f"needs the feature {names[0]}, which the protocol does not list"
            )
    return None


def flaw_of_vectors(protocol: Protocol) -> CommitFlaw | None:
    """Why no file with a deletion vector may be added: without the feature, readers return the deleted rows."""
    if supports(protocol, _DELETION_VECTORS):
        return None
    why = f"needs the feature {_DELETION_VECTORS}, which the protocol does not list"
    return CommitFlaw(action="add", field="deletionVector", why=why)


def _needs(feature: str, schema: StructType, metadata: Metadata) -> bool:
    if (
        feature == "typeWidening"
    ):  # Its property permits changes of types; only files from before a change need the feature.
        return any(TYPE_CHANGES in field.metadata for _, field in walk_fields(schema))
    return FEATURES[feature].is_active(schema, metadata.configuration)
