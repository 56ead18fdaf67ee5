"""The ``_last_checkpoint`` file and its checksum (protocol headings "Last Checkpoint File", "JSON checksum").

The file is only a hint. An invalid file decodes to None, and the reader then lists more of the log. The caller decides when the
file is written.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True, kw_only=True)
class V2CheckpointHint:
    """The V2 checkpoint to which the hint refers; ``path`` is its file name.

    ``non_file_actions`` are wrapped actions as in a commit, ``sidecar_files`` the contents of ``sidecar`` actions.
    """

    path: str
    size_in_bytes: int
    modification_time: int
    non_file_actions: tuple[Mapping[str, Any], ...] | None = None
    sidecar_files: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheckpoint:
    """Content of ``_last_checkpoint``; ``size`` is the number of actions, including those in sidecars.

    ``checksum`` is the value read from the file; :func:`encode` ignores it and computes its own.
    """

    version: int
    size: int
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    checkpoint_schema: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None
    v2_checkpoint: V2CheckpointHint | None = None
    checksum: str | None = None


class _JsonNumber(str):
    """A JSON number as its literal text: ``1.0`` and ``1`` have different canonical forms."""

    __slots__ = ()


def canonical_form(json_text: str) -> str:
    """The canonical form of a JSON document without its top-level ``checksum`` field.

    Raises:
        ValueError: the text is not JSON, or an object in it has a duplicate key.
    """
    document = json.loads(
        json_text,
        object_pairs_hook=_object_without_duplicates,
        parse_int=_JsonNumber,
        parse_float=_JsonNumber,
        parse_constant=_refuse_constant,
    )
    if isinstance(document, dict):
        document.pop("checksum", None)
    entries: list[tuple[str, str]] = []
    _flatten(document, (), entries)
    # The protocol sorts by path. The reference implementation sorts by `path=value`, which differs for arrays of 11 or more.
    entries.sort(key=lambda entry: entry[0].encode())
    return ",".join(f"{path}={value}" if path else value for path, value in entries)


def canonical_md5(json_text: str) -> str:
    """Lower-case hexadecimal MD5 of the canonical form. Raises ValueError as :func:`canonical_form`."""
    return hashlib.md5(canonical_form(json_text).encode(), usedforsecurity=False).hexdigest()


def encode(hint: LastCheckpoint) -> bytes:
    """Encode the file, with ``version``, ``size`` and ``parts`` first and a newly computed ``checksum`` last."""
    content: dict[str, Any] = {"version": hint.version, "size": hint.size}
    optional = (
        ("parts", hint.parts),
        ("sizeInBytes", hint.size_in_bytes),
        ("numOfAddFiles", hint.num_of_add_files),
        ("checkpointSchema", hint.checkpoint_schema),
        ("tags", None if hint.tags is None else dict(hint.tags)),
        ("v2Checkpoint", None if hint.v2_checkpoint is None else _v2_to_json(hint.v2_checkpoint)),
    )
    content.update((name, value) for name, value in optional if value is not None)
    content["checksum"] = canonical_md5(_dump(content))
    return _dump(content).encode()


def decode(data: bytes | str) -> LastCheckpoint | None:
    """Decode the file; None if it is not a JSON object, has a duplicate key, a wrong checksum or lacks a required field."""
    try:
        text = data if isinstance(data, str) else data.decode()
        content = json.loads(text, object_pairs_hook=_object_without_duplicates, parse_constant=_refuse_constant)
        if not isinstance(content, dict):
            return None
        stored = content.get("checksum")
        if stored is not None and canonical_md5(text) != stored:
            return None
        return _from_json(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _from_json(content: Mapping[str, Any]) -> LastCheckpoint:
    v2 = content.get("v2Checkpoint")
    tags = content.get("tags")
    schema = content.get("checkpointSchema")
    return LastCheckpoint(
        version=_required_long(content, "version"),
        size=_required_long(content, "size"),
        parts=_optional_long(content, "parts"),
        size_in_bytes=_optional_long(content, "sizeInBytes"),
        num_of_add_files=_optional_long(content, "numOfAddFiles"),
        checkpoint_schema=schema if isinstance(schema, dict) else None,
        tags=tags if isinstance(tags, dict) else None,
        v2_checkpoint=_v2_from_json(v2) if isinstance(v2, dict) else None,
        checksum=content.get("checksum"),
    )


def _v2_to_json(hint: V2CheckpointHint) -> dict[str, Any]:
    content: dict[str, Any] = {
        "path": hint.path,
        "sizeInBytes": hint.size_in_bytes,
        "modificationTime": hint.modification_time,
    }
    if hint.non_file_actions is not None:
        content["nonFileActions"] = list(hint.non_file_actions)
    if hint.sidecar_files is not None:
        content["sidecarFiles"] = list(hint.sidecar_files)
    return content


def _v2_from_json(content: Mapping[str, Any]) -> V2CheckpointHint:
    actions, sidecars = content.get("nonFileActions"), content.get("sidecarFiles")
    return V2CheckpointHint(
        path=str(content["path"]),
        size_in_bytes=_required_long(content, "sizeInBytes"),
        modification_time=_required_long(content, "modificationTime"),
        non_file_actions=None if actions is None else tuple(actions),
        sidecar_files=None if sidecars is None else tuple(sidecars),
    )


def _required_long(content: Mapping[str, Any], name: str) -> int:
    value = content[name]
    if type(value) is not int or value < 0:
        raise ValueError(name)
    return value


def _optional_long(content: Mapping[str, Any], name: str) -> int | None:
    return None if content.get(name) is None else _required_long(content, name)


def _flatten(value: Any, path: tuple[str, ...], entries: list[tuple[str, str]]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(item, (*path, _encode_string(key)), entries)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _flatten(item, (*path, str(index)), entries)
    else:
        entries.append(("+".join(path), _scalar(value)))


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, _JsonNumber) else _encode_string(value)


def _encode_string(text: str) -> str:
    # Not urllib.parse.quote: the characters that it leaves unquoted have changed between Python versions.
    encoded = "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode())
    return f'"{encoded}"'


def _object_without_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"The key {key!r} occurs twice.")
        content[key] = value
    return content


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON.")


def _dump(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
