"""Checks of a proposed commit that its own bytes decide (protocol headings "Delta Log Entries", "Catalog Responsibilities").

To add a check, write a function that is a ``Check``, and add it to ``CHECKS``. What depends on the table is returned as
:class:`CheckedContent` and compared by the catalog.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.action_fields import (
    domain_of,
    metadata_of,
    protocol_of,
    transaction_group_of,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol, TransactionGroup
from cm_delta_dagster.protocol.actions.commit_json import LARGE_COMMIT_BYTES, CommitActions, commit_actions
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, DELETION_VECTOR_TYPE, REMOVE_SCHEMA
from cm_delta_dagster.protocol.actions.json_columns import strict_file_actions
from cm_delta_dagster.protocol.actions.paths import absolute_paths_of, is_absolute_path
from cm_delta_dagster.protocol.commits.commit_content import CommitContent, content_of
from cm_delta_dagster.protocol.commits.commit_fingerprint import fingerprint
from cm_delta_dagster.protocol.commits.commit_validation import (
    CommitFlaw,
    FlawFoundError,
    NumberedAction,
    flaw_of_actions,
    flaw_of_commit_info,
    flaw_of_embedded_json,
    numbered_lines,
    parsed_lines,
)
from cm_delta_dagster.protocol.commits.proposal_checks.definition import flaw_of_definition
from cm_delta_dagster.protocol.commits.proposal_checks.features import flaw_of_features, flaw_of_vectors
from cm_delta_dagster.protocol.commits.proposal_checks.file_columns import flaw_of_files, repeated_file
from cm_delta_dagster.protocol.commits.proposal_checks.marks import StatedMarks, flaw_of_identity, stated_marks
from cm_delta_dagster.protocol.commits.proposal_checks.partitions import (
    StatedPartitions,
    partition_types,
    stated_partitions,
)
from cm_delta_dagster.protocol.commits.proposal_rules import FOREIGN_RULES, flaw_of_action
from cm_delta_dagster.protocol.commits.transaction_groups import flaw_of_tag
from cm_delta_dagster.protocol.features import clustering, row_tracking
from cm_delta_dagster.protocol.features.table_features import (
    IN_COMMIT_TIMESTAMP,
    check_writable,
    is_catalog_managed,
    supports,
)

MAX_CHECKED_BYTES = 16 * 1024 * 1024
"""Size of the largest content that is parsed for checks. A larger commit counts as one of unknown content."""

_FILE_FIELDS = ("path", "deletionVector")
_LINES_OF_FILES = (b'{"add"', b'{"remove"', b'{"cdc"')
_DOMAINS_OF_JSON = frozenset({clustering.DOMAIN, row_tracking.DOMAIN})
_OF_TABLE = frozenset({"commitInfo", "metaData", "protocol", "domainMetadata", "txn"})
"""Actions about the table as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedContent:
    """The lines of a commit.

    Attributes:
        actions: the lines that were parsed one by one, of which the first is line 1.
        files: the file actions of all other lines as columns, by the name of the action; empty for small commits.
    """

    actions: list[NumberedAction]
    files: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)  # Without slots: what takes long is computed once, when it is first asked for.
