"""Tables of the catalog's database in SQLAlchemy Core.

The migrations create them; a test compares the two. Every name starts with ``cm_delta_``, because other programs (e.g. Dagster)
may share the database.
"""

from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.tables import TableIdentifier

METADATA = sa.MetaData()

ONLY_ON = "only_on"
"""Key in the ``info`` of an index that exists on one kind of database only: its dialect."""

STAGING = "staging"
ACTIVE = "active"
DROPPED = "dropped"
PURGING = "purging"
PURGED = "purged"

TABLES = sa.Table(
    "cm_delta_tables",
    METADATA,
    sa.Column("table_id", sa.Text, primary_key=True),
    sa.Column("catalog_name", sa.Text, nullable=False),
    sa.Column("schema_name", sa.Text, nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("location", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("latest_version", sa.BigInteger, nullable=False),
    sa.Column("published_version", sa.BigInteger, nullable=False),
    sa.Column("latest_data_version", sa.BigInteger, nullable=False),
    sa.Column("latest_in_commit_timestamp", sa.BigInteger, nullable=False),
    sa.Column("reserved_ms", sa.BigInteger, nullable=False),
    sa.Column("created_ms", sa.BigInteger),
    sa.Column("dropped_ms", sa.BigInteger),
    sa.Column("commit_policy", sa.Text),
    sa.Column("barrier_after", sa.BigInteger),
    sa.Column("content_from", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("etag", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("is_external", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("lease_token", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("owner", sa.Text),
    sa.Column("row_id_mark", sa.BigInteger),
    sa.Column("identity_marks", sa.Text),
)
"""One row for each reservation. ``latest_version`` and ``published_version`` are -1 in state STAGING.

``commit_policy`` is the table's own, NULL if a wider scope applies. While the policy changes from put-if-absent, the barrier
commit must follow version ``barrier_after``. Of the published commits exactly those from ``content_from`` on have their content
in ``COMMITS``. ``etag`` counts the changes of name and definition. A purge never deletes the files of a table that
``is_external``. A released table has the state PURGED and another location. ``owner`` is the principal that created the table,
or another one or a role since, with a name as in ``GRANTS``; NULL if it stated no name. ``lease_token`` is the fencing token of the
newest maintenance lease of the table; it only grows. ``row_id_mark`` and ``identity_marks`` (a JSON object by column) are the
high-water marks that commits have stated, NULL if they are not known.
"""

NAME_COLUMNS = (TABLES.c.catalog_name, TABLES.c.schema_name, TABLES.c.table_name)
"""The parts of a table's identifier, in order; :func:`identifier_of` reads them from a row."""

IS_ACTIVE = TABLES.c.state == sa.literal_column(f"'{ACTIVE}'")
"""A literal: with a parameter SQLite would plan each statement again, because a partial index depends on the value."""

NAMESPACES = sa.Table(
    "cm_delta_namespaces",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("catalog_name", sa.Text),
    sa.Column("comment", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("properties", sa.Text, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("created_by", sa.Text),
    sa.Column("created_ms", sa.BigInteger),
)
"""Catalogs (``catalog``) and schemas (``catalog.schema``). ``catalog_name`` is that of a schema, NULL for a catalog.

The catalog and the schema of each table that has a name are in it; those of other tables need not be. ``properties`` is a JSON
object of texts. ``created_ms`` is NULL for those that had only registered paths before revision 0018.
"""

DEFINITIONS = sa.Table(
    "cm_delta_definitions",
    METADATA,
    sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    sa.Column("metadata", sa.Text),
    sa.Column("protocol", sa.Text),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("in_commit_timestamp", sa.BigInteger, nullable=False),
)
"""The newest metaData and protocol action of each table, as lines of a commit; NULL if never reported to the catalog.

A separate table, because every commit writes the row of ``TABLES``.
"""

sa.Index(
    "cm_delta_tables_active_name",
    TABLES.c.catalog_name,
    TABLES.c.schema_name,
    TABLES.c.table_name,
    unique=True,
    sqlite_where=IS_ACTIVE,
    postgresql_where=IS_ACTIVE,
)

TABLES_IN_ORDER = sa.Index(
    "cm_delta_tables_in_order",
    sa.collate(TABLES.c.catalog_name, "C"),
    sa.collate(TABLES.c.schema_name, "C"),
    sa.collate(TABLES.c.table_name, "C"),
    postgresql_where=IS_ACTIVE,
    info={ONLY_ON: "postgresql"},
)
"""For lists by pages, see ``rows.name_order``. On SQLite the index of active names has that order."""

COMMITS = sa.Table(
    "cm_delta_commits",
    METADATA,
    sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("file_name", sa.Text, nullable=False),
    sa.Column("file_size", sa.BigInteger, nullable=False),
    sa.Column("file_modification_time", sa.BigInteger, nullable=False),
    sa.Column("txn_id", sa.Text, nullable=False),
    sa.Column("in_commit_timestamp", sa.BigInteger, nullable=False),
    sa.Column("operation", sa.Text, nullable=False),
    sa.Column("data_change", sa.Boolean, nullable=False),
    sa.Column("data_version", sa.BigInteger, nullable=False),
    sa.Column("ratified_ms", sa.BigInteger, nullable=False),
    sa.Column("metrics", sa.Text, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),
    sa.Column("content", sa.LargeBinary),
    sa.Column("sha256", sa.Text),
    sa.Column("engine_info", sa.Text),
    sa.Column("user_metadata", sa.Text),
    sa.Column("num_rows", sa.BigInteger),
    sa.Column("num_files", sa.BigInteger),
    sa.Column("size_bytes", sa.BigInteger),
    sa.Column("principal", sa.Text),
)
"""Every ratified commit. Those above the table's ``published_version`` are served to readers; ``FEED`` orders them.

``content`` is set for an inline commit until it is published, and for small commits of any mode while they are among the
newest. ``sha256`` is the digest of the commit's bytes, NULL for commits that were ratified before revision 0005.
The columns after it are NULL before revision 0007, and where the proposer does not know them. ``principal`` is who proposed the
commit, NULL before revision 0009.
"""

sa.Index(
    "cm_delta_commits_inline",
    COMMITS.c.table_id,
    COMMITS.c.version,
    sqlite_where=COMMITS.c.content.is_not(None),
    postgresql_where=COMMITS.c.content.is_not(None),
)

COMMIT_POLICIES = sa.Table(
    "cm_delta_commit_policies",
    METADATA,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("policy", sa.Text, nullable=False),
)
"""Rules of catalogs and schemas. Those of tables are in ``TABLES``, because they belong to the id and not to the name."""

FEED = sa.Table(
    "cm_delta_feed",
    METADATA,
    sa.Column("entry_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("position", sa.BigInteger, unique=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("table_id", sa.Text),
    sa.Column("version", sa.BigInteger),
    sa.Column("scope", sa.Text),
    sa.Column("actor", sa.Text),
    sa.Column("details", sa.Text),
)
"""One row for each event of the catalog. ``position`` is NULL until the entry is placed, see ``feed.entries``.

``version`` is set for commits, ``scope`` for events that concern no single table, ``details`` is a JSON object of texts.
"""

IS_UNPLACED = FEED.c.position.is_(None)
sa.Index("cm_delta_feed_unplaced", FEED.c.entry_id, sqlite_where=IS_UNPLACED, postgresql_where=IS_UNPLACED)
sa.Index("cm_delta_feed_table", FEED.c.table_id, FEED.c.version)

FEED_COUNTER = sa.Table(
    "cm_delta_feed_counter",
    METADATA,
    sa.Column("counter_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("deleted_up_to", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)
"""One row (id 1). The client that places entries holds its lock until the positions are visible, which keeps them in order.

Entries up to the position ``deleted_up_to`` were deleted after their retention.
"""

FEED_WAITERS = sa.Table(
    "cm_delta_feed_waiters",
    METADATA,
    sa.Column("waiter_id", sa.Text, primary_key=True),
    sa.Column("until_ms", sa.BigInteger, nullable=False),
)
"""Readers of a PostgreSQL catalog that wait for entries, and until when. Writers notify only if there is one."""

IDENTITY = sa.Table(
    "cm_delta_catalog",
    METADATA,
    sa.Column("row_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("catalog_id", sa.Text, nullable=False),
)
"""One row (id 1): the id of the catalog, by which a feed reader detects that the URL leads to another catalog."""

MAINTENANCE_RULES = sa.Table(
    "cm_delta_maintenance_rules",
    METADATA,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("allowed", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("principals", sa.Text, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("windows", sa.Text, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("min_retention_ms", sa.BigInteger),
    sa.Column("max_files", sa.BigInteger),
    sa.Column("max_bytes", sa.BigInteger),
    sa.Column("set_by", sa.Text),
    sa.Column("set_ms", sa.BigInteger),
)
"""``principals`` and ``windows`` are JSON arrays of texts. ``set_by`` and ``set_ms`` are NULL before revision 0010."""

COMMIT_RULES = sa.Table(
    "cm_delta_commit_rules",
    METADATA,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("on_violation", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("contact", sa.Text, nullable=False),
    sa.Column("set_by", sa.Text, nullable=False),
    sa.Column("set_ms", sa.BigInteger, nullable=False),
)
"""What commits must satisfy. ``arguments`` is a JSON object."""

APPLICATION_IDS = sa.Table(
    "cm_delta_application_ids",
    METADATA,
    sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    sa.Column("app_id", sa.Text, primary_key=True),
    sa.Column("principal", sa.Text),
    sa.Column("since_ms", sa.BigInteger, nullable=False),
)
"""Who set an application id last with a ``txn``; NULL if it stated no name. ``since_ms`` is when it first did so after another.

A long ``app_id`` is replaced by its digest, see ``rows.application_ids``. Commits before revision 0019 left no row.
"""

TOKENS = sa.Table(
    "cm_delta_tokens",
    METADATA,
    sa.Column("token_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("principal", sa.Text, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("created_by", sa.Text),
    sa.Column("expires_ms", sa.BigInteger),
    sa.Column("revoked_ms", sa.BigInteger),
    sa.Column("last_used_ms", sa.BigInteger),
    sa.Column("read_only", sa.Integer, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("table_id", sa.Text),
)
"""Tokens of callers of a server. ``digest`` is the SHA-256 of the secret, which is stored nowhere.

``table_id`` is the table of a scope that is a table, whose name at the time is ``scope``.
"""

HELD_COMMITS = sa.Table(
    "cm_delta_held_commits",
    METADATA,
    sa.Column("hold_id", sa.Text, primary_key=True),
    sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    sa.Column("waits_for", sa.Text, nullable=False, server_default=sa.text("'approval'")),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("operation", sa.Text, nullable=False),
    sa.Column("txn_id", sa.Text, nullable=False),
    sa.Column("read_version", sa.BigInteger, nullable=False),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("rules", sa.Text, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("contacts", sa.Text, nullable=False),
    sa.Column("requested_by", sa.Text),
    sa.Column("requested_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("app_id", sa.Text),
    sa.Column("app_version", sa.BigInteger),
    sa.Column("intent", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("file_name", sa.Text, nullable=False),
    sa.Column("file_size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text),
    sa.Column("content", sa.LargeBinary),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("decided_by", sa.Text),
    sa.Column("decided_ms", sa.BigInteger),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger),
)
"""Commits that are held, and those that were. The rows of a ``hold_id`` are a group, which is opened and closed as one.

``content`` is set while an inline commit waits.
"""

sa.Index("cm_delta_held_commits_table", HELD_COMMITS.c.table_id, HELD_COMMITS.c.state)

MAINTENANCE_LEASES = sa.Table(
    "cm_delta_maintenance_claims",
    METADATA,
    sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("acquired_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("principal", sa.Text),
)
"""``owner`` is a run. ``principal`` is who acquired the lease, NULL if it stated no name, and before revision 0011."""

VERSION_PINS = sa.Table(
    "cm_delta_version_pins",
    METADATA,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("pinned_ms", sa.BigInteger, nullable=False, index=True),
    sa.Column("principal", sa.Text, primary_key=True, server_default=sa.text("''")),
)
"""The version that an owner (a run) reads of a table. Expires by time, because an owner does not report its end.

``principal`` is who made the pin; empty if it stated no name, and before revision 0013. Clients of other principals do not use it.
"""

CLONES = sa.Table(
    "cm_delta_clones",
    METADATA,
    sa.Column("clone_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    sa.Column("source_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
)
"""Which shallow clones may read files of which tables; inserted with the reservation of a clone, deleted with its purge.

A clone of a clone has a row for each table whose files the first clone may read, too.
"""

sa.Index("cm_delta_clones_source", CLONES.c.source_id)

REGISTERED_PATHS = sa.Table(
    "cm_delta_registered_paths",
    METADATA,
    sa.Column("catalog_name", sa.Text, primary_key=True),
    sa.Column("schema_name", sa.Text, primary_key=True),
    sa.Column("table_name", sa.Text, primary_key=True),
    sa.Column("location", sa.Text, nullable=False),
)
"""Names of Delta tables of other writers, which clients read by path. The catalog ratifies none of their commits."""

ACTIVE_CHECKS = sa.Table(
    "cm_delta_active_checks",
    METADATA,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("check_name", sa.Text, primary_key=True),
)
"""Which checks of ``ratification.checks`` proposals for tables of a scope must pass; scopes as in :func:`scope_keys`."""

GRANTS = sa.Table(
    "cm_delta_grants",
    METADATA,
    sa.Column("grantee", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("privilege", sa.Text, primary_key=True),
    sa.Column("granted_by", sa.Text),
    sa.Column("granted_ms", sa.BigInteger, nullable=False),
)
"""Privileges of principals (``user:NAME``) and roles (``role:NAME``); scopes as in :func:`scope_keys`.

Columns that say who did something have the name of a principal without prefix.
"""

ROLES = sa.Table("cm_delta_roles", METADATA, sa.Column("role", sa.Text, primary_key=True))

ROLE_MEMBERS = sa.Table(
    "cm_delta_role_members",
    METADATA,
    sa.Column("member", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, sa.ForeignKey("cm_delta_roles.role"), primary_key=True),
)
"""A member is a principal or another role, with the prefix of its namespace as in ``GRANTS``."""

AUDIT = sa.Table(
    "cm_delta_audit",
    METADATA,
    sa.Column("entry_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("principal", sa.Text),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("table_id", sa.Text),
    sa.Column("state_before", sa.Text),
    sa.Column("state_after", sa.Text),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
)
"""Changes of rules and refusals; rows are only inserted."""


def scope_keys() -> tuple[sa.ColumnElement[str], ...]:
    """The scopes that contain the table of a row of ``TABLES``: ``*``, its catalog, schema, name, and its id after ``id:``."""
    return (sa.literal_column("'*'"), *name_scopes(), sa.literal_column("'id:'").concat(TABLES.c.table_id))


def name_scopes() -> tuple[sa.ColumnElement[str], ...]:
    """The catalog, the schema and the name of the table of a row of ``TABLES``."""
    schema = TABLES.c.catalog_name + "." + TABLES.c.schema_name
    return TABLES.c.catalog_name, schema, schema + "." + TABLES.c.table_name


def identifier_of(row: Any) -> TableIdentifier:
    """The identifier in a row that has ``NAME_COLUMNS``."""
    return TableIdentifier(row.catalog_name, row.schema_name, row.table_name)
