"""On PostgreSQL grants hold against clients that do not use this package: they connect with a driver and send SQL."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
    Ratified,
    RatifiedTogether,
    RefusedTogether,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.schema import MAINTENANCE_LEASES
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.errors import (
    CommitRefusedError,
    CommitRejectedError,
    InvalidArgumentError,
    OperationRefusedError,
    PermissionDeniedError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions.commit_json import encode_action
from tests.contracts.catalog_bench import PROTOCOL, create, metadata, proposal
from tests.support.commit_builder import ADD, REARRANGE, REMOVE, commit_of, of_bytes
from tests.support.database_roles import create_role, raw_client, url_as

pytestmark = pytest.mark.postgres

ORDERS = TableIdentifier("main", "sales", "orders")
HIDDEN = TableIdentifier("main", "secret", "salaries")
METADATA = {"metaData": {"id": "5d1a", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}"}}


@dataclass(frozen=True)
class Protected:
    """A catalog whose grants PostgreSQL enforces, with one role that may append to ``orders``."""

    url: str
    writer: str
    owner: SqlCatalog
    orders: TableEntry
    hidden: TableEntry

    def as_writer(self) -> SqlCatalog:
        return SqlCatalog(url_as(self.url, self.writer), warehouse="memory://w")

    def state(self) -> list[Any]:
        """Every row that a client must not change, without the audit and its entries of the feed."""
        names = (
            *("tables", "commits", "definitions", "grants", "roles", "role_members", "active_checks", "feed_counter"),
            *(
                "feed WHERE kind <> 'PROPOSAL_REFUSED'",
                "feed_waiters",
                MAINTENANCE_LEASES.name.removeprefix("cm_delta_"),
                "approvals",
                "commit_rules",
            ),
            *("webhooks", "webhook_failures", "version_pins", "maintenance_rules", "registered_paths"),
        )
        engine = sa.create_engine(self.url, poolclass=sa.pool.NullPool)
        with engine.connect() as connection:
            rows = [
                sorted(map(str, connection.execute(sa.text(f"SELECT * FROM cm_delta_{name}")).all())) for name in names
            ]
            rights = sa.text(
                "SELECT relname, relacl::text, relrowsecurity FROM pg_class WHERE relname LIKE 'cm_delta%' UNION "
                "SELECT proname, proacl::text, prosecdef FROM pg_proc WHERE proname LIKE 'cm_delta%' UNION "
                "SELECT polname || polrelid::text, pg_get_expr(polqual, polrelid), false FROM pg_policy"
            )
            return [*rows, sorted(map(str, connection.execute(rights).all()))]


@pytest.fixture
def protected(postgres_url: str) -> Iterator[Protected]:
    writer = create_role(postgres_url, "writer")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        orders, hidden = create(owner, ORDERS), create(owner, HIDDEN)
        owner.commit(orders.table_id, commit_of(1, ADD))
        owner.commit(hidden.table_id, commit_of(1, ADD))
        owner.enable_grants()
        owner.grant([Privilege.APPEND], str(ORDERS), writer)
        yield Protected(url=postgres_url, writer=writer, owner=owner, orders=orders, hidden=hidden)


def described(one: CommitProposal, **changes: Any) -> str:
    found: dict[str, Any] = {
        "version": one.version,
        "mode": one.mode.value,
        "file_name": one.file_name,
        "file_size": one.file_size,
        "file_modification_time": one.file_modification_time,
        "txn_id": one.summary.txn_id,
        "in_commit_timestamp": one.summary.in_commit_timestamp,
        "operation": "WRITE",
        "data_change": True,
        "sha256": one.sha256,
    }
    return json.dumps(found | changes)


def send(client: Any, table_id: str, one: CommitProposal, content: bytes | None = None, **changes: Any) -> str:
    """Propose by the function, as a client without this package would. Returns the answer."""
    call = "SELECT cm_delta_commit(ARRAY[%s], ARRAY[%s::jsonb], ARRAY[%s::bytea])"
    values = (table_id, described(one, **changes), one.content if content is None else content)
    return str(client.execute(call, values).fetchone()[0][0]["answer"])


STATEMENTS = {
    "forge a commit": "INSERT INTO cm_delta_commits SELECT table_id, 2, mode, file_name, file_size, "
    "file_modification_time, 'x', in_commit_timestamp + 1, operation, true, 2, ratified_ms, metrics, tags FROM cm_delta_commits",
    "advance the latest version": "UPDATE cm_delta_tables SET latest_version = 9",
    "change the published version": "UPDATE cm_delta_tables SET published_version = latest_version",
    "use the column that can be locked": "UPDATE cm_delta_tables SET reserved_ms = 0 WHERE table_id = '{orders}'",
    "change a commit": "UPDATE cm_delta_commits SET content = NULL WHERE table_id = '{orders}'",
    "delete commits": "DELETE FROM cm_delta_commits WHERE table_id = '{orders}'",
    "delete tables": "DELETE FROM cm_delta_tables",
    "insert a table": "INSERT INTO cm_delta_tables SELECT * FROM cm_delta_tables",
    "become the owner": "UPDATE cm_delta_tables SET owner = session_user",
    "change the definition": "UPDATE cm_delta_definitions SET metadata = 'x'",
    "grant own to itself": "INSERT INTO cm_delta_grants VALUES (session_user, '*', 'own', NULL, 0)",
    "widen its grant": "UPDATE cm_delta_grants SET privilege = 'own' WHERE grantee = session_user",
    "delete grants": "DELETE FROM cm_delta_grants",
    "join a role": "INSERT INTO cm_delta_role_members VALUES (session_user, 'owners')",
    "create a role": "INSERT INTO cm_delta_roles VALUES ('owners')",
    "deactivate the checks": "DELETE FROM cm_delta_active_checks",
    "forge the audit": "INSERT INTO cm_delta_audit VALUES (9999, 0, 'ana', 'grant', '*', NULL, NULL, NULL, '', 'done')",
    "erase the audit": "DELETE FROM cm_delta_audit",
    "rewrite the audit": "UPDATE cm_delta_audit SET principal = 'ana'",
    "move the feed": "UPDATE cm_delta_feed_counter SET position = 0",
    "change the id of the catalog": "UPDATE cm_delta_catalog SET catalog_id = 'x'",
    "allow maintenance": "INSERT INTO cm_delta_maintenance_rules VALUES ('main', 'DATA_CLEANUP', true, '')",
    "change the commit policy": "INSERT INTO cm_delta_commit_policies VALUES ('main', 'put_if_absent')",
    "register a path": "INSERT INTO cm_delta_registered_paths VALUES ('main', 'sales', 'x', 's3://x')",
    "change the revision": "UPDATE cm_delta_alembic_version SET version_num = '0001'",
    "pin a hidden table": "INSERT INTO cm_delta_version_pins VALUES ('run', '{hidden}', 0, 0, session_user)",
    "delete the pin of another run": "DELETE FROM cm_delta_version_pins",
    "move the pin of another run": "UPDATE cm_delta_version_pins SET version = 0",
    "pin for ever": "INSERT INTO cm_delta_version_pins VALUES ('mine', '{orders}', 0, 9223372036854775807, session_user)",
    "lock the pins": "BEGIN; LOCK TABLE cm_delta_version_pins IN ACCESS EXCLUSIVE MODE",
    "hold the lease of a hidden table": "INSERT INTO {leases} VALUES ('{hidden}', 'DATA_CLEANUP', 'x', 9)",
    "forge a lease": "INSERT INTO {leases} VALUES ('{hidden}', 'DATA_CLEANUP', 'x', 9, 9, 0, session_user)",
    "forge the token of a lease": "UPDATE {leases} SET token = 99",
    "forge the token of a table": "UPDATE cm_delta_tables SET lease_token = 99 WHERE table_id = '{orders}'",
    "extend the lease of another": "UPDATE {leases} SET expires_ms = 9999999999999",
    "take the lease of another": "UPDATE {leases} SET principal = session_user",
    "delete the lease of another": "DELETE FROM {leases}",
    "delete entries of the feed": "DELETE FROM cm_delta_feed",
    "forge an entry of the feed": "INSERT INTO cm_delta_feed (kind, at_ms, table_id, version) VALUES ('COMMIT', 0, '{orders}', 9)",
    "change an entry of the feed": "UPDATE cm_delta_feed SET version = 9 WHERE table_id = '{orders}'",
    "move positions": "UPDATE cm_delta_feed SET position = position + 100",
    "forget entries": "UPDATE cm_delta_feed_counter SET deleted_up_to = 99",
    "use the sequence of the feed": "SELECT nextval('cm_delta_feed_entry_id_seq')",
    "append an entry by the function": "SELECT cm_delta_append_entry('COMMIT', '{orders}', 9, NULL, NULL, NULL)",
    "write the audit by the function": "SELECT cm_delta_record('grant', '*', NULL, NULL, NULL, '', 'done')",
    "insert a waiter for ever": "INSERT INTO cm_delta_feed_waiters VALUES ('x', 9223372036854775807)",
    "delete the waiters": "DELETE FROM cm_delta_feed_waiters",
    "read the waiters": "SELECT * FROM cm_delta_feed_waiters",
    "insert a webhook": "INSERT INTO cm_delta_webhooks VALUES ('w', 'http://x', 'env:S', '[]', '[]', 0, 0)",
    "redirect a webhook": "UPDATE cm_delta_webhooks SET url = 'http://x'",
    "delete failures": "DELETE FROM cm_delta_webhook_failures",
    "forge a request": "INSERT INTO cm_delta_approvals SELECT * FROM cm_delta_approvals",
    "approve a commit": "UPDATE cm_delta_approvals SET state = 'committed'",
    "delete a request": "DELETE FROM cm_delta_approvals",
    "change a rule": "UPDATE cm_delta_commit_rules SET on_violation = 'approval'",
    "delete rules": "DELETE FROM cm_delta_commit_rules",
    "lock a hidden table": "SELECT cm_delta_locked_for_lease('{hidden}')",
    "truncate": "TRUNCATE cm_delta_commits",
    "truncate in a cascade": "TRUNCATE cm_delta_tables CASCADE",
    "drop a table of the catalog": "DROP TABLE cm_delta_commits CASCADE",
    "add a column": "ALTER TABLE cm_delta_tables ADD COLUMN x text",
    "disable row-level security": "ALTER TABLE cm_delta_tables DISABLE ROW LEVEL SECURITY",
    "drop a policy": "DROP POLICY cm_delta_read ON cm_delta_tables",
    "create a policy": "CREATE POLICY mine ON cm_delta_tables USING (true)",
    "disable triggers": "ALTER TABLE cm_delta_commits DISABLE TRIGGER ALL",
    "replay without triggers": "SET session_replication_role = replica",
    "create a trigger": "CREATE TRIGGER t BEFORE INSERT ON cm_delta_commits EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "create a rule": "CREATE RULE r AS ON INSERT TO cm_delta_commits DO INSTEAD NOTHING",
    "copy in": "COPY cm_delta_grants FROM PROGRAM 'echo'",
    "copy out to a file": "COPY cm_delta_commits TO '/tmp/x'",
    "set role": "SET ROLE {superuser}",
    "set session authorization": "SET SESSION AUTHORIZATION {superuser}",
    "grant the role of the owner": "GRANT {superuser} TO {writer}",
    "alter its role": "ALTER ROLE {writer} SUPERUSER",
    "grant rights": "GRANT ALL ON cm_delta_grants TO {writer}",
    "replace a function": "CREATE OR REPLACE FUNCTION cm_delta_holds(of_table text, wanted text[]) RETURNS boolean LANGUAGE sql "
    "AS 'SELECT true'",
    "shadow a function": "CREATE FUNCTION public.cm_delta_holds(varchar, text[]) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "drop a function": "DROP FUNCTION cm_delta_examine(text, jsonb, bytea, boolean)",
    "call the function after the checks": "SELECT cm_delta_accept('{orders}', '{{}}', NULL)",
    "call the check of a proposal": "SELECT cm_delta_examine('{orders}', '{{}}', NULL, false)",
    "have a refusal written for others": "SELECT cm_delta_refused('x', '{orders}', 'x', ARRAY['own'])",
    "change the owner of a table": "ALTER TABLE cm_delta_tables OWNER TO {writer}",
    "reassign": "REASSIGN OWNED BY {superuser} TO {writer}",
    "read the passwords": "SELECT * FROM pg_authid",
    "lock the tables": "LOCK TABLE cm_delta_tables IN ACCESS EXCLUSIVE MODE",
    "close a request after the checks": "SELECT cm_delta_end_request(NULL, 'committed', 9, '')",
    "lock a request": "SELECT cm_delta_pending_request('x')",
    "read the digest of rules": "SELECT cm_delta_rules_digest('{hidden}')",
    "merge into grants": "MERGE INTO cm_delta_grants g USING (SELECT 1) s ON false WHEN NOT MATCHED THEN "
    "INSERT (grantee, scope, privilege, granted_ms) VALUES (session_user, '*', 'own', 0)",
    "copy grants in": "COPY cm_delta_grants FROM STDIN",
    "copy hidden rows to a program": "COPY (SELECT * FROM cm_delta_tables) TO PROGRAM 'cat'",
    "write by a view": "CREATE TEMP VIEW v AS SELECT * FROM cm_delta_commits; DELETE FROM v",
    "write by a function of its own": "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql SECURITY DEFINER AS "
    "'DELETE FROM public.cm_delta_commits; SELECT 1'; SELECT pg_temp.f()",
    "write in a block": "DO 'BEGIN DELETE FROM public.cm_delta_commits; END'",
    "read a file of the server": "SELECT pg_read_file('/etc/hostname')",
    "import a large object": "SELECT lo_import('/etc/hostname')",
    "export a large object": "SELECT lo_export(lo_from_bytea(0, 'x'), '/tmp/x')",
    "create a function in C": "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE c AS 'x'",
    "create a schema": "CREATE SCHEMA mine",
    "create an operator": "CREATE OPERATOR public.->> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = jsonb_contains)",
    "create a cast": "CREATE CAST (text AS bigint) WITH INOUT AS IMPLICIT",
    "refer to a table of the catalog": "CREATE TABLE public.mine (t text REFERENCES cm_delta_tables)",
    "inherit from a table of the catalog": "CREATE TEMP TABLE mine () INHERITS (cm_delta_commits)",
    "create an event trigger": "CREATE EVENT TRIGGER mine ON ddl_command_start EXECUTE FUNCTION "
    "suppress_redundant_updates_trigger()",
    "publish the commits": "CREATE PUBLICATION mine FOR TABLE cm_delta_commits",
    "read the log of the server": "SELECT pg_create_logical_replication_slot('mine', 'test_decoding')",
    "read without row-level security": "SET row_security = off; SELECT * FROM cm_delta_tables",
    "set the role as a parameter": "SELECT set_config('role', '{superuser}', false)",
    "log in as another by a parameter": "SELECT set_config('session_authorization', '{superuser}', false)",
    "change the search path of another": "ALTER ROLE {superuser} SET search_path = pg_temp",
    "end the connections of others": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{superuser}'",
    "read the statistics": "SELECT * FROM pg_statistic",
    "lock the grants": "SELECT * FROM cm_delta_grants FOR UPDATE",
    "change a function of the catalog": "ALTER FUNCTION cm_delta_commit(text[], jsonb[], bytea[]) SECURITY INVOKER",
    "grant a function of the catalog": "GRANT EXECUTE ON FUNCTION cm_delta_accept(text, jsonb, bytea) TO {writer}",
    "change the system catalogs": "UPDATE pg_proc SET prosecdef = false WHERE proname = 'cm_delta_commit'",
    "set the sequence of the feed": "SELECT setval('cm_delta_feed_entry_id_seq', 1)",
    "use the sequence of the audit": "SELECT nextval('cm_delta_audit_entry_id_seq')",
}
"""What a client with the privilege append on one table sends; PostgreSQL raises an error or changes no row."""


_WITHOUT_ERROR = ("grant rights",)
"""PostgreSQL warns, and grants nothing."""


def test_no_statement_of_a_raw_client_changes_anything(protected: Protected) -> None:
    """At least 40 attempts of a role with the privilege append on one table."""
    assert len(STATEMENTS) >= 40
    names = {"orders": protected.orders.table_id, "hidden": protected.hidden.table_id, "writer": protected.writer}
    superuser = protected.owner.whoami().principal
    protected.owner.acquire_maintenance_lease(
        protected.orders.table_id, MaintenanceKind.DATA_CLEANUP, owner="run", duration_ms=10**9
    )
    protected.owner.pin_version(protected.orders.table_id, 1, owner="run")
    before, audited = protected.state(), protected.owner.audit()
    for attempt, statement in STATEMENTS.items():
        refusal = nullcontext() if attempt in _WITHOUT_ERROR else pytest.raises(psycopg.Error)
        with raw_client(protected.url, protected.writer) as client, refusal:
            client.execute(statement.format(superuser=superuser, leases=MAINTENANCE_LEASES.name, **names))
        assert protected.state() == before, attempt
        assert protected.owner.audit() == audited, attempt


def row_ids(configuration: str, *, removed: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file of five rows with the ids 10 to 14, and the domain with the highest id."""
    added = {**ADD["add"], "path": "b", "baseRowId": 10, "stats": '{"numRecords":5}'}
    domain = {"domain": "delta.rowTracking", "configuration": configuration, "removed": removed}
    return {"add": added}, {"domainMetadata": domain}