class CheckedContent:
    """What of a commit the catalog compares with the state of the table.

    Attributes:
        data: the bytes of the commit.
        parsed: its lines.
        absolute_paths: paths of files, and of deletion vectors of adds, that do not begin at the root of the table, as in the log.
        metadata, protocol: what the commit sets; None if it does not set them.
        marks: what it says about high-water marks.
        operation: of commitInfo; None if it does not say.
        partitions: the partition values of its files.
        adds_vectors: whether it adds a file with a deletion vector.
        app_ids: the application ids that it sets (``txn``), in its order.
        transaction_group: the transaction over several tables that it is a part of; None without one.
    """

    data: bytes
    parsed: ProposedContent
    absolute_paths: tuple[str, ...] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    marks: StatedMarks = field(default_factory=StatedMarks)
    operation: str | None = None
    partitions: StatedPartitions = field(default_factory=lambda: StatedPartitions({}))
    adds_vectors: bool = False
    app_ids: tuple[str, ...] = ()
    transaction_group: TransactionGroup | None = None

    def actions(self, *, version: int) -> CommitActions:
        """The actions of the commit, as :func:`~cm_delta_dagster.protocol.actions.commit_json.decode_commit` returns them."""
        files = self.parsed.files
        return commit_actions(
            ((name, dict(fields)) for _, name, fields in self.parsed.actions),
            adds=files["add"] if "add" in files else ADD_SCHEMA.empty_table(),
            removes=files["remove"] if "remove" in files else REMOVE_SCHEMA.empty_table(),
            version=version,
        )

    @cached_property
    def content(self) -> CommitContent:
        """What the commit does. Raises CorruptLogError as :meth:`actions`."""
        return content_of(self._actions)

    @cached_property
    def fingerprint(self) -> str:
        """What identifies the commit whatever its version. Raises CorruptLogError as :meth:`actions`."""
        return fingerprint(self._actions)

    @cached_property
    def _actions(self) -> CommitActions:
        return self.actions(version=0)


ContentCheck: TypeAlias = Callable[[ProposedContent], CommitFlaw | None]


def check_content(data: bytes) -> CheckedContent:
    """Refuse the content of a commit with which its table could not be read by every implementation.

    Args:
        data: at most ``MAX_CHECKED_BYTES``.

    Raises:
        IllegalCommitError: names the action and the field. Nothing was ratified.
    """
    try:
        return checked(data)
    except FlawFoundError as error:
        raise illegal(error.flaw) from None


def checked(data: bytes) -> CheckedContent:
    """As :func:`check_content`. Raises FlawFoundError."""
    content = _parsed(data)
    for check in CHECKS:
        flaw = check(content)
        if flaw is not None:
            raise FlawFoundError(flaw)
    return _content_of(data, content)


def readable_content(data: bytes) -> CheckedContent:
    """What can be read of a commit that exists although :func:`check_content` refuses it: marks, definition, application ids.

    Lines that are flawed, and all files, are left out; of several actions about one object the first one counts.

    Args:
        data: as of :func:`check_content`.
    """
    actions: list[NumberedAction] = []
    for number, line in numbered_lines(data):
        if line.startswith(_LINES_OF_FILES):
            continue
        with suppress(FlawFoundError):
            actions += (
                (number, action, fields)
                for number, action, fields in parsed_lines([(number, line)])
                if action in _OF_TABLE and flaw_of_action(action, fields, FOREIGN_RULES) is None
            )
    return _content_of(data, ProposedContent(actions=actions))


def _content_of(data: bytes, content: ProposedContent) -> CheckedContent:
    metadata_fields, protocol_fields = _fields_of(content, "metaData"), _fields_of(content, "protocol")
    group_fields = _fields_of(content, "transactionGroup")
    metadata = None if metadata_fields is None else metadata_of(metadata_fields)
    protocol = None if protocol_fields is None else protocol_of(protocol_fields)
    domains = (domain_of(fields) for _, action, fields in content.actions if action == "domainMetadata")
    operation = (_fields_of(content, "commitInfo") or {}).get("operation")
    return CheckedContent(
        data=data,
        parsed=content,
        absolute_paths=_absolute_paths(content),
        metadata=metadata,
        protocol=protocol,
        marks=stated_marks(
            domain=next((domain for domain in domains if domain.domain == row_tracking.DOMAIN), None),
            metadata=metadata,
            protocol=protocol,
            operation=operation,
            num_removed=_num_removed(content),
        ),
        operation=operation,
        partitions=stated_partitions(content.actions, content.files.get("add")),
        adds_vectors=_adds_vectors(content),
        app_ids=tuple(fields["appId"] for _, action, fields in content.actions if action == "txn"),
        transaction_group=None if group_fields is None else transaction_group_of(group_fields),
    )


