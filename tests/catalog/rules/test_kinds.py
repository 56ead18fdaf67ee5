"""Each kind of commit rules, evaluated on one commit."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind
from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.catalog.rules.kinds import KINDS, checked_rule, violations
from cm_delta_dagster.catalog.rules.rule_kind import CommitAuthor, GuardedCommit
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.actions.commit_json import decode_commit

NAMED = "delta.columnMapping.physicalName"


def field(name: str, kind: Any = "long", physical: str | None = None) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {NAMED: physical or f"col-{name}"}}


def metadata(*fields: dict[str, Any], **configuration: str) -> Metadata:
    text = json.dumps({"type": "struct", "fields": list(fields)})
    return Metadata(id="5d1a", schema_string=text, configuration=configuration)


def action(of: Metadata) -> dict[str, Any]:
    values = {"id": of.id, "format": {"provider": "parquet", "options": {}}, "schemaString": of.schema_string}
    return {"metaData": {**values, "partitionColumns": [], "configuration": dict(of.configuration)}}


def add(path: str, rows: int | None = None, **more: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    fields = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": {**fields, **stats, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, **more}}


def what(
    kind: str,
    arguments: Mapping[str, Any],
    *actions: dict[str, Any],
    info: Mapping[str, Any] | None = None,
    before: Metadata | None = None,
    counts: tuple[int | None, int | None] = (100, 100),
    author: CommitAuthor | None = None,
    files: tuple[int, int] = (10, 9),
) -> str | None:
    """What the commit does against one rule; None if it does nothing against it.

    ``counts``: rows of the table before and after the commit. ``files``: the same of files.
    """
    lines = [{"commitInfo": {"txnId": "t", "inCommitTimestamp": 1, **(info or {})}}, *actions]
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    commit = GuardedCommit(
        actions=decode_commit(content, version=1),
        before=before or metadata(field("id")),
        counts=TableCounts(num_rows=counts[0], num_files=files[0], size_bytes=1),
        counts_after=TableCounts(num_rows=counts[1], num_files=files[1], size_bytes=1),
        author=author or CommitAuthor(),
    )
    rule = checked_rule(CommitRule(scope="main", name=kind, kind=CommitRuleKind(kind), arguments=arguments))
    found = violations([rule], commit)
    return found[0].what if found else None


def test_every_kind_has_an_entry_that_says_what_it_takes() -> None:
    assert set(KINDS) == set(CommitRuleKind)


@pytest.mark.parametrize(
    ("name", "is_valid"), [("a", True), ("n" * 120, True), ("n" * 121, False), ("", False), ("a\n", False), (5, False)]
)
def test_the_name_of_a_rule_has_1_to_120_printable_characters(name: Any, is_valid: bool) -> None:
    rule = CommitRule(scope="main", name=name, kind=CommitRuleKind.APPEND_ONLY)
    if is_valid:
        assert checked_rule(rule).name == name
        return
    with pytest.raises(InvalidArgumentError, match="1 to 120 printable characters"):
        checked_rule(rule)


VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 1, "cardinality": 2}


def test_a_file_that_is_removed_and_added_unchanged_counts_as_removed() -> None:
    """Readers disagree whether it is there after the commit. With another deletion vector it is."""
    stats = json.dumps({"numRecords": 9})
    same = (remove("a", stats=stats), add("a", 9))
    assert what("max_removed_files", {"files": 0}, *same) == "removes 1 files, more than 0"
    assert what("max_removed_rows", {"rows": 8}, *same) == "removes 9 rows, more than 8"
    other = (remove("a", stats=stats), add("a", 9, deletionVector=VECTOR))
    assert what("max_removed_files", {"files": 0}, *other) is None
    assert what("max_removed_rows", {"rows": 2}, *other) is None
    again = (remove("a", stats=stats, deletionVector=VECTOR), add("a", 9, deletionVector=VECTOR))
    assert what("max_removed_files", {"files": 0}, *again) == "removes 1 files, more than 0"


def test_append_only_lets_files_be_rearranged_and_no_row_be_removed() -> None:
    assert what("append_only", {}, add("a", 3)) is None
    moved = (remove("a", dataChange=False), add("b", 3, dataChange=False))
    assert what("append_only", {}, *moved, files=(10, 10)) is None
    assert what("append_only", {}, *moved, files=(10, 10), counts=(100, 97)) == "removes or changes rows"
    assert what("append_only", {}, *moved, files=(10, 10), counts=(100, 99)) == "removes or changes rows"
    assert what("append_only", {}, *moved, files=(10, 10), counts=(100, 101)) is None
    assert what("append_only", {}, remove("a"), add("a", 3)) == "removes or changes rows"


@pytest.mark.parametrize(
    ("arguments", "after", "expected"),
    [
        ({"fraction": 0.4}, 60, None),
        ({"fraction": 0.4}, 59, "removes 41 of 100 rows, more than the fraction 0.4"),
        ({"rows": 41}, 59, None),
        ({"rows": 40}, 59, "removes 41 rows, more than 40"),
        ({"rows": 0}, 130, None),
        ({"rows": 1000}, None, "removes files whose number of rows the log does not have"),
    ],
)
def test_removed_rows_are_limited_by_number_or_fraction(
    arguments: dict[str, Any], after: int | None, expected: str | None
) -> None:
    assert what("max_removed_rows", arguments, remove("a"), counts=(100, after)) == expected


@pytest.mark.parametrize("arguments", [{"rows": 0}, {"fraction": 0.0}])
def test_a_commit_that_removes_no_file_removes_no_rows(arguments: dict[str, Any]) -> None:
    assert what("max_removed_rows", arguments, add("a", 3), counts=(100, 103)) is None
    assert what("max_removed_rows", arguments, add("a"), counts=(None, None)) is None


def test_row_counts_that_contradict_the_actions_are_not_believed() -> None:
    found = what("max_removed_rows", {"rows": 5}, remove("a"), counts=(100, 100), files=(10, 10))
    assert found == "removes files whose number of rows the log does not have"
    stated = remove("a", stats='{"numRecords":50}')
    assert what("max_removed_rows", {"rows": 5}, stated, counts=(100, 100)) == "removes 50 rows, more than 5"


def test_a_file_that_gets_a_deletion_vector_is_not_removed() -> None:
    assert what("max_removed_files", {"files": 0}, remove("a"), add("a", 3, deletionVector=VECTOR)) is None
    assert what("max_removed_files", {"files": 0}, remove("a", dataChange=False)) is None
    gone = [remove(f"f{number}") for number in range(5)]
    assert what("max_removed_files", {"fraction": 0.5}, *gone) is None
    assert what("max_removed_files", {"fraction": 0.4}, *gone) == "removes 5 of 10 files, more than the fraction 0.4"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (metadata(field("id"), field("new")), None),
        (metadata(field("ID", physical="col-id")), None),
        (metadata(field("other")), "drops the column id"),
        (metadata(field("key", physical="col-id")), "renames the column id to key"),
        (metadata(field("id", physical="col-9")), "replaces the column id by another one of its name"),
        (metadata(field("id", "string")), "changes the type of the column id from bigint to string"),
    ],
)
def test_protected_columns_keep_name_type_and_content(after: Metadata, expected: str | None) -> None:
    assert what("protected_columns", {"columns": ["id"]}, action(after)) == expected


def test_a_protected_struct_may_get_fields_and_lose_none() -> None:
    def struct(*names: str) -> Metadata:
        return metadata(field("s", {"type": "struct", "fields": [field(name) for name in names]}))

    before, rule = struct("a"), {"columns": ["s"]}
    assert what("protected_columns", rule, action(struct("a", "b")), before=before) is None
    assert "changes the type" in str(what("protected_columns", rule, action(struct("b")), before=before))
    dropped = what("protected_columns", {"columns": ["s.a"]}, action(struct("b")), before=before)
    assert dropped == "drops the column s.a"


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda kind: {"type": "array", "elementType": kind, "containsNull": True}, "s.element.a"),
        (lambda kind: {"type": "map", "keyType": "long", "valueType": kind, "valueContainsNull": True}, "s.value.a"),
        (lambda kind: {"type": "map", "keyType": kind, "valueType": "long", "valueContainsNull": True}, "s.key.a"),
    ],
)
def test_fields_inside_arrays_and_maps_can_be_protected(wrap: Callable[[Any], Any], path: str) -> None:
    def nested(*names: str) -> Metadata:
        return metadata(field("s", wrap({"type": "struct", "fields": [field(name) for name in names]})))

    before, parent = nested("a", "b"), path.removesuffix(".a")
    assert what("protected_columns", {"columns": [path]}, action(nested("a")), before=before) is None
    dropped = what("protected_columns", {"columns": [path]}, action(nested("b")), before=before)
    assert dropped == f"drops the column {path}"
    changed = what("protected_columns", {"columns": [parent]}, action(nested("b")), before=before)
    assert changed is not None and "changes the type" in changed


def test_column_mapping_can_be_enabled_for_protected_columns() -> None:
    def plain(named: bool) -> Metadata:
        def one(name: str, kind: Any = "long") -> dict[str, Any]:
            return {"name": name, "type": kind, "nullable": True, "metadata": {NAMED: name} if named else {}}

        return metadata(one("s", {"type": "struct", "fields": [one("a")]}))

    rule = {"columns": ["s", "s.a"]}
    assert what("protected_columns", rule, action(plain(True)), before=plain(False)) is None
    other = metadata(field("s", {"type": "struct", "fields": [field("a")]}))
    found = what("protected_columns", rule, action(other), before=plain(False))
    assert found == "replaces the column s by another one of its name"


def test_protected_properties_are_neither_set_nor_removed() -> None:
    rule = {"properties": ["delta.appendOnly"]}
    same = metadata(field("id"), **{"delta.appendOnly": "true", "other": "1"})
    before = metadata(field("id"), **{"delta.appendOnly": "true"})
    assert what("protected_properties", rule, action(same), before=before) is None
    for after in (metadata(field("id")), metadata(field("id"), **{"delta.appendOnly": "false"})):
        found = what("protected_properties", rule, action(after), before=before)
        assert found == "changes the property 'delta.appendOnly'"


def test_required_constraints_can_be_added_one_by_one() -> None:
    rule = {"constraints": ["positive", "known"]}
    one = metadata(field("id"), **{"delta.constraints.positive": "id > 0"})
    both = metadata(field("id"), **{"delta.constraints.positive": "id > 0", "delta.constraints.known": "true"})
    assert "without the CHECK constraint" in str(what("required_constraints", rule, add("a", 1)))
    assert what("required_constraints", rule, action(one)) is None
    assert what("required_constraints", rule, action(both), before=one) is None
    assert what("required_constraints", rule, add("a", 1), before=both) is None
    assert what("required_constraints", rule, action(one), before=both) == "drops the CHECK constraint 'known'"


def test_the_schema_is_changed_by_owners_or_named_principals_only() -> None:
    wider, stranger = action(metadata(field("id"), field("new"))), CommitAuthor(principal="eve", is_owner=False)
    assert what("schema_change", {}, wider) is None
    assert "as eve, and not as an owner" in str(what("schema_change", {}, wider, author=stranger))
    steward = CommitAuthor(principal="bob", names=frozenset({"user:bob", "role:stewards"}), is_owner=False)
    assert what("schema_change", {"principals": ["role:stewards"]}, wider, author=steward) is None
    assert what("schema_change", {"principals": ["role:stewards"]}, wider, author=CommitAuthor()) is not None
    property_only = action(metadata(field("id"), other="1"))
    assert what("schema_change", {}, property_only, author=stranger) is None


def test_commits_state_the_required_tags_and_user_metadata() -> None:
    assert what("required_tags", {"tags": ["owner"]}, info={"tags": {"owner": "etl"}}) is None
    assert (
        what("required_tags", {"tags": ["owner"]}, info={"tags": {"owner": ""}})
        == "lacks the tag 'owner' in commitInfo"
    )
    assert what("required_user_metadata", {}, info={"userMetadata": "any"}) is None
    assert what("required_user_metadata", {}) == "has no userMetadata"
    assert "pattern" in str(what("required_user_metadata", {"pattern": "T-[0-9]+"}, info={"userMetadata": "T-x"}))
    assert "pattern" in str(what("required_user_metadata", {"pattern": r"T-\d"}, info={"userMetadata": "T-\u0661"}))