Attempt = Callable[[Any, Protected], str]
ATTEMPTS: Mapping[str, tuple[str, Attempt]] = {
    "removes rows": ("refused", lambda client, it: send(client, it.orders.table_id, commit_of(2, REMOVE))),
    "removes rows beside added ones": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD, REMOVE)),
    ),
    "hides a removal in the line of an add": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {**ADD, **REMOVE})),
    ),
    "changes the schema": ("refused", lambda client, it: send(client, it.orders.table_id, commit_of(2, METADATA))),
    "rearranges files": ("refused", lambda client, it: send(client, it.orders.table_id, commit_of(2, REARRANGE))),
    "adds a deletion vector": (
        "refused",
        lambda client, it: send(
            client, it.orders.table_id, commit_of(2, {"add": {**ADD["add"], "deletionVector": {"cardinality": 1}}})
        ),
    ),
    "sets a metadata domain": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"domainMetadata": {"domain": "x"}})),
    ),
    "records false row changes": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"cdc": {"path": "c"}})),
    ),
    "contains an unknown action": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"erase": {"path": "a"}})),
    ),
    "sends no content": (
        "refused",
        lambda client, it: str(
            client.execute(
                "SELECT cm_delta_commit(ARRAY[%s], ARRAY[%s::jsonb], ARRAY[NULL::bytea])",
                (it.orders.table_id, described(commit_of(2, ADD, mode=CommitMode.STAGED))),
            ).fetchone()[0][0]["answer"]
        ),
    ),
    "sends other content than it describes": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, REMOVE), commit_of(2, ADD).content),
    ),
    "gives another digest": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD), sha256="0" * 64),
    ),
    "skips a version": ("rejected", lambda client, it: send(client, it.orders.table_id, commit_of(3, ADD))),
    "replaces a version": ("taken", lambda client, it: send(client, it.orders.table_id, commit_of(1, ADD))),
    "goes back in time": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD), in_commit_timestamp=1),
    ),
    "reports a later publication": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD), reported=9),
    ),
    "names a file elsewhere": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD), file_name="../../x.json"),
    ),
    "is for a table that it may not read": (
        "unknown_table",
        lambda client, it: send(client, it.hidden.table_id, commit_of(2, ADD)),
    ),
    "is not a commit": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, of_bytes(commit_of(2, ADD), b"\xff\x00")),
    ),
    "has metrics that no reader understands": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD), metrics="{"),
    ),
    "has tags that are no texts": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD), tags='{"a": {"b": 1}}'),
    ),
    "adds a file without its fields": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"add": {"path": "b", "dataChange": True}})),
    ),
    "adds a file with a size that is no number": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"add": {**ADD["add"], "size": "1"}})),
    ),
    "adds a file with tags that are no texts": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"add": {**ADD["add"], "tags": {"a": 1}}})),
    ),
    "adds a file with a row id that is no number": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"add": {**ADD["add"], "baseRowId": "1"}})),
    ),
    "records a transaction at a time that is no number": (
        "refused",
        lambda client, it: send(
            client, it.orders.table_id, commit_of(2, {"txn": {"appId": "a", "version": 1, "lastUpdated": "x"}})
        ),
    ),
    "records a transaction without a version": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, {"txn": {"appId": "a"}})),
    ),
    "breaks a line at a carriage return": (
        "rejected",
        lambda client, it: send(
            client,
            it.orders.table_id,
            of_bytes(commit_of(2, ADD), (commit_of(2, ADD).content or b"").replace(b', "size"', b',\r"size"')),
        ),
    ),
    "removes the domain of row tracking": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, *row_ids("{}", removed=True))),
    ),
    "writes no number of row ids": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, *row_ids("x"))),
    ),
    "takes back row ids": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, *row_ids('{"rowIdHighWaterMark":-1}'))),
    ),
    "writes a fraction as row id": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, *row_ids('{"rowIdHighWaterMark":14.0}'))),
    ),
    "uses up the row ids": (
        "refused",
        lambda client, it: send(
            client, it.orders.table_id, commit_of(2, *row_ids(f'{{"rowIdHighWaterMark":{2**63 - 1}}}'))
        ),
    ),
    "pretends to be approved": (
        "refused",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, REMOVE), approval_id="x"),
    ),
    "pretends to be put-if-absent": (
        "rejected",
        lambda client, it: send(client, it.orders.table_id, commit_of(2, ADD), mode="put_if_absent"),
    ),
}