def illegal(flaw: CommitFlaw) -> IllegalCommitError:
    """The refusal of a proposal with this flaw."""
    line = f" (line {flaw.line})" if flaw.line and flaw.action else ""
    return IllegalCommitError(
        f"The proposed commit is not valid: {flaw}{line}. Nothing was ratified. A catalog ratifies only commits that every reader "
        "can read."
    )


def _parsed(data: bytes) -> ProposedContent:
    if len(data) < LARGE_COMMIT_BYTES:
        return ProposedContent(actions=parsed_lines(numbered_lines(data)))
    files = strict_file_actions(data)
    return ProposedContent(
        actions=parsed_lines(files.others),
        files={"add": files.adds, "remove": files.removes},
    )


def _actions(content: ProposedContent) -> CommitFlaw | None:
    return flaw_of_actions(content.actions, FOREIGN_RULES) or flaw_of_commit_info(content.actions[0][2])


def _files(content: ProposedContent) -> CommitFlaw | None:
    """The flaw of the file actions in columns."""
    for action, files in content.files.items():
        wrong = flaw_of_files(action, files)
        if wrong is not None:
            return CommitFlaw(action=action, field=wrong[0], why=wrong[1])
    return None


def _repeated_files(content: ProposedContent) -> CommitFlaw | None:
    """Two actions about one file, at least one of which is in columns."""
    if not any(files.num_rows for files in content.files.values()):
        return None
    adds, removes = (
        pa.concat_tables([files.select(_FILE_FIELDS), _table_of(content.actions, action)])
        for action, files in content.files.items()
    )
    path = repeated_file(adds, removes)
    return None if path is None else CommitFlaw(action="", field="", why=f"it contains two actions for file {path}")


def _table_of(actions: Iterable[NumberedAction], name: str) -> pa.Table:
    rows = [{key: fields.get(key) for key in _FILE_FIELDS} for _, action, fields in actions if action == name]
    return pa.Table.from_pylist(rows, schema=pa.schema({"path": pa.string(), "deletionVector": DELETION_VECTOR_TYPE}))


def _served_protocol(content: ProposedContent) -> CommitFlaw | None:
    """A catalog serves tables that list ``catalogManaged`` and what it requires, and whose features this implementation writes."""
    fields = _fields_of(content, "protocol")
    if fields is None:
        return None
    protocol = protocol_of(fields)
    if not is_catalog_managed(protocol):
        return CommitFlaw(
            action="protocol", field="", why="does not list catalogManaged, and a catalog manages the table"
        )
    if not supports(protocol, IN_COMMIT_TIMESTAMP):
        return CommitFlaw(
            action="protocol",
            field="writerFeatures",
            why=f"lacks {IN_COMMIT_TIMESTAMP}, which catalogManaged requires",
        )
    try:
        check_writable(protocol, "of the commit")
    except (CorruptLogError, UnsupportedFeatureError) as error:
        return CommitFlaw(action="protocol", field="", why=f"is not supported. {str(error).removesuffix('.')}")
    return None


def _fields_of(content: ProposedContent, name: str) -> Mapping[str, Any] | None:
    return next((fields for _, action, fields in content.actions if action == name), None)


def _num_removed(content: ProposedContent) -> int:
    """Number of files that the table does not have any more; one that is added again, with another vector, stays."""
    added, removed = (_paths(content, action) for action in ("add", "remove"))
    if not len(removed) or not len(added):
        return len(removed)
    return int(pc.sum(pc.invert(pc.is_in(removed, value_set=added))).as_py())


def _paths(content: ProposedContent, action: str) -> pa.ChunkedArray:
    lines = pa.array([fields["path"] for _, name, fields in content.actions if name == action], pa.string())
    columns = content.files[action]["path"].chunks if action in content.files else []
    return pa.chunked_array([lines, *columns], pa.string())


