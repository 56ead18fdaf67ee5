"""Actions of a commit as JSON lines (protocol heading "Delta Log Entries").

A small commit is parsed line by line. A large commit is parsed with ``pyarrow.json``, which creates columns of file actions
without a Python object per file. Both return the same :class:`CommitActions`. Unknown actions and fields are
ignored, and so is a ``transactionGroup`` that cannot be understood. ``checkpointMetadata`` and ``sidecar`` occur only in JSON
checkpoints; reconciliation ignores them in commits.
"""

import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions.action_fields import (
    cdc_of,
    commit_info_of,
    domain_of,
    metadata_of,
    protocol_of,
    to_fields,
    transaction_group_of,
    transaction_of,
)
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    SidecarFile,
    TransactionGroup,
)
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, REMOVE_SCHEMA
from cm_delta_dagster.protocol.actions.file_rows import (
    SCHEMAS,
    check_files,
    file_table,
    no_files,
    one_vector_a_path,
    raise_flaw,
)
from cm_delta_dagster.protocol.actions.json_columns import parse_file_actions
from cm_delta_dagster.protocol.actions.json_fields import FieldError, long, optional_texts, text
from cm_delta_dagster.protocol.actions.json_text import parse_json
from cm_delta_dagster.protocol.actions.paths import flaw_of_log_path