def test_no_forged_proposal_of_a_raw_client_is_ratified(protected: Protected) -> None:
    before = protected.state()
    for name, (wanted, attempt) in ATTEMPTS.items():
        audited = len(protected.owner.audit())
        with raw_client(protected.url, protected.writer) as client:
            assert attempt(client, protected) == wanted, name
        assert protected.state() == before, name
        refusals = [(one.principal, one.outcome) for one in protected.owner.audit()[audited:]]
        assert refusals == ([(protected.writer, AuditOutcome.REFUSED)] if wanted == "refused" else []), name


def test_a_raw_client_sees_only_the_tables_that_it_may_read(protected: Protected) -> None:
    with raw_client(protected.url, protected.writer) as client:
        for name in ("tables", "commits", "definitions"):
            query = f"SELECT DISTINCT table_id FROM cm_delta_{name}"
            assert set(client.execute(query).fetchall()) <= {(protected.orders.table_id,)}
        guessed = "SELECT 1 / (latest_version - 1) FROM cm_delta_tables WHERE table_id = %s"
        assert client.execute(guessed, (protected.hidden.table_id,)).fetchall() == []
        assert client.execute("SELECT principal FROM cm_delta_audit").fetchall() == []
        copied = client.cursor().copy("COPY (SELECT table_id FROM cm_delta_tables) TO STDOUT")
        with copied as rows:
            assert [bytes(row).decode().strip() for row in rows] == [protected.orders.table_id]


