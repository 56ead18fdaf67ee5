"""What a commit does to its table."""

import json
from typing import Any

import pytest

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from cm_delta_dagster.protocol.commits.commit_content import CommitContent, content_of

VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 40, "cardinality": 3}


def add(path: str, rows: int | None = 10, **fields: Any) -> dict[str, Any]:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    base = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True, "stats": stats}
    return {"add": base | fields}


def remove(path: str, rows: int | None = 10, **fields: Any) -> dict[str, Any]:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1, "stats": stats} | fields}


def found(*actions: dict[str, Any]) -> CommitContent:
    lines = ({"commitInfo": {"operation": "WRITE", "txnId": "t"}}, *actions)
    return content_of(decode_commit("".join(f"{json.dumps(line)}\n" for line in lines).encode(), version=1))


def test_added_and_removed_files_are_counted_with_their_rows() -> None:
    content = found(add("a"), add("b", 5), remove("c", 7))
    assert content == CommitContent(operation="WRITE", files_added=2, files_removed=1, rows_added=15, rows_removed=7)
    assert content.removes_rows and not found(add("a")).removes_rows


def test_a_commit_without_file_actions_changes_no_rows() -> None:
    content = found()
    assert content == CommitContent(operation="WRITE") and not content.removes_rows
    assert (content.files_added, content.files_removed, content.files_updated, content.files_rearranged) == (0, 0, 0, 0)
    assert (content.rows_added, content.rows_removed) == (0, 0)


def test_a_deletion_vector_removes_the_rows_that_it_marks() -> None:
    content = found(remove("a"), add("a", deletionVector=VECTOR))
    assert (content.files_added, content.files_removed, content.files_updated) == (0, 0, 1)
    assert (content.rows_added, content.rows_removed) == (0, 3) and content.removes_rows
    restored = found(remove("a", deletionVector=VECTOR), add("a"))
    assert (restored.files_updated, restored.rows_removed) == (1, 0) and restored.removes_rows
    assert found(add("a", deletionVector=VECTOR)).has_new_vectors


def test_a_deletion_vector_that_marks_nothing_hides_no_rows() -> None:
    content = found(add("a", deletionVector=VECTOR | {"cardinality": 0}))
    assert (content.rows_added, content.rows_removed, content.has_new_vectors) == (10, 0, True)


def test_rearranged_files_change_no_rows() -> None:
    content = found(add("a", dataChange=False), remove("b", dataChange=False), remove("c", dataChange=False))
    assert (content.files_rearranged, content.files_added, content.files_removed) == (3, 0, 0)
    assert not content.removes_rows


def test_unknown_row_counts_are_not_guessed() -> None:
    content = found(add("a", None), remove("b", None), remove("c", 4))
    assert content.rows_added is None and content.rows_removed is None
    assert found(add("a", None)).rows_removed == 0


def test_many_files_are_counted_as_few_are() -> None:
    content = found(*(add(f"a{number}", number) for number in range(100)))
    assert (content.files_added, content.rows_added) == (100, 4950)


def test_other_actions_are_facts_too() -> None:
    domain = {"domainMetadata": {"domain": "team", "configuration": "{}", "removed": False}}
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    content = found(domain, protocol, {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}})
    assert [one.domain for one in content.domains] == ["team"] and content.protocol is not None
    assert content.metadata is None and content.has_change_files and content.removes_rows


def test_bytes_that_are_not_a_commit_are_refused() -> None:
    for data in (b"\xff\n", b"[]\n", b'{"add": 1}\n'):
        with pytest.raises(CorruptLogError):
            content_of(decode_commit(data, version=1))
