"""On PostgreSQL commit rules hold against clients that do not use this package, as the package evaluates them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation, RuleViolation
from cm_delta_dagster.catalog.ratification import CommitProposal, Ratified, TableCounts
from cm_delta_dagster.catalog.sql import SqlCatalog, commits, protected_catalog, rule_check
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CommitRefusedError, InvalidArgumentError
from cm_delta_dagster.operations.tables.create import create_table
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.storage.stores import Stores
from tests.contracts.catalog_bench import create
from tests.support.actions import add_file
from tests.support.commit_builder import ADD, commit_of, of_bytes
from tests.support.database_roles import create_role, raw_client, url_as
from tests.support.lake import SCHEMA

pytestmark = pytest.mark.postgres

ORDERS = TableIdentifier("main", "sales", "orders")
NAMED = "delta.columnMapping.physicalName"


def field(name: str, kind: Any = "long", physical: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {NAMED: physical or f"col-{name}", **more}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def action(schema: dict[str, Any], *, partitioned: tuple[str, ...] = (), **configuration: str) -> dict[str, Any]:
    values = {"id": "5d1a", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)}
    return {"metaData": {**values, "partitionColumns": list(partitioned), "configuration": configuration}}


def add(path: str, rows: int | None = None, **more: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    return {"add": {**ADD["add"], "path": path, **stats, **more}}


def remove(path: str, rows: int | None = None, **more: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    return {"remove": {"path": path, "dataChange": True, **stats, **more}}


ADDRESS = struct(field("city", "string"), field("zip"))
ITEMS = {"type": "array", "elementType": struct(field("price")), "containsNull": True}
PRICES = {"type": "map", "keyType": "string", "valueType": struct(field("net")), "valueContainsNull": True}
COLUMNS = (
    field("id"),
    field("a.b", physical="dotted"),
    field("address", ADDRESS),
    field("items", ITEMS),
    field("prices", PRICES),
)
KEPT = {"delta.appendOnly": "false", "delta.constraints.positive": "id > 0"}
BEFORE = action(struct(*COLUMNS), partitioned=("id",), **KEPT)


def changed(name: str, new: dict[str, Any] | None) -> dict[str, Any]:
    """The metadata with another field in the place of the column ``name``, or without it."""
    fields = (new if one["name"] == name else one for one in COLUMNS)
    return action(struct(*(one for one in fields if one is not None)), partitioned=("id",), **KEPT)


RULES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "append_only": ("append_only", {}),
    "rows": ("max_removed_rows", {"rows": 5}),
    "share of rows": ("max_removed_rows", {"fraction": 0.29}),
    "files": ("max_removed_files", {"files": 1}),
    "share of files": ("max_removed_files", {"fraction": 0.2}),
    "columns": (
        "protected_columns",
        {"columns": ["ID", "`a.b`", "address.city", "items.element.price", "prices.value.net"]},
    ),
    "struct": ("protected_columns", {"columns": ["address", "items", "prices"]}),
    "properties": ("protected_properties", {"properties": ["Delta.AppendOnly"]}),
    "constraints": ("required_constraints", {"constraints": ["Positive"]}),
    "more constraints": ("required_constraints", {"constraints": ["positive", "known"]}),
    "tags": ("required_tags", {"tags": ["owner", "ticket"]}),
    "note": ("required_user_metadata", {}),
    "ticket": ("required_user_metadata", {"pattern": r"(?:T|OPS)-\d{2,}(?: [^\]x]*)?"}),
    "owners": ("schema_change", {}),
    "stewards": ("schema_change", {"principals": ["stewards"]}),
}
INFO: Mapping[str, Any] = {"tags": {"owner": "etl", "ticket": "1"}, "userMetadata": "OPS-12 nightly"}

COMMITS: Mapping[str, tuple[Mapping[str, Any], tuple[dict[str, Any], ...]]] = {
    "adds": (INFO, (add("n", 3),)),
    "adds nothing": (INFO, ()),
    "has no tags": ({"userMetadata": "T-1"}, (add("n", 3),)),
    "has no note": ({"tags": INFO["tags"]}, ()),
    "has an empty tag": ({"tags": {"owner": "", "ticket": "1"}}, ()),
    "has another note": ({**INFO, "userMetadata": "see T-12"}, ()),
    "has a note with a bracket": ({**INFO, "userMetadata": "T-12 ]"}, ()),
    "has a note of two lines": ({**INFO, "userMetadata": "T-12 a\nb"}, ()),
    "has a note with a newline at its end": ({**INFO, "userMetadata": "T-12\n"}, ()),
    "removes a file": (INFO, (remove("a", 4),)),
    "removes a file of unknown rows": (INFO, (remove("a"),)),
    "removes two files": (INFO, (remove("a", 4), remove("b", 2))),
    "removes three files": (INFO, (remove("a", 1), remove("b", 1), remove("c", 1))),
    "removes 29 rows": (INFO, (remove("a", 29),)),
    "removes 30 rows": (INFO, (remove("a", 30),)),
    "updates rows": (INFO, (remove("a", 40), add("n", 40))),
    "writes a vector": (
        INFO,
        (
            remove("a", 40),
            add(
                "a", 40, deletionVector={"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 7}
            ),
        ),
    ),
    "removes and adds the same files": (
        INFO,
        (remove("a", 40), remove("b", 4), add("a", 40), add("b", 4)),
    ),
    "rearranges the same file": (INFO, (remove("a", 4, dataChange=False), add("a", 4, dataChange=False))),
    "rearranges": (
        INFO,
        (remove("a", 4, dataChange=False), remove("b", 6, dataChange=False), add("n", 10, dataChange=False)),
    ),
    "loses rows while it rearranges": (INFO, (remove("a", 4, dataChange=False), add("n", 3, dataChange=False))),
    "rearranges unknown rows": (INFO, (remove("a", dataChange=False), add("n", 3, dataChange=False))),
    "hides removals beside an add": (
        INFO,
        (remove("a", 4, dataChange=False), remove("b", 4, dataChange=False), add("n", 8)),
    ),
    "keeps the metadata": (INFO, (BEFORE,)),
    "adds a column": (INFO, (action(struct(*COLUMNS, field("new")), partitioned=("id",), **KEPT),)),
    "drops a column": (INFO, (changed("id", None),)),
    "drops a column with a dot": (INFO, (changed("a.b", None),)),
    "renames a column": (INFO, (changed("id", field("key", physical="col-id")),)),
    "changes the case of a column": (INFO, (changed("id", field("Id", physical="col-id")),)),
    "replaces a column": (INFO, (changed("id", field("id", physical="other")),)),
    "changes a type": (INFO, (changed("id", field("id", "string")),)),
    "moves a mark of identity": (INFO, (changed("id", field("id", **{"delta.identity.highWaterMark": 9})),)),
    "adds a nested field": (INFO, (changed("address", field("address", struct(*ADDRESS["fields"], field("street")))),)),
    "drops a nested field": (INFO, (changed("address", field("address", struct(field("zip")))),)),
    "drops a field of elements": (
        INFO,
        (changed("items", field("items", {**ITEMS, "elementType": struct(field("x"))})),),
    ),
    "changes a field of values": (
        INFO,
        (changed("prices", field("prices", {**PRICES, "valueType": struct(field("net", "integer"))})),),
    ),
    "makes an array a long": (INFO, (changed("items", field("items")),)),
    "changes the partitioning": (INFO, (action(struct(*COLUMNS), **KEPT),)),
    "sets a protected property": (
        INFO,
        (action(struct(*COLUMNS), partitioned=("id",), **{**KEPT, "delta.appendOnly": "true"}),),
    ),
    "sets another property": (INFO, (action(struct(*COLUMNS), partitioned=("id",), **KEPT, other="1"),)),
    "drops a constraint": (INFO, (action(struct(*COLUMNS), partitioned=("id",), **{"delta.appendOnly": "false"}),)),
    "adds a constraint": (
        INFO,
        (action(struct(*COLUMNS), partitioned=("id",), **KEPT, **{"delta.constraints.known": "true"}), add("n", 1)),
    ),
}
"""What a commit has in commitInfo, and its actions."""


@dataclass(frozen=True)
class Ruled:
    """A protected catalog, and a role that may change rows and schema of ``orders``."""

    url: str
    role: str
    owner: SqlCatalog
    orders: TableEntry

    def client(self) -> SqlCatalog:
        return SqlCatalog(url_as(self.url, self.role))


@pytest.fixture
def ruled(postgres_url: str) -> Iterator[Ruled]:
    role = create_role(postgres_url, "changer")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        orders = create(owner, ORDERS)
        values = BEFORE["metaData"]
        metadata = Metadata(
            id=values["id"],
            schema_string=values["schemaString"],
            partition_columns=tuple(values["partitionColumns"]),
            configuration=values["configuration"],
        )
        first = replace(commit_of(1, BEFORE), metadata=metadata)
        counts = TableCounts(num_rows=100, num_files=10, size_bytes=1)
        owner.commit(orders.table_id, replace(first, summary=replace(first.summary, counts=counts)))
        owner.enable_grants()
        owner.grant([Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN], str(ORDERS), role)
        yield Ruled(postgres_url, role, owner, orders)


def rule(name: str, on_violation: OnViolation = OnViolation.REFUSE) -> CommitRule:
    kind, arguments = RULES[name]
    return CommitRule(
        scope=str(ORDERS), name=name, kind=CommitRuleKind(kind), arguments=arguments, on_violation=on_violation
    )


def proposed(name: str, *, counts: TableCounts | None = None) -> CommitProposal:
    info, actions = COMMITS[name]
    return described_by(info, *actions, counts=counts)


def described_by(info: Mapping[str, Any], *actions: dict[str, Any], counts: TableCounts | None) -> CommitProposal:
    """A proposal with these actions, and ``info`` in its commitInfo."""
    one = commit_of(2, *actions)
    lines = [json.loads(line) for line in (one.content or b"").splitlines()]
    lines[0]["commitInfo"] |= info
    one = of_bytes(one, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
    return replace(one, summary=replace(one.summary, counts=counts))


def sent(client: Any, table_id: str, one: CommitProposal, content: bytes | None) -> Any:
    """The answer to a client that says that it has checked the rules."""
    call = "SELECT cm_delta_commit(ARRAY[%s], ARRAY[%s::jsonb], ARRAY[%s::bytea])"
    values = dict(protected_catalog.described(table_id, one))
    answer = client.execute(call, (table_id, json.dumps(values), content)).fetchone()[0][0]
    if answer["answer"] == "check_first":
        values["checked_rules"] = answer["rules"]
        answer = client.execute(call, (table_id, json.dumps(values), content)).fetchone()[0][0]
    return answer


def both(connection: sa.Connection, table_id: str, one: CommitProposal) -> tuple[set[str], set[str]]:
    """The names of the rules that a commit violates: as the package finds them, and as the database does."""
    context = commits.context_without_lock(connection, table_id, one, now_ms=10**12)
    package = {found.rule.name for found in rule_check.violations_of(connection, context)}
    described = json.dumps(protected_catalog.described(table_id, one))
    values = {"of_table": table_id, "proposal": described, "content": one.content}
    in_database = sa.text("SELECT cm_delta_violations(:of_table, CAST(:proposal AS jsonb), :content)")
    return package, {each["demand"]["name"] for each in connection.execute(in_database, values).scalar_one()}


def random_commit(random: Random) -> CommitProposal:
    """A commit of valid actions over a few files, whose values are often missing, zero, null or equal."""
    vectors = [
        {"storageType": "u", "pathOrInlineDv": "x", "offset": place, "sizeInBytes": 1, "cardinality": 3}
        for place in (0, 1)
    ]

    def file_action() -> dict[str, Any]:
        more: dict[str, Any] = {"dataChange": random.random() < 0.6}
        if random.random() < 0.3:
            more["deletionVector"] = random.choice([None, *vectors])
        if random.random() < 0.1:
            more["stats"] = random.choice(
                ["", "{", "[]", "null", '{"numRecords":"3"}', '{"numRecords":null}', '{"other":1}']
            )
        make = random.choice([add, remove])
        return make(random.choice("abcde"), random.choice([None, 0, 2, 7, 40]), **more)

    actions = [file_action() for _ in range(random.randrange(6))]
    paths = [(name, each["path"]) for each in actions for name, each in each.items()]
    if len(set(paths)) < len(paths):  # Readers refuse some commits that have a file twice.
        actions = actions[:1]
    if random.random() < 0.4:
        columns = [
            random.choice([one, field(one["name"]), field(one["name"], "string")])
            for one in COLUMNS
            if random.random() < 0.9
        ]
        kept = {key: random.choice([value, value, "other"]) for key, value in KEPT.items() if random.random() < 0.9}
        actions.append(action(struct(*columns), partitioned=random.choice([("id",), ()]), **kept))
    info = {
        "tags": {name: random.choice(["", "x"]) for name in ("owner", "ticket", "other") if random.random() < 0.8},
        "userMetadata": random.choice([None, "", "T-1", "T-12", "OPS-123 x", "OPS-123 \u00e9\n]", "T-\u0661\u0662"]),
    }
    numbers = (None, 0, 60, 93, 100), (0, 8, 9, 10, 11)
    rows, files = (random.choice(each) for each in numbers)
    counts = random.choice([None, TableCounts(num_rows=rows, num_files=files or 0, size_bytes=1)])
    return described_by(info, *actions, counts=counts)


def test_the_database_agrees_with_the_package_on_random_commits(ruled: Ruled) -> None:
    for name in RULES:
        ruled.owner.set_commit_rule(rule(name), confirmed=True)
    random, violated = Random(19), set[str]()

    def compare(connection: sa.Connection) -> None:
        for number in range(250):
            one = random_commit(random)
            package, found = both(connection, ruled.orders.table_id, one)
            assert found == package, (number, (one.content or b"").decode(), one.summary.counts)
            violated.update(package)

    ruled.owner._database.read(compare)
    assert violated >= set(RULES) - {"owners", "stewards"}


def test_the_database_finds_the_violations_that_the_package_finds(ruled: Ruled) -> None:
    """For commits of every kind against rules of every kind, by an owner and by a role that is not one."""
    for name in RULES:
        ruled.owner.set_commit_rule(rule(name), confirmed=True)
    with raw_client(ruled.url, "postgres") as client:
        client.execute(f"GRANT EXECUTE ON FUNCTION cm_delta_violations(text, jsonb, bytea) TO {ruled.role}")
    stated = [None, *(TableCounts(num_rows=rows, num_files=files, size_bytes=1) for rows, files in _STATED)]
    table_id = ruled.orders.table_id
    violated: set[str] = set()

    def compare(connection: sa.Connection) -> None:
        for name in COMMITS:
            for counts in stated:
                package, found = both(connection, table_id, proposed(name, counts=counts))
                assert found == package, (connection.engine.url.username, name, counts)
                violated.update(package)

    for user in (ruled.role, "postgres"):
        with SqlCatalog(url_as(ruled.url, user)) as catalog:
            catalog._database.read(compare)
    assert violated == set(RULES)


_STATED = ((94, 9), (90, 9), (None, 9), (100, 10))
"""Rows and files after the commit, as a writer states them; the table has 100 rows in 10 files."""

VIOLATIONS = {
    "append_only": "removes a file",
    "rows": "removes 30 rows",
    "share of rows": "removes 30 rows",
    "files": "hides removals beside an add",
    "share of files": "removes three files",
    "columns": "renames a column",
    "struct": "drops a nested field",
    "properties": "sets a protected property",
    "constraints": "drops a constraint",
    "tags": "has an empty tag",
    "note": "has no note",
    "ticket": "has another note",
    "owners": "adds a column",
    "stewards": "adds a column",
}
"""A commit that violates each rule."""


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_raw_client_does_not_break_a_rule(ruled: Ruled, name: str) -> None:
    """It sends the digest of the rules, as if it had checked them; a commit that satisfies the rule is ratified."""
    table_id, one = ruled.orders.table_id, proposed(VIOLATIONS[name])
    stored = ruled.owner.set_commit_rule(rule(name), confirmed=True)
    named = str(RuleViolation(rule=stored, what="")).removeprefix("it ")  # As the package names the rule.
    audited = len(ruled.owner.audit())
    with raw_client(ruled.url, ruled.role) as client:
        answer = sent(client, table_id, one, one.content)
        assert (answer["answer"], answer["rule"]) == ("refused", stored.label) and named in answer["reason"]
        assert ruled.owner.load_table(ORDERS).ratified.latest_version == 1
        refusals = [(entry.principal, entry.outcome) for entry in ruled.owner.audit()[audited:]]
        assert refusals == [(ruled.role, AuditOutcome.REFUSED)]
        good = proposed("adds")
        assert sent(client, table_id, good, good.content)["answer"] == "ratified"


def test_content_that_is_not_sent_is_committed_by_owners_only(ruled: Ruled) -> None:
    """The database cannot examine it; an owner, who may remove the rules, is trusted to have done so."""
    ruled.owner.set_commit_rule(rule("append_only"))
    table_id, one = ruled.orders.table_id, replace(proposed("removes a file"), mode=CommitMode.STAGED)
    with raw_client(ruled.url, ruled.role) as client:
        refused = sent(client, table_id, one, None)
        assert refused["answer"] == "refused" and "only content that is sent along" in refused["reason"]
    with ruled.client() as catalog, pytest.raises(CommitRefusedError, match="split the write"):
        catalog.commit(table_id, replace(one, content=None, content_to_check=None))
    ruled.owner.grant([Privilege.OWN], str(ORDERS), ruled.role)
    with raw_client(ruled.url, ruled.role) as client:
        first = client.execute(
            "SELECT cm_delta_commit(ARRAY[%s], ARRAY[%s::jsonb], ARRAY[NULL::bytea])",
            (table_id, json.dumps(protected_catalog.described(table_id, one))),
        ).fetchone()[0][0]
        assert first["answer"] == "check_first"
        assert sent(client, table_id, one, None)["answer"] == "ratified"


@pytest.mark.parametrize("way", ["beside a protocol", "without the content", "without the content and unstated"])
def test_a_forged_definition_does_not_weaken_the_next_check(ruled: Ruled, way: str) -> None:
    """The rules compare with the metadata that the database has read; a role cannot replace it by other metadata."""
    table_id, forged = ruled.orders.table_id, json.dumps(action(struct(field("other"))))
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}}
    first = commit_of(2, protocol if way == "beside a protocol" else ADD, mode=CommitMode.STAGED)
    call = "SELECT cm_delta_commit(ARRAY[%s], ARRAY[%s::jsonb], ARRAY[%s::bytea])"
    described = dict(protected_catalog.described(table_id, first))
    if "unstated" not in way:
        described["metadata"] = forged
    with raw_client(ruled.url, ruled.role) as client:
        content = first.content if way == "beside a protocol" else None
        answer = client.execute(call, (table_id, json.dumps(described), content)).fetchone()[0][0]
        assert answer["answer"] == "ratified"
        ruled.owner.set_commit_rule(rule("columns"))
        second = commit_of(3, changed("id", None))
        assert sent(client, table_id, second, second.content)["answer"] == "refused"
        assert ruled.owner.load_table(ORDERS).ratified.latest_version == 2
    with raw_client(ruled.url, "postgres") as client:
        stored = client.execute("SELECT metadata FROM cm_delta_definitions").fetchall()
    assert forged not in str(stored) and len(stored) == (way == "beside a protocol")


def test_a_commit_with_two_metadata_actions_is_rejected(ruled: Ruled) -> None:
    """Also without a rule: the definition that later rules compare with would be that of one of them, chosen by the writer."""
    one = commit_of(2, BEFORE, changed("id", None))
    with raw_client(ruled.url, ruled.role) as client:
        answer = sent(client, ruled.orders.table_id, one, one.content)
    assert answer["answer"] == "rejected" and "more than one metaData" in answer["reason"]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_from_before_a_rule_or_revocation_is_refused(ruled: Ruled, level: str) -> None:
    """Its statements read the rules and grants of the moment when it began."""
    one = proposed("removes a file")
    with raw_client(ruled.url, ruled.role) as client, raw_client(ruled.url, ruled.role) as other:
        for transaction in (client, other):
            transaction.execute(f"BEGIN ISOLATION LEVEL {level}")
            transaction.execute("SELECT count(*) FROM cm_delta_tables")
        ruled.owner.set_commit_rule(rule("append_only"))
        with pytest.raises(psycopg.errors.InvalidTransactionState, match="READ COMMITTED"):
            sent(client, ruled.orders.table_id, one, one.content)
        ruled.owner.remove_commit_rule(str(ORDERS), "append_only")
        ruled.owner.revoke([Privilege.MODIFY], str(ORDERS), ruled.role)
        for call in (
            "cm_delta_publish(%s, 1)",
            "cm_delta_pin_version(%s, 1, 'run', false)",
            "cm_delta_acquire_lease(%s, 'DATA_CLEANUP', 'run', 1000)",
            "cm_delta_close_approval(%s, 'rejected', 'because')",
        ):
            other.execute("ROLLBACK")
            other.execute(f"BEGIN ISOLATION LEVEL {level}")
            with pytest.raises(psycopg.errors.InvalidTransactionState):
                other.execute(f"SELECT {call}", (ruled.orders.table_id,))
    assert ruled.owner.load_table(ORDERS).ratified.latest_version == 1


def test_a_setting_of_the_caller_does_not_change_literals(ruled: Ruled) -> None:
    one = proposed("adds")
    forged = replace(one, file_name=one.file_name.replace(".", "/"))
    with raw_client(ruled.url, ruled.role) as client:
        client.execute("SET standard_conforming_strings = off")
        answer = sent(client, ruled.orders.table_id, forged, forged.content)
    assert answer["answer"] == "rejected" and "file name" in answer["reason"]


def test_the_rules_of_several_tables_are_all_examined(ruled: Ruled) -> None:
    other = create(ruled.owner, TableIdentifier("main", "sales", "returns"))
    ruled.owner.grant([Privilege.MODIFY], "main.sales", ruled.role)
    ruled.owner.set_commit_rule(rule("append_only"))
    orders = ruled.orders.table_id
    removal = proposed("removes a file")
    with ruled.client() as catalog:
        with pytest.raises(CommitRefusedError, match="append_only"):
            catalog.commit_together({orders: removal, other.table_id: commit_of(1, ADD)})
        assert catalog.load_table_by_id(other.table_id).ratified.latest_version == 0
        assert isinstance(catalog.commit(other.table_id, commit_of(1, ADD)), Ratified)


def test_a_request_for_approval_says_what_the_database_found(ruled: Ruled) -> None:
    """A requester neither hides what the commit does from the owner, nor names rules that it does not violate."""
    ruled.owner.set_commit_rule(rule("files", OnViolation.APPROVAL))
    ruled.owner.set_commit_rule(rule("share of rows", OnViolation.APPROVAL))
    one, table_id = proposed("removes two files"), ruled.orders.table_id
    demands = [rule(name, OnViolation.APPROVAL).demand for name in ("files", "share of rows")]
    request = {"what": ["removes nothing"], "rules": demands, "contacts": [], "fingerprint": "f" * 64, "intent": "{}"}
    call = "SELECT cm_delta_request_approval(%s, %s::jsonb, %s, %s::jsonb)"
    with raw_client(ruled.url, ruled.role) as client:

        def kept(of: CommitProposal, wanted: Mapping[str, Any]) -> Any:
            described = json.dumps(protected_catalog.described(table_id, of))
            return client.execute(call, (table_id, described, of.content, json.dumps(wanted))).fetchone()[0]["answer"]

        request["duration_ms"] = 1000
        assert kept(proposed("adds"), request) == "rejected", "it violates no rule"
        assert kept(one, request | {"rules": ["x"]}) == "rejected"
        assert kept(one, request) == "kept"
        ruled.owner.set_commit_rule(rule("append_only"))
        assert kept(proposed("removes two files"), request) == "rejected", "no approval lets it pass append_only"
    (waiting,) = ruled.owner.approvals()
    assert waiting.what == (
        "it removes 2 files, more than 1, which the rule 'files' of main.sales.orders "
        "(max_removed_files, set by postgres) does not permit",
    )
    with raw_client(ruled.url, "postgres") as client:
        stored = client.execute("SELECT rules FROM cm_delta_approvals").fetchone()[0]
    assert json.loads(stored) == demands[:1]


@pytest.mark.parametrize(
    "pattern", [r"\bT-1\b", r"(?i)t-1", r"(?P<a>x)", "a{,3}", r"(a)\1", "[a[:x]", "a*+", r"\Aa", "x(?=y)"]
)
def test_a_pattern_that_the_database_reads_otherwise_is_refused(ruled: Ruled, pattern: str) -> None:
    unknown = replace(rule("ticket"), arguments={"pattern": pattern})
    with pytest.raises(InvalidArgumentError, match=r"does not evaluate as Python does|is not one"):
        ruled.owner.set_commit_rule(unknown)
    assert ruled.owner.commit_rules() == ()


def test_a_role_with_append_writes_a_table_with_row_tracking_and_rules(postgres_url: str, tmp_path: Path) -> None:
    """Concurrent appends are rebased, and each gets its own row ids."""
    role, stores = create_role(postgres_url, "writer"), Stores()
    catalog = SqlCatalog(postgres_url, warehouse=f"file://{tmp_path}/w")
    with closing(DeltaClient(catalog, stores=stores)) as owner:
        create_table(
            owner, identifier=str(ORDERS), schema=SCHEMA, properties={"delta.feature.rowTracking": "supported"}
        )
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], str(ORDERS), role)
        owner.commit_rules.set_commit_rule(rule("append_only"))
    with closing(DeltaClient(SqlCatalog(url_as(postgres_url, role)), stores=stores)) as client:
        table = client.table(ORDERS)
        transactions = [table.start_transaction(table.snapshot(), operation="WRITE") for _ in range(3)]
        for number, transaction in enumerate(transactions):
            table.store.write(f"{table.location}/{number}.parquet", b"x" * 100)
            transaction.add_files([add_file(f"{number}.parquet", stats='{"numRecords":10}')])
            transaction.commit()
        files = table.snapshot().files.select(["path", "baseRowId"]).to_pylist()
    assert sorted(tuple(file.values()) for file in files) == [("0.parquet", 0), ("1.parquet", 10), ("2.parquet", 20)]