def test_objects_of_a_caller_do_not_take_the_place_of_the_catalogs(protected: Protected) -> None:
    before = protected.state()
    with raw_client(protected.url, protected.writer) as client:
        client.execute("CREATE TEMP TABLE cm_delta_grants (grantee text, scope text, privilege text)")
        client.execute("INSERT INTO pg_temp.cm_delta_grants VALUES (session_user, '*', 'own')")
        client.execute("CREATE TEMP TABLE cm_delta_tables AS SELECT * FROM public.cm_delta_tables")
        client.execute("SET search_path = pg_temp, public")
        call = "SELECT public.cm_delta_commit(ARRAY[%s], ARRAY[%s::jsonb], ARRAY[%s::bytea])"
        forged = commit_of(2, REMOVE)
        answer = client.execute(call, (protected.orders.table_id, described(forged), forged.content)).fetchone()
        assert answer[0][0]["answer"] == "refused"
        assert client.execute("SELECT public.cm_delta_holds_all(ARRAY['own'])").fetchone() == (False,)
    assert protected.state() == before


def test_a_raw_client_commits_what_it_is_granted(protected: Protected) -> None:
    with raw_client(protected.url, protected.writer) as client:
        assert send(client, protected.orders.table_id, commit_of(2, ADD)) == "ratified"
        tracked = commit_of(3, *row_ids('{"rowIdHighWaterMark":14}'))
        assert send(client, protected.orders.table_id, tracked) == "ratified"
    assert protected.owner.load_table(ORDERS).ratified.latest_version == 3
    assert [entry.principal for entry in protected.owner.feed(after=0, limit=9)][-1] == protected.writer


