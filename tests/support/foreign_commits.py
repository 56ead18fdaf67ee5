"""Commits that other implementations have written, as they would propose them to a catalog."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cm_delta_dagster.protocol.actions.action_fields import protocol_of
from cm_delta_dagster.protocol.features.table_features import reader_features, writer_features
from tests.support.unreadable_commits import TIMED, flaw_of

_COMMIT_FILE = re.compile(r"\d{20}(\.[0-9a-f-]{36})?\.json")


def as_proposal(data: bytes) -> bytes:
    """The commit for a table that a catalog manages.

    Its commitInfo is the first action and has what the catalog requires; a protocol lists the features of such tables, and a
    metadata enables in-commit timestamps. All other lines stay as they are.
    """
    lines = data.splitlines()
    infos = [line for line in lines if b'"commitInfo"' in line[:20]]
    info = json.loads(infos[0])["commitInfo"] if infos else {}
    first = {"commitInfo": {"txnId": "t", "inCommitTimestamp": 1, **info}}
    rest = (_timed(_managed(line)) for line in lines if line not in infos)
    return b"".join(line + b"\n" for line in (json.dumps(first).encode(), *rest))


def _managed(line: bytes) -> bytes:
    """The line; a protocol with the features of the catalog, which lists the features that a legacy protocol implies."""
    if b'"protocol"' not in line[:20]:
        return line
    fields: dict[str, Any] = json.loads(line)["protocol"]
    if "catalogManaged" in (fields.get("writerFeatures") or ()):
        return line
    protocol = protocol_of(fields)
    of_readers = {*reader_features(protocol), "catalogManaged"}
    of_writers = {*of_readers, *writer_features(protocol), "inCommitTimestamp"}
    lists = {"readerFeatures": sorted(of_readers), "writerFeatures": sorted(of_writers)}
    return json.dumps({"protocol": {**fields, "minReaderVersion": 3, "minWriterVersion": 7, **lists}}).encode()


def _timed(line: bytes) -> bytes:
    """The line; a metadata that enables in-commit timestamps, if its configuration is one."""
    if b'"metaData"' not in line[:20]:
        return line
    fields: dict[str, Any] = json.loads(line)["metaData"]
    configuration = {**(fields.get("configuration") or {}), **TIMED}
    return json.dumps({"metaData": {**fields, "configuration": configuration}}).encode()


def commits_below(root: Path) -> Iterator[tuple[Path, bytes]]:
    """The commit files of all tables below ``root``, published and staged ones."""
    for file in sorted(root.rglob("*.json")):
        if _COMMIT_FILE.fullmatch(file.name) and "_delta_log" in file.parts:
            yield file, file.read_bytes()


def refused_below(root: Path) -> tuple[int, dict[str, str]]:
    """The number of commits below ``root``, and why a catalog would not ratify those that it would not, by path."""
    refused: dict[str, str] = {}
    number = 0
    for file, data in commits_below(root):
        number += 1
        flaw = flaw_of(as_proposal(data))
        if flaw is not None:
            refused[str(file.relative_to(root))] = str(flaw)
    return number, refused