LARGE_COMMIT_BYTES = 256 * 1024
"""Commits of at least this size are parsed with ``pyarrow.json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitActions:
    """The actions of one commit. ``adds`` and ``removes`` have the columns of ``ADD_SCHEMA`` and ``REMOVE_SCHEMA``.

    Attributes:
        transaction_group: the transaction over several tables that the commit is a part of; no part of the state of the table.
    """

    version: int
    commit_info: CommitInfo | None
    protocol: Protocol | None
    metadata: Metadata | None
    transactions: tuple[SetTransaction, ...]
    domains: tuple[DomainMetadata, ...]
    adds: pa.Table
    removes: pa.Table
    cdc: tuple[AddCdcFile, ...]
    transaction_group: TransactionGroup | None = None
    checkpoint_metadata: CheckpointMetadata | None = None
    sidecars: tuple[SidecarFile, ...] = ()
    has_other_lines: bool = False
    """Whether a line is not exactly one action that the protocol defines for commits; readers ignore the rest of such a line."""

    @property
    def has_data_change(self) -> bool:
        """Whether ``dataChange`` of a file action is true or missing."""
        return any(_changes_data(files.column("dataChange")) for files in (self.adds, self.removes) if files.num_rows)


_FEW = 32


def _changes_data(flags: pa.ChunkedArray) -> bool:
    """Whether a flag is true or missing."""
    if len(flags) <= _FEW:
        return any(flag is not False for flag in flags.to_pylist())
    return bool(pc.any(pc.fill_null(flags, True)).as_py())


# Writing


def encode_commit(actions: Sequence[Action]) -> bytes:
    """The content of a commit file: one action per line in UTF-8, with a newline after each."""
    return "".join(f"{encode_action(action)}\n" for action in actions).encode()


def encode_action(action: Action) -> str:
    """One line: an object whose only key is the name of the action.

    Raises:
        IllegalCommitError: a value cannot be written as JSON in UTF-8, such as NaN or a lone surrogate.
    """
    return encode_fields(*to_fields(action))


def encode_fields(name: str, fields: Mapping[str, Any]) -> str:
    """The line of an action with these fields. Raises IllegalCommitError as :func:`encode_action`."""
    try:
        line = json.dumps({name: fields}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        line.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise IllegalCommitError(
            f"The action {name} cannot be written as JSON ({error}). Nothing was written."
        ) from error
    return line


# Reading


def decode_commit(data: bytes, *, version: int) -> CommitActions:
    """Parse the content of a commit file.

    Args:
        data: the content.
        version: version of the commit, for the result and for error messages.

    Raises:
        CorruptLogError: a line is not an action, or an action lacks a required field; names the version.
    """
    if len(data) < LARGE_COMMIT_BYTES:
        return _decode_lines(data.splitlines(), version=version)
    return _decode_large(data, version=version)


def decode_commits(contents: Sequence[tuple[int, bytes]]) -> tuple[CommitActions, ...]:
    """Parse small commits as :func:`decode_commit` does, but convert the file actions of all commits to columns in one step.

    The conversion of many commits takes about as long as that of one.

    Args:
        contents: pairs of version and content; each content is smaller than ``LARGE_COMMIT_BYTES``.

    Raises:
        CorruptLogError: as :func:`decode_commit`.
    """
    if len(contents) < 2:
        return tuple(decode_commit(data, version=version) for version, data in contents)
    parsed = [_parse_lines(data.splitlines(), version=version) for version, data in contents]
    rows = [[row for actions in parsed for row in actions.get(name, ())] for name in ("add", "remove")]
    try:
        adds, removes = (file_table(all_rows, schema) for all_rows, schema in zip(rows, SCHEMAS, strict=True))
        check_files(adds)
        check_files(removes)
    except _MALFORMED:
        # Parse the commits one by one to report the version of the malformed one.
        return tuple(decode_commit(data, version=version) for version, data in contents)
    commits = []
    first_add = first_remove = 0
    for (version, _), actions in zip(contents, parsed, strict=True):
        added, removed = len(actions.get("add", ())), len(actions.get("remove", ()))
        files = (
            adds.slice(first_add, added) if added else no_files(True),
            removes.slice(first_remove, removed) if removed else no_files(False),
        )
        commits.append(_assemble(actions, version, files))
        first_add, first_remove = first_add + added, first_remove + removed
    return tuple(commits)


def decode_commit_info(data: bytes) -> CommitInfo | None:
    """The ``commitInfo`` of the first line; None if the first line is another action. Other lines are not parsed."""
    end = data.find(b"\n")
    try:
        first = parse_json((data if end < 0 else data[:end]).decode())
    except ValueError:
        return None
    fields = first.get("commitInfo") if isinstance(first, dict) else None
    return commit_info_of(fields) if isinstance(fields, dict) else None


def find_commit_info(data: bytes) -> CommitInfo | None:
    """The ``commitInfo`` of a commit on any line; None if it has none. Other actions are not parsed.

    Only tables with in-commit timestamps require it on the first line.
    """
    for line in data.splitlines():
        if b'"commitInfo"' in line and (info := decode_commit_info(line)) is not None:
            return info
    return None


def decode_metadata(line: str, *, version: int) -> Metadata | None:
    """The metadata that a line of a commit sets, as :func:`decode_commit` reads it; None for a line that sets none."""
    rows = _parse_lines((line.encode(),), version=version).get("metaData", ())
    try:
        return metadata_of(rows[0]) if rows else None
    except _MALFORMED as error:
        raise _malformed(version, "metaData", error) from error


def _decode_large(data: bytes, *, version: int) -> CommitActions:
    files = parse_file_actions(data)
    if files is None:
        return _decode_lines(data.split(b"\n"), version=version)
    rest = _decode_lines(files.others, version=version)
    return _with_files(rest, files.adds, files.removes)


def commit_actions(
    actions: Iterable[tuple[str, dict[str, Any]]], *, adds: pa.Table, removes: pa.Table, version: int
) -> CommitActions:
    """The actions of a commit whose lines are parsed already. Raises CorruptLogError as :func:`decode_commit`.

    Args:
        actions: names and fields of the actions that are not in ``adds`` and ``removes``.
    """
    fields_of: dict[str, list[dict[str, Any]]] = {}
    for name, fields in actions:
        fields_of.setdefault(name if name in _KNOWN_ACTIONS else _OTHER_LINES, []).append(fields)
    rest = _assemble(fields_of, version)
    return _with_files(rest, adds, removes) if adds.num_rows or removes.num_rows else rest


def _with_files(rest: CommitActions, adds: pa.Table, removes: pa.Table) -> CommitActions:
    """The actions of a commit, with the file actions that are columns already."""
    adds = pa.concat_tables([adds, rest.adds])
    removes = pa.concat_tables([removes, rest.removes])
    for name, table in (("add", adds), ("remove", removes)):
        try:
            check_files(table)
            if table is adds:
                one_vector_a_path(table)
        except FieldError as error:
            raise _malformed(rest.version, name, error) from error
    return replace(rest, adds=adds, removes=removes)


def _decode_lines(lines: Iterable[bytes], *, version: int) -> CommitActions:
    return _assemble(_parse_lines(lines, version=version), version)


_T = typing.TypeVar("_T")

_ActionsByName = Mapping[str, Sequence[dict[str, Any]]]
"""The fields of the actions of one commit by the name of the action."""


def _parse_lines(lines: Iterable[bytes], *, version: int) -> _ActionsByName:
    actions: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            action = parse_json(line.decode())
        except ValueError as error:
            raise CorruptLogError(
                f"Line {number} of version {version} is not JSON: {error}. The commit is damaged.",
                version=version,
                action="",
            ) from None
        if not isinstance(action, dict):
            raise CorruptLogError(
                f"Line {number} of version {version} is a {type(action).__name__}, not an action. The commit is damaged.",
                version=version,
                action="",
            )
        if len(action) != 1 or _COMMIT_ACTIONS.isdisjoint(action) or None in action.values():
            actions.setdefault(_OTHER_LINES, []).append(action)
        for name, fields in action.items():
            if fields is not None and name in _KNOWN_ACTIONS:
                if name == _GROUP and not isinstance(fields, dict):
                    actions.setdefault(_OTHER_LINES, []).append(action)
                    continue
                if not isinstance(fields, dict):
                    raise CorruptLogError(
                        f"Line {number} of version {version} is damaged: the value of {name} is not an object.",
                        version=version,
                        action=name,
                    )
                actions.setdefault(name, []).append(fields)
    return actions


_GROUP = "transactionGroup"
_COMMIT_ACTIONS = frozenset(
    {"add", "remove", "metaData", "protocol", "txn", "cdc", "commitInfo", "domainMetadata", _GROUP}
)
_KNOWN_ACTIONS = _COMMIT_ACTIONS | {"checkpointMetadata", "sidecar"}
_OTHER_LINES = "other lines"


_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, pa.ArrowException)


def _malformed(version: int, action: str, error: Exception) -> CorruptLogError:
    """The error for an action of a commit that cannot be read."""
    if isinstance(error, FieldError):
        what, field = f"{action}.{error}", error.field or None
    else:
        what, field = f"{action}: {error}", None
    return CorruptLogError(
        f"Version {version} holds a malformed action: {what}.", version=version, action=action, field=field
    )


def _assemble(actions: _ActionsByName, version: int, files: tuple[pa.Table, pa.Table] | None = None) -> CommitActions:
    """The actions of a commit; ``files`` are its adds and removes if they are columns already."""
    adds, removes = files or (_files_of(actions, "add", version), _files_of(actions, "remove", version))
    if adds.num_rows:
        try:
            one_vector_a_path(adds)
        except FieldError as error:
            raise _malformed(version, "add", error) from error

    def read_all(name: str, read: Callable[[dict[str, Any]], _T]) -> tuple[_T, ...]:
        try:
            return tuple(read(row) for row in actions.get(name, ()))
        except _MALFORMED as error:
            raise _malformed(version, name, error) from error

    def only(name: str, read: Callable[[dict[str, Any]], _T]) -> _T | None:
        values = read_all(name, read)
        if len(values) > 1:
            error = ValueError(f"it holds {len(values)} {name} actions and may hold one")
            raise _malformed(version, name, error)
        return values[0] if values else None

    infos, groups = actions.get("commitInfo", ()), actions.get(_GROUP, ())
    group = _group(groups)
    return CommitActions(
        version=version,
        commit_info=commit_info_of(infos[0]) if infos else None,
        protocol=only("protocol", protocol_of),
        metadata=only("metaData", metadata_of),
        transactions=read_all("txn", transaction_of),
        domains=read_all("domainMetadata", domain_of),
        adds=adds,
        removes=removes,
        cdc=read_all("cdc", _cdc),
        transaction_group=group,
        checkpoint_metadata=only("checkpointMetadata", _checkpoint_metadata),
        sidecars=read_all("sidecar", _sidecar),
        has_other_lines=_OTHER_LINES in actions or (bool(groups) and group is None),
    )


def _group(groups: Sequence[dict[str, Any]]) -> TransactionGroup | None:
    """The only one of the groups; None if there are several, or if it is malformed: no reader needs it."""
    if len(groups) != 1:
        return None
    try:
        return transaction_group_of(groups[0])
    except FieldError:
        return None


def _files_of(actions: _ActionsByName, name: str, version: int) -> pa.Table:
    """The file actions of one kind. A flaw in one of them is looked for if their conversion fails."""
    schema = ADD_SCHEMA if name == "add" else REMOVE_SCHEMA
    rows = actions.get(name, ())
    try:
        files = file_table(rows, schema)
        if files.num_rows:
            check_files(files)
        return files
    except FieldError as error:
        raise _malformed(version, name, error) from error
    except _MALFORMED as error:
        try:
            for row in rows:
                raise_flaw(row, schema)
        except FieldError as flaw:
            raise _malformed(version, name, flaw) from error
        raise _malformed(version, name, error) from error


def _cdc(row: dict[str, Any]) -> AddCdcFile:
    file = cdc_of(row)
    flaw = flaw_of_log_path(file.path)
    if flaw is not None:
        raise FieldError("path", f"names no file of the table. {flaw.removesuffix('.')}")
    return file


def _checkpoint_metadata(row: dict[str, Any]) -> CheckpointMetadata:
    return CheckpointMetadata(version=long(row, "version"), tags=optional_texts(row, "tags"))


def _sidecar(row: dict[str, Any]) -> SidecarFile:
    return SidecarFile(
        path=text(row, "path"),
        size_in_bytes=long(row, "sizeInBytes"),
        modification_time=long(row, "modificationTime"),
        tags=optional_texts(row, "tags"),
    )