def test_a_false_publication_does_not_delete_the_only_copy(protected: Protected) -> None:
    with raw_client(protected.url, protected.writer) as client:
        assert client.execute("SELECT cm_delta_publish(%s, 1)", (protected.orders.table_id,)).fetchone() == ("done",)
        assert client.execute("SELECT cm_delta_publish(%s, 9)", (protected.orders.table_id,)).fetchone() == (
            "not_ratified",
        )
    kept = protected.owner.get_ratified_commits(protected.orders.table_id, content_from_version=0).cached_commits
    assert [commit.version for commit in kept if commit.content] == [1]


def test_a_client_of_a_role_commits_through_the_function(protected: Protected) -> None:
    orders = protected.orders.table_id
    with protected.as_writer() as catalog:
        assert catalog.whoami().principal == protected.writer and catalog.whoami().grants_enabled
        assert isinstance(catalog.commit(orders, commit_of(2, ADD)), Ratified)
        same = commit_of(3, ADD, mode=CommitMode.STAGED)
        assert catalog.commit(orders, same) == Ratified(version=3, latest_version=3, published_version=0)
        assert catalog.commit(orders, same) == Ratified(version=3, latest_version=3, published_version=0, repeated=True)
        taken = catalog.commit(orders, commit_of(2, ADD))
        assert isinstance(taken, VersionTaken) and [one.version for one in taken.winners.commits] == [2, 3]
        with pytest.raises(
            CommitRefusedError, match=r"does not have the privilege modify on main\.sales\.orders"
        ) as error:
            catalog.commit(orders, commit_of(4, REMOVE))
        assert error.value.refusal is not None and error.value.refusal.ask == (protected.owner.whoami().principal,)
        with pytest.raises(CommitRejectedError, match="latest is 3"):
            catalog.commit(orders, commit_of(5, ADD))
        catalog.set_published_version(orders, 3)
        assert catalog.pin_version(orders, 3, owner="run") == 3
        with pytest.raises(TableNotFoundError):
            catalog.load_table(HIDDEN)
        with pytest.raises(TableNotFoundError):
            catalog.commit(protected.hidden.table_id, commit_of(2, ADD))
        for refused in (
            lambda: catalog.drop_table(ORDERS),
            lambda: catalog.grant([Privilege.OWN], "*", protected.writer),
            lambda: catalog.disable_grants(),
            lambda: catalog.create_staging_table(TableIdentifier("main", "sales", "new")),
            lambda: catalog.transfer_table(orders, protected.writer),
        ):
            with pytest.raises(PermissionDeniedError):
                refused()
        assert not catalog.maintenance_decision(ORDERS, MaintenanceKind.DATA_CLEANUP, table_id=orders).allowed
    assert protected.owner.load_table(ORDERS).ratified.published_version == 3


