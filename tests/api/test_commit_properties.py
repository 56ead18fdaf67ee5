"""What a user says about a commit: who takes it, what it holds, and where it is recorded."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import CommitProperties, Connection, DeltaTable, PathDeltaTable, connect
from cm_delta_dagster.api.multi_table_transaction import TransactionTable
from cm_delta_dagster.api.table.table_alterer import TableAlterer
from cm_delta_dagster.api.table.table_maintenance import DeltaTableMaintenance
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, Idempotency
from cm_delta_dagster.client.commits.transaction_intent import TransactionIntent
from cm_delta_dagster.errors import CommitRetriesExceededError, InvalidArgumentError
from tests.support.public_classes import NAMESPACES

_CLASSES = (
    Connection,
    *NAMESPACES.values(),
    DeltaTable,
    PathDeltaTable,
    DeltaTableMaintenance,
    TableAlterer,
    TransactionTable,
)
_SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w")) as lake:
        lake.create_table("main.sales.orders", _SCHEMA)
        yield lake


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _takes_context(value: object) -> bool:
    module = getattr(value, "__module__", None) or ""
    if not callable(value) or not module.startswith("cm_delta_dagster.operations"):
        return False
    parameters = inspect.signature(value).parameters.values()
    return any(str(parameter.annotation).endswith("CommitProperties'>") for parameter in parameters)


def _commits(owner: type, function: Callable[..., Any], seen: frozenset[str] = frozenset()) -> bool:
    """Whether the method calls an operation that takes commit properties, itself or through a private method."""
    names = frozenset(_names(function.__code__))
    if any(_takes_context(function.__globals__.get(name)) for name in names):
        return True
    own = {name: getattr(owner, name, None) for name in names - seen if name.startswith("_")}
    return any(inspect.isfunction(called) and _commits(owner, called, seen | names) for name, called in own.items())


def _committing_methods() -> Iterator[tuple[type, str]]:
    for owner in _CLASSES:
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and _commits(owner, inspect.unwrap(method)):
                yield owner, name


def test_every_public_method_that_commits_takes_commit_properties() -> None:
    methods = list(_committing_methods())
    found = {f"{owner.__name__}.{name}" for owner, name in methods}
    assert found >= {
        "Connection.create_table",
        "Connection.open_or_create",
        "ConnectionOnboarding.adopt",
        "ConnectionOnboarding.plan_release",
        "DeltaTable.append",
        "DeltaTable.clone",
        "DeltaTable.delete",
        "DeltaTable.optimize",
        "DeltaTable.plan_optimize",
        "DeltaTable.plan_restore",
        "DeltaTable.restore",
        "DeltaTable.write_stream",
        "DeltaTableMaintenance.reorg",
        "TableAlterer.add_columns",
        "TableAlterer.drop_constraint",
        "TransactionTable.update",
    }
    lacking = [
        f"{owner.__name__}.{name}"
        for owner, name in methods
        if "commit_properties" not in inspect.signature(getattr(owner, name)).parameters
    ]
    assert lacking == []


@pytest.mark.parametrize("method", ["vacuum", "history"])
def test_a_method_that_commits_nothing_says_so(lake: Connection, method: str) -> None:
    with pytest.raises(TypeError, match=rf"{method}\(\) has no argument 'commit_properties': it makes no commit$"):
        getattr(lake.table("main.sales.orders"), method)(commit_properties=NO_PROPERTIES)


def test_custom_metadata_are_fields_of_the_commit_info_as_in_deltalake(lake: Connection) -> None:
    table = lake.table("main.sales.orders")
    properties = CommitProperties(custom_metadata={"job": "nightly"}, tags={"team": "a"}, max_commit_retries=2)
    table.alter.set_comment("c", commit_properties=properties)
    info = table.history(1)[0].commit_info
    assert info is not None
    assert (info.extra["job"], info.tags) == ("nightly", {"team": "a"})
    assert properties.with_defaults(
        CommitProperties(custom_metadata={"job": "x", "by": "y"}, max_commit_retries=9)
    ) == (CommitProperties(custom_metadata={"job": "nightly", "by": "y"}, tags={"team": "a"}, max_commit_retries=2))


def test_a_statement_of_sql_records_its_commit_properties(lake: Connection, spark: SparkSession) -> None:
    lake.sql("INSERT INTO main.sales.orders VALUES (1)", commit_properties=CommitProperties(tags={"ticket": "OPS-1"}))
    lake.sql("INSERT INTO main.sales.orders VALUES (2)")
    infos = [entry.commit_info for entry in lake.table("main.sales.orders").history(2)]
    assert [info.tags for info in infos if info is not None] == [None, {"ticket": "OPS-1"}]


def test_creation_optimize_and_plans_record_their_commit_properties(lake: Connection, spark: SparkSession) -> None:
    def text(number: int) -> CommitProperties:
        return CommitProperties(user_metadata=f"T-{number}")

    lake.maintenance.set_policy("main", "DATA_REORGANIZATION")
    table = lake.create_table("main.sales.lines", _SCHEMA, commit_properties=text(0))
    for _ in range(2):
        table.append(spark.range(3), commit_properties=text(1))
    table.optimize(commit_properties=text(2))
    table.plan_restore(1, commit_properties=text(3)).apply()
    table.append(spark.range(3), commit_properties=text(4))
    table.plan_optimize(commit_properties=text(5)).apply()
    lake.open_or_create("main.sales.others", _SCHEMA, commit_properties=text(6))
    found = [entry.commit_info for entry in table.history()]
    assert [info.user_metadata for info in found if info is not None] == [
        "T-5",
        "T-4",
        "T-3",
        "T-2",
        "T-1",
        "T-1",
        "T-0",
    ]
    created = lake.table("main.sales.others").history()[0].commit_info
    assert created is not None and created.user_metadata == "T-6"


def test_no_retry_permits_a_single_attempt(lake: Connection) -> None:
    table = lake.table("main.sales.orders").table
    behind = table.start_transaction(
        table.snapshot(), operation="WRITE", context=CommitProperties(max_commit_retries=0)
    )
    table.start_transaction(table.snapshot(), operation="WRITE").commit()
    with pytest.raises(
        CommitRetriesExceededError, match=r"was tried 1 times .* raise max_commit_retries of the commit p"
    ):
        behind.commit()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"custom_metadata": {"operation": "x"}}, "custom_metadata cannot set operation"),
        ({"custom_metadata": {"a": 1}}, "custom_metadata of the commit properties is"),
        ({"tags": ["a"]}, "tags of the commit properties is"),
        ({"max_commit_retries": -1}, "max_commit_retries is -1"),
        ({"max_commit_retries": True}, "max_commit_retries is True"),
    ],
    ids=str,
)
def test_unusable_properties_are_refused_immediately(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        CommitProperties(**values)


def test_names_of_deltalake_are_answered() -> None:
    assert CommitProperties(custom_metadata=None) == NO_PROPERTIES  # type: ignore[arg-type]  # As deltalake allows.
    with pytest.raises(TypeError, match=r"no argument 'app_transactions': give the write itself an Idempotency"):
        CommitProperties(app_transactions=[Idempotency(app_id="a", version=1)])  # type: ignore[call-arg]  # The error is the point.
    with pytest.raises(
        TypeError, match="no argument 'metadata': its arguments are tags, user_metadata, custom_metadata"
    ):
        CommitProperties(metadata={})  # type: ignore[call-arg]  # As above.


def test_a_commit_that_an_earlier_release_kept_can_be_resumed() -> None:
    intent = TransactionIntent(
        txn_id="t", operation="WRITE", context=CommitProperties(custom_metadata={"a": "b"}), read_version=3
    )
    text = intent.to_json()
    assert TransactionIntent.parse(text) == intent
    before = text.replace('"custom_metadata": {"a": "b"}, "max_commit_retries": null', '"engine_info": "cm/1"')
    assert "engine_info" in before
    assert TransactionIntent.parse(before).context == NO_PROPERTIES