def _embedded_json(content: ProposedContent) -> CommitFlaw | None:
    """The texts whose JSON the protocol defines. Domains of users have any configuration."""
    for line, action, fields in content.actions:
        if action == "metaData":
            field = "schemaString"
        elif action == "domainMetadata" and fields["domain"] in _DOMAINS_OF_JSON and not fields["removed"]:
            field = "configuration"
        else:
            continue
        why = flaw_of_embedded_json(fields[field])
        if why is None and fields.get("domain") == row_tracking.DOMAIN:
            why = row_tracking.flaw_of_keys(fields[field])
        if why is not None:
            return CommitFlaw(action=action, field=field, why=why, line=line)
    return None


def _definition(content: ProposedContent) -> CommitFlaw | None:
    metadata = _fields_of(content, "metaData")
    return None if metadata is None else flaw_of_definition(metadata_of(metadata))


def _features(content: ProposedContent) -> CommitFlaw | None:
    metadata, protocol = _fields_of(content, "metaData"), _fields_of(content, "protocol")
    if metadata is None or protocol is None:
        return None
    return flaw_of_features(metadata_of(metadata), protocol_of(protocol))


def _vectors(content: ProposedContent) -> CommitFlaw | None:
    """Of a commit that sets the protocol; the catalog checks others with the protocol that it has stored."""
    protocol = _fields_of(content, "protocol")
    return None if protocol is None or not _adds_vectors(content) else flaw_of_vectors(protocol_of(protocol))


def _adds_vectors(content: ProposedContent) -> bool:
    files = content.files.get("add")
    return (files is not None and files["deletionVector"].null_count < files.num_rows) or any(
        action == "add" and fields.get("deletionVector") is not None for _, action, fields in content.actions
    )


def _identity_columns(content: ProposedContent) -> CommitFlaw | None:
    metadata = _fields_of(content, "metaData")
    return None if metadata is None else flaw_of_identity(metadata_of(metadata))


def _partition_values(content: ProposedContent) -> CommitFlaw | None:
    """Those of a commit that sets metadata and protocol; the catalog checks others with the definition that it has stored."""
    metadata, protocol = _fields_of(content, "metaData"), _fields_of(content, "protocol")
    if metadata is None or protocol is None:
        return None
    types = partition_types(metadata_of(metadata), protocol_of(protocol))
    return stated_partitions(content.actions, content.files.get("add")).flaw_for(types)


def _transaction_group(content: ProposedContent) -> CommitFlaw | None:
    group = _fields_of(content, "transactionGroup")
    return None if group is None else flaw_of_tag(transaction_group_of(group), content.actions[0][2])


CHECKS: tuple[ContentCheck, ...] = (
    _actions,
    _embedded_json,
    _transaction_group,
    _files,
    _repeated_files,
    _served_protocol,
    _definition,
    _features,
    _vectors,
    _identity_columns,
    _partition_values,
)
"""The checks in order; each relies on the ones before it."""


def _absolute_paths(content: ProposedContent) -> tuple[str, ...]:
    """The vector of a remove is left out: it repeats what the table has, and the file could not be removed otherwise."""
    paths: list[str] = []
    for _, action, fields in content.actions:
        if action in ("add", "remove", "cdc"):
            paths += filter(is_absolute_path, [fields["path"]])
        if action == "add":
            paths += _vector_path(fields.get("deletionVector"))
    for action, files in content.files.items():
        paths += absolute_paths_of(files["path"]).to_pylist()
        if action == "add":
            vectors = files["deletionVector"]
            of_path = vectors.filter(pc.equal(pc.struct_field(vectors, "storageType"), "p"))
            paths += pc.struct_field(of_path, "pathOrInlineDv").to_pylist()
    return tuple(dict.fromkeys(paths))


def _vector_path(vector: Mapping[str, Any] | None) -> list[str]:
    return [] if vector is None or vector["storageType"] != "p" else [vector["pathOrInlineDv"]]