def test_commits_to_several_tables_are_all_refused_or_none(protected: Protected) -> None:
    protected.owner.grant([Privilege.READ], str(HIDDEN), protected.writer)
    orders, hidden = protected.orders.table_id, protected.hidden.table_id
    with protected.as_writer() as catalog:
        with pytest.raises(CommitRefusedError, match=r"append on main\.secret\.salaries"):
            catalog.commit_together({orders: commit_of(2, ADD), hidden: commit_of(2, ADD)})
        assert catalog.load_table(ORDERS).ratified.latest_version == 1
        protected.owner.grant([Privilege.APPEND], "main.secret", protected.writer)
        both = {orders: commit_of(2, ADD), hidden: commit_of(2, ADD)}
        done = catalog.commit_together(both)
        assert isinstance(done, RatifiedTogether) and set(done.commits) == {orders, hidden}
        again = catalog.commit_together(both)
        assert isinstance(again, RatifiedTogether) and all(one.repeated for one in again.commits.values())


def append_only(scope: TableIdentifier, on_violation: OnViolation = OnViolation.REFUSE) -> CommitRule:
    return CommitRule(scope=str(scope), name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=on_violation)


def test_commit_rules_hold_for_the_commits_of_a_role(protected: Protected) -> None:
    protected.owner.grant([Privilege.MODIFY], "main", protected.writer)
    protected.owner.set_commit_rule(append_only(ORDERS))
    orders, hidden = protected.orders.table_id, protected.hidden.table_id
    with protected.as_writer() as catalog:
        with pytest.raises(CommitRefusedError, match="append_only"):
            catalog.commit(orders, commit_of(2, REMOVE))
        with pytest.raises(CommitRefusedError, match="append_only"):
            catalog.commit_together({orders: commit_of(2, REMOVE), hidden: commit_of(2, ADD)})
        protected.owner.set_commit_rule(append_only(ORDERS, OnViolation.APPROVAL))
        with pytest.raises(CommitRefusedError, match="cannot wait for an approval"):
            catalog.commit_together({orders: commit_of(2, REMOVE), hidden: commit_of(2, ADD)})
        assert isinstance(catalog.commit(orders, commit_of(2, ADD)), Ratified)


