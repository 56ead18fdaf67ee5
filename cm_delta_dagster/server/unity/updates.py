"""What an update says of the definition of a table, compared with the commit that it adds.

The staged commit is the truth: the catalog stores the metadata and the protocol that its actions set. Unity Catalog lets a client
repeat them as ``set-properties``, ``set-columns`` and so on, and believes them. Here each of these updates must say what the table
has after the commit, and an update that does not is refused; what a client leaves out is taken from the commit. A catalog-managed
table has no metadata beside its log, so that these updates are refused without a commit.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol
from cm_delta_dagster.server.unity.columns import log_schema
from cm_delta_dagster.server.unity.models import (
    AddCommit,
    DefinitionUpdate,
    RemoveDomainMetadata,
    RemoveProperties,
    SetColumns,
    SetDomainMetadata,
    SetPartitionColumns,
    SetProtocol,
    SetPublishedVersion,
    SetTableComment,
    UpdateProperties,
    UpdateTableRequest,
    WireProtocol,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedUpdate:
    """The updates of a request by what they do."""

    add_commit: AddCommit | None
    published_version: int | None
    definition: tuple[DefinitionUpdate, ...]


def parse_updates(request: UpdateTableRequest) -> ParsedUpdate:
    """The updates of a request.

    Raises:
        InvalidArgumentError: there is none, two are of one kind, one sets and one removes the same property, or metadata is to be
            changed without a commit.
    """
    repeated = [action for action, count in Counter(update.action for update in request.updates).items() if count > 1]
    if repeated or not request.updates:
        raise InvalidArgumentError(
            f"The update has {'several of the kind ' + repeated[0] if repeated else 'no updates'}; one of each kind is possible. "
            "Nothing was changed."
        )
    definition = tuple(u for u in request.updates if not isinstance(u, AddCommit | SetPublishedVersion))
    commit = next((update for update in request.updates if isinstance(update, AddCommit)), None)
    published = next((u.latest_published_version for u in request.updates if isinstance(u, SetPublishedVersion)), None)
    if definition and commit is None:
        raise InvalidArgumentError(
            f"{definition[0].action} came without add-commit, and the metadata of a catalog-managed table is that of its log. "
            "Nothing was changed. Commit the change."
        )
    _refuse_set_and_removed(definition)
    return ParsedUpdate(add_commit=commit, published_version=published, definition=definition)


def _refuse_set_and_removed(updates: Iterable[DefinitionUpdate]) -> None:
    set_names: set[str] = set()
    removed: set[str] = set()
    for update in updates:
        if isinstance(update, UpdateProperties | SetDomainMetadata):
            set_names |= set(update.updates)
        elif isinstance(update, RemoveProperties):
            removed |= set(update.removals)
        elif isinstance(update, RemoveDomainMetadata):
            removed |= set(update.domains)
    if both := sorted(set_names & removed):
        raise InvalidArgumentError(f"The update sets and removes {both[0]}. Nothing was changed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedDefinition:
    """Metadata and protocol of a table after a commit, and the domains that the commit sets or removes."""

    metadata: Metadata
    protocol: Protocol
    domains: Mapping[str, DomainMetadata]


def check_definition_updates(updates: Iterable[DefinitionUpdate], after: CommittedDefinition) -> None:
    """Refuse updates that say something else than the commit. Raises InvalidArgumentError."""
    for update in updates:
        wrong = _difference(update, after)
        if wrong is not None:
            raise InvalidArgumentError(
                f"{update.action} does not agree with the staged commit: {wrong}. Nothing was committed. The commit decides what "
                "the table has; say the same in the update, or leave it out."
            )


def _difference(update: DefinitionUpdate, after: CommittedDefinition) -> str | None:
    """In what an update is not what the table has after the commit; None if in nothing."""
    metadata = after.metadata
    match update:
        case UpdateProperties():
            return _other_property(update.updates, metadata.configuration)
        case RemoveProperties():
            left = [name for name in update.removals if name in metadata.configuration]
            return f"the commit has the property {left[0]}" if left else None
        case SetProtocol():
            return None if same_protocol(update.protocol, after.protocol) else "the protocol is another one"
        case SetColumns():
            same = same_columns(update.columns.model_dump(), metadata.schema_string)
            return None if same else "the columns are other ones"
        case SetPartitionColumns():
            same = update.partition_columns == metadata.partition_columns
            return None if same else f"the partition columns are {', '.join(metadata.partition_columns) or 'none'}"
        case SetTableComment():
            same = (update.comment or "") == (metadata.description or "")
            return None if same else "the description of the table is another one"
        case SetDomainMetadata():
            other = [name for name, value in update.updates.items() if not _sets_domain(after.domains.get(name), value)]
            return f"the commit does not set the domain {other[0]} to that configuration" if other else None
        case RemoveDomainMetadata():
            kept = [name for name in update.domains if name not in after.domains or not after.domains[name].removed]
            return f"the commit does not remove the domain {kept[0]}" if kept else None


def _other_property(stated: Mapping[str, str], configuration: Mapping[str, str]) -> str | None:
    for name, value in stated.items():
        if configuration.get(name) != value:
            return f"the property {name} is {configuration.get(name)!r} and not {value!r}"
    return None


def _sets_domain(action: DomainMetadata | None, stated: Any) -> bool:
    """Whether the action has the stated fields; a client states those that Unity Catalog knows, and not all."""
    if action is None or action.removed:
        return False
    try:
        configuration = json.loads(action.configuration)
    except ValueError:
        return False
    if not isinstance(configuration, Mapping) or not isinstance(stated, Mapping):
        return bool(configuration == stated)
    return all(configuration.get(name) == value for name, value in stated.items())


def same_protocol(stated: WireProtocol, protocol: Protocol) -> bool:
    """Whether both are one protocol; the order of features says nothing."""
    return (
        (stated.min_reader_version, stated.min_writer_version)
        == (protocol.min_reader_version, protocol.min_writer_version)
        and set(stated.reader_features) == set(protocol.reader_features or ())
        and set(stated.writer_features) == set(protocol.writer_features or ())
    )


def same_columns(stated: Mapping[str, Any], schema_string: str) -> bool:
    """Whether a client's columns are those of the schema JSON of the log."""
    return bool(_plain(log_schema(stated)) == _plain(json.loads(schema_string)))


def _plain(data_type: Any) -> Any:
    """A parsed schema of the log as a list whose fields have all of their parts, so that two can be compared."""
    if not isinstance(data_type, Mapping):
        return data_type
    fields = data_type.get("fields")
    if data_type.get("type") == "struct" and isinstance(fields, Sequence):
        return ["struct", *(_plain_field(field) for field in fields)]
    return {key: _plain(value) for key, value in data_type.items()}


def _plain_field(field: Any) -> Any:
    if not isinstance(field, Mapping):
        return field
    return (field.get("name"), _plain(field.get("type")), field.get("nullable", True), field.get("metadata") or {})