def test_a_client_that_says_that_it_checked_the_rules_is_refused(protected: Protected) -> None:
    """The digest of the rules says which rules a client knows; it permits nothing."""
    protected.owner.grant([Privilege.MODIFY], str(ORDERS), protected.writer)
    protected.owner.set_commit_rule(append_only(ORDERS))
    one = commit_of(2, REMOVE)
    with raw_client(protected.url, protected.writer) as client:

        def answer(**checked: Any) -> Any:
            call = "SELECT cm_delta_commit(ARRAY[%s], ARRAY[%s::jsonb], ARRAY[%s::bytea])"
            values = (protected.orders.table_id, described(one, **checked), one.content)
            return client.execute(call, values).fetchone()[0][0]

        first = answer()
        assert first["answer"] == "check_first"
        refused = answer(checked_rules=first["rules"])
        assert (refused["answer"], refused["rule"]) == ("refused", "keep (append_only)")
        protected.owner.set_commit_rule(append_only(ORDERS, OnViolation.APPROVAL))
        second = answer(checked_rules=first["rules"])
        assert second["answer"] == "check_first" and second["rules"] != first["rules"]
        assert answer(checked_rules=second["rules"])["answer"] == "refused"
        assert protected.owner.load_table(ORDERS).ratified.latest_version == 1
        protected.owner.remove_commit_rule(str(ORDERS), "keep")
        assert answer(checked_rules=second["rules"])["answer"] == "ratified"


def test_a_pin_of_a_role_is_kept_and_never_moves_back(protected: Protected) -> None:
    orders = protected.orders.table_id
    with protected.as_writer() as catalog:
        assert catalog.pin_version(orders, 0, owner="run") == 0 == catalog.pin_version(orders, 1, owner="run")
        assert catalog.raise_pinned_version(orders, 1, owner="run") == 1
        assert catalog.raise_pinned_version(orders, 0, owner="run") == 1 == catalog.pinned_version(orders, owner="run")
        with pytest.raises(TableNotFoundError):
            catalog.pin_version(protected.hidden.table_id, 0, owner="run")
        with pytest.raises(InvalidArgumentError, match="at least 0"):
            catalog.pin_version(orders, -1, owner="run")
    protected.owner.pin_version(protected.hidden.table_id, 1, owner="run")
    with raw_client(protected.url, protected.writer) as client:
        for values in ((orders, 99, "run", True), (orders, None, "run", True), (orders, -1, "run", True)):
            assert client.execute("SELECT cm_delta_pin_version(%s, %s, %s, %s)", values).fetchone() == (1,)
        for values in ((orders, 99, "new", False), (orders, 1, "", False), (orders, 1, None, None)):
            assert client.execute("SELECT cm_delta_pin_version(%s, %s, %s, %s)", values).fetchone() == (None,)
        assert client.execute("SELECT table_id FROM cm_delta_version_pins").fetchall() == [(orders,)]


def test_a_role_does_not_choose_what_another_role_reads(protected: Protected) -> None:
    """It knows the id of the run, and pins before the other role, or moves its pin forward."""
    reader, orders = create_role(protected.url, "reader"), protected.orders.table_id
    protected.owner.grant([Privilege.READ], str(ORDERS), reader)
    call = "SELECT cm_delta_pin_version(%s, %s, 'run', %s)"
    with raw_client(protected.url, reader) as client, protected.as_writer() as writer:
        assert client.execute(call, (orders, 1, False)).fetchone() == (1,)
        assert writer.pinned_version(orders, owner="run") is None
        assert writer.pin_version(orders, 0, owner="run") == 0
        assert client.execute(call, (orders, 1, True)).fetchone() == (1,)
        assert writer.pinned_version(orders, owner="run") == 0
        for name in ("first", "second"):
            assert client.execute("SELECT cm_delta_pin_version(%s, 0, %s, false)", (orders, name)).fetchone() == (0,)
        assert writer.raise_pinned_version(orders, 1, owner="first") == 1
        assert client.execute("SELECT cm_delta_pin_version(%s, 0, 'first', false)", (orders,)).fetchone() == (1,)
        assert client.execute("SELECT cm_delta_pin_version(%s, 0, 'second', false)", (orders,)).fetchone() == (0,)


def test_no_rule_refuses_a_proposal_that_must_be_rebased(protected: Protected) -> None:
    protected.owner.grant([Privilege.MODIFY], "main", protected.writer)
    protected.owner.set_commit_rule(append_only(ORDERS))
    protected.owner.set_commit_rule(append_only(HIDDEN))
    orders, hidden = protected.orders.table_id, protected.hidden.table_id
    with protected.as_writer() as catalog:
        assert isinstance(catalog.commit(orders, commit_of(2, ADD)), Ratified)
        for late in (commit_of(2, ADD), commit_of(2, REMOVE)):
            outcome = catalog.commit_together({orders: late, hidden: commit_of(2, ADD)})
            assert isinstance(outcome, RefusedTogether) and set(outcome.refusals) == {orders}
            assert isinstance(outcome.refusals[orders], VersionTaken)
        assert isinstance(catalog.commit(hidden, commit_of(2, ADD)), Ratified)


def test_the_function_stores_what_the_transaction_stores(protected: Protected) -> None:
    protected.owner.grant([Privilege.ALTER], "main", protected.writer)
    altered = metadata("id", "name")
    line = encode_action(altered)
    one = replace(commit_of(2, json.loads(line)), metadata=altered, protocol=PROTOCOL)
    content = one.content.replace(json.dumps(json.loads(line)).encode(), line.encode()) if one.content else b""
    with protected.as_writer() as catalog:
        before = catalog.load_table(ORDERS)
        assert isinstance(catalog.commit(protected.orders.table_id, of_bytes(one, content)), Ratified)
        after = catalog.load_table(ORDERS)
    assert after.definition is not None and after.etag != before.etag
    assert (after.definition.metadata, after.definition.protocol, after.definition.version) == (altered, PROTOCOL, 2)
    engine = sa.create_engine(protected.url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        columns = sa.text("SELECT * FROM cm_delta_commits WHERE table_id = :of_table AND version = :version")
        found = [
            connection.execute(columns, {"of_table": protected.orders.table_id, "version": version}).mappings().one()
            for version in (1, 2)
        ]
    assert [name for name in found[0] if (found[0][name] is None) != (found[1][name] is None)] == []


def test_another_principal_than_the_role_is_refused(protected: Protected) -> None:
    stated = SqlCatalog(url_as(protected.url, protected.writer), principal="ana")
    with stated, pytest.raises(InvalidArgumentError, match="logged in to the database as"):
        stated.whoami()


def test_a_catalog_without_grants_has_no_function_of_them(protected: Protected) -> None:
    client = protected.as_writer()
    with client:
        client.commit(protected.orders.table_id, commit_of(2, ADD))
        protected.owner.disable_grants()
        with pytest.raises(PermissionDeniedError):
            client.commit(protected.orders.table_id, commit_of(3, ADD))
        assert isinstance(protected.owner.commit(protected.orders.table_id, commit_of(3, REMOVE)), Ratified)
        protected.owner.enable_grants()
        assert isinstance(client.commit(protected.orders.table_id, commit_of(4, ADD)), Ratified)


def test_only_the_owner_of_the_database_tables_enables_grants(postgres_url: str) -> None:
    role = create_role(postgres_url, "guest")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        create(owner, ORDERS)
        engine = sa.create_engine(postgres_url, poolclass=sa.pool.NullPool)
        with engine.begin() as connection:
            connection.execute(sa.text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"))
            connection.execute(sa.text(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"))
        with SqlCatalog(url_as(postgres_url, role)) as guest:
            with pytest.raises(OperationRefusedError, match="does not own the catalog's tables"):
                guest.enable_grants()
            assert isinstance(guest.commit(owner.load_table(ORDERS).table_id, proposal(1)), Ratified)
            owner.enable_grants()
            with pytest.raises(TableNotFoundError):
                guest.commit(owner.load_table_by_id(owner.load_table(ORDERS).table_id).table_id, proposal(2))


def test_rights_on_single_columns_are_revoked_too(postgres_url: str) -> None:
    writer = create_role(postgres_url, "writer")
    columns = "grantee, scope, privilege, granted_ms"
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        create(owner, ORDERS)
        with raw_client(postgres_url, "postgres") as client:
            client.execute(f"GRANT INSERT ({columns}) ON cm_delta_grants TO {writer}")
        owner.enable_grants()
    with raw_client(postgres_url, writer) as client, pytest.raises(psycopg.errors.InsufficientPrivilege):
        client.execute(f"INSERT INTO cm_delta_grants ({columns}) VALUES (session_user, '*', 'own', 0)")


def test_bytes_of_the_definition_come_from_the_content(protected: Protected) -> None:
    """A client cannot report another schema to the catalog than the one that it commits."""
    protected.owner.grant([Privilege.ALTER], str(ORDERS), protected.writer)
    with raw_client(protected.url, protected.writer) as client:
        one = commit_of(2, METADATA)
        assert send(client, protected.orders.table_id, one, metadata='{"metaData":{"id":"forged"}}') == "ratified"
    engine = sa.create_engine(protected.url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        stored = connection.execute(sa.text("SELECT metadata FROM cm_delta_definitions")).scalars().all()
    assert stored == [json.dumps(METADATA)]
