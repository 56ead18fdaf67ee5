"""Remedies of errors: every kind has words for every entry point, the words are true, and the text of an error has them."""

import ast
import copy
import dataclasses
import inspect
import pickle
import shlex
import typing
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import cm_delta_dagster
from cm_delta_dagster import remedies
from cm_delta_dagster.advice import EntryPoint, advice, calls, process_entry_point
from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.remedy_words import WORDS as PYTHON
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.cli.remedy_words import WORDS as SHELL
from cm_delta_dagster.errors import CmDeltaError, CorruptLogError, InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.sql.remedy_words import WORDS as SQL
from cm_delta_dagster.operations.sql.remedy_words import errors_in_sql
from cm_delta_dagster.remedies import Remedy, TableRemedy
from tests.support.public_classes import NAMESPACES
from tests.support.syntax_trees import parse

TABLE = "main.sales.orders"

EXAMPLES: tuple[Remedy, ...] = (
    remedies.AddConstraint(),
    remedies.AddConstraint(table=TABLE),
    remedies.AdoptTable(),
    remedies.AdoptTable(location="/data/with space"),
    remedies.AdoptOrRegisterTable(location="/data/with space"),
    remedies.AllowMaintenance(scope=TABLE, kind="data_cleanup"),
    remedies.BackUpDatabase(file="catalog copy.db"),
    remedies.CheckTable(),
    remedies.CheckTable(table=TABLE),
    remedies.ChooseHistory(),
    remedies.ChooseHistory(table=TABLE),
    remedies.ConnectWithWarehouse(),
    remedies.CreateCatalog(),
    remedies.DecideApproval(approval_id="5f0c"),
    remedies.DropTableFeature(feature="typeWidening-preview"),
    remedies.DropTableFeature(feature="deletionVectors", table=TABLE),
    remedies.DropOrRenameColumn(column="day"),
    remedies.DropOrRenameColumn(column="the day's `end`", table="main.sales.orders 1"),
    remedies.EnableTableFeature(feature="timestampNtz"),
    remedies.EnableTableFeature(feature="timestampNtz", table=TABLE),
    remedies.GrantPrivilege(privilege="read"),
    remedies.GrantPrivilege(privilege="own", scope="main.sales", principal="the team"),
    remedies.RevokePrivilege(privilege="read"),
    remedies.RevokePrivilege(privilege="modify", scope="*", principal="ana"),
    remedies.ListGrants(),
    remedies.ListGrants(scope="main.sales"),
    remedies.IgnoreRetention(),
    remedies.IgnoreRetention(table=TABLE),
    remedies.ListApplicationIds(),
    remedies.ListApplicationIds(table=TABLE),
    remedies.ListHolds(),
    remedies.ListLeases(),
    remedies.OpenCatalog(),
    remedies.RewriteFiles(column="day"),
    remedies.RewriteFiles(column="the day", table=TABLE),
    remedies.MergeOnCondition(),
    remedies.MergeOnCondition(table=TABLE),
    remedies.OverwriteWithSchema(),
    remedies.OverwriteWithSchema(table=TABLE),
    remedies.PassUncheckedCondition(),
    remedies.ReadWithoutSpark(),
    remedies.ReadWithoutSpark(table=TABLE),
    remedies.RecoverTable(),
    remedies.RecoverTable(table=TABLE),
    remedies.RecoverWarehouse(),
    remedies.RecoverWarehouse(warehouse="s3://bucket/with space"),
    remedies.RelocateTables(),
    remedies.RelocateTables(moved_from="file:///old", moved_to="file:///new"),
    remedies.RemoveClusteringColumns(),
    remedies.RemoveClusteringColumns(table=TABLE),
    remedies.RenameTable(),
    remedies.RenameTable(table=TABLE),
    remedies.RepairTable(),
    remedies.RepairTable(table=TABLE),
    remedies.ReplaceByOwnRows(),
    remedies.ReplaceByOwnRows(table=TABLE),
    remedies.RunMaintenance(task="optimize"),
    remedies.RunMaintenance(table="main.sales.orders 1", task="vacuum"),
    remedies.RunMaintenance(task="checkpoint"),
    remedies.RewriteFiles(),
    remedies.RewriteFiles(table=TABLE),
    remedies.StreamWithoutSpark(),
    remedies.StreamWithoutSpark(table=TABLE),
    remedies.RepeatWithOption(option="future"),
    remedies.RepeatWithOption(option="force"),
    remedies.RepeatWithOption(option="name", value="at most"),
    remedies.ResetApplicationId(app_id="it's -x"),
    remedies.ResetApplicationId(table=TABLE, app_id="--job"),
    remedies.ResumeArrowStream(offset='{"version": 3}'),
    remedies.SetClusteringColumns(),
    remedies.SetClusteringColumns(table=TABLE),
    remedies.SetTableProperty(key="delta.enableChangeDataFeed", value="true"),
    remedies.SetTableProperty(key="delta.columnMapping.mode", value="none", table=TABLE, rewrites_files=True),
    remedies.TakeBackCommit(version=7),
    remedies.TakeBackCommit(table=TABLE, version=7),
    remedies.SetTags(),
    remedies.SetUserMetadata(),
    remedies.SetTableProperty(key="owner", value="it's \\ 1", table=TABLE),
)
WITHOUT_STATEMENT = {
    remedies.AdoptOrRegisterTable,
    remedies.AdoptTable,
    remedies.GrantPrivilege,
    remedies.ListGrants,
    remedies.RevokePrivilege,
    remedies.AllowMaintenance,
    remedies.BackUpDatabase,
    remedies.CheckTable,
    remedies.ChooseHistory,
    remedies.ConnectWithWarehouse,
    remedies.CreateCatalog,
    remedies.DecideApproval,
    remedies.IgnoreRetention,
    remedies.ListApplicationIds,
    remedies.ListHolds,
    remedies.ListLeases,
    remedies.OpenCatalog,
    remedies.MergeOnCondition,
    remedies.OverwriteWithSchema,
    remedies.PassUncheckedCondition,
    remedies.RecoverTable,
    remedies.RecoverWarehouse,
    remedies.RelocateTables,
    remedies.ReadWithoutSpark,
    remedies.RepairTable,
    remedies.RepeatWithOption,
    remedies.ResetApplicationId,
    remedies.ResumeArrowStream,
    remedies.SetTags,
    remedies.SetUserMetadata,
    remedies.StreamWithoutSpark,
    remedies.TakeBackCommit,
}
"""Kinds for which there is no statement of SQL."""
WITHOUT_COMMAND: set[type[Remedy]] = {
    remedies.ConnectWithWarehouse,
    remedies.CreateCatalog,
    remedies.IgnoreRetention,
    remedies.MergeOnCondition,
    remedies.OverwriteWithSchema,
    remedies.PassUncheckedCondition,
    remedies.ResumeArrowStream,
    remedies.StreamWithoutSpark,
}
"""Kinds for which there is no command."""


def _kinds() -> set[type[Remedy]]:
    return {
        value
        for value in vars(remedies).values()
        if isinstance(value, type) and issubclass(value, Remedy) and value not in (Remedy, TableRemedy)
    }


def _calls(entry_point: EntryPoint) -> list[str]:
    """All calls but the arguments with which a call is repeated."""
    whole = (remedy for remedy in EXAMPLES if not isinstance(remedy, remedies.RepeatWithOption))
    return [call for remedy in whole for call in calls(remedy, entry_point)]


def test_every_kind_of_remedy_has_words_for_every_entry_point() -> None:
    kinds = _kinds()
    assert {type(example) for example in EXAMPLES} == kinds
    assert set(PYTHON) == kinds
    assert set(SQL) == kinds - WITHOUT_STATEMENT
    assert set(SHELL) == kinds - WITHOUT_COMMAND


# --- the words are true -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", _calls(EntryPoint.PYTHON))
def test_the_words_for_python_name_methods_that_exist_and_take_these_arguments(call: str) -> None:
    for statement in parse(call).body:
        assert isinstance(statement, ast.Expr | ast.Assign)
        _check_python(statement.value)


def _check_python(node: ast.expr) -> object:
    """The type of the value of an expression; fails if a name, attribute or argument in it does not exist."""
    match node:
        case ast.Name(id="lake"):
            return Connection
        case ast.Name(id="table"):
            return DeltaTable
        case ast.Name(id="plan"):
            return Plan
        case ast.Name(id=name):
            return getattr(cm_delta_dagster, name)
        case ast.Attribute(value=value, attr=name):
            member = inspect.getattr_static(_check_python(value), name)
            if isinstance(member, property):
                return typing.get_type_hints(member.fget)["return"]
            return member
        case ast.Call(func=function, args=args, keywords=keywords):
            called = _check_python(function)
            assert callable(called)
            itself = [object()] if isinstance(function, ast.Attribute) else []
            named = {keyword.arg: keyword.value for keyword in keywords if keyword.arg is not None}
            inspect.signature(called).bind(*itself, *args, **named)
            return typing.get_type_hints(called).get("return")
    raise AssertionError(f"not a call: {ast.unparse(node)}")


@pytest.mark.parametrize("call", _calls(EntryPoint.SHELL))
def test_the_words_for_the_shell_are_command_lines_that_the_program_parses(call: str) -> None:
    program, *words = shlex.split(call)
    assert program == "cm-delta"
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        _, words, _ = command.make_parser(context).parse_args(words)
        name, found, words = command.resolve_command(context, words)
        assert found is not None and name is not None
        command, context = found, click.Context(found, parent=context)
    command.parse_args(context, words)


@pytest.mark.parametrize("statement", _calls(EntryPoint.SQL))
def test_the_words_for_sql_are_statements_that_are_parsed(statement: str, tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db") as lake, pytest.raises(TableNotFoundError):
        lake.sql(statement)


_OPTIONS = [remedy for remedy in EXAMPLES if isinstance(remedy, remedies.RepeatWithOption)]


@pytest.mark.parametrize("remedy", _OPTIONS)
def test_the_arguments_with_which_a_call_is_repeated_exist_in_python_and_in_the_shell(remedy: Remedy) -> None:
    ((argument,), (option, *_)) = calls(remedy, EntryPoint.PYTHON), shlex.split(*calls(remedy, EntryPoint.SHELL))
    name = argument.partition("=")[0]
    assert name in _python_parameters()
    assert any(option in parameter.opts for parameter in _shell_parameters(main))


@pytest.mark.parametrize("option", ["fail_on_data_loss"])
def test_an_argument_that_no_command_has_is_one_of_python(option: str) -> None:
    remedy = remedies.RepeatWithOption(option=option, value="x")
    assert option in _python_parameters()
    assert not any(f"--{option.replace('_', '-')}" in parameter.opts for parameter in _shell_parameters(main))
    with process_entry_point(EntryPoint.SHELL):
        assert advice(remedy).endswith(f", in Python: {option}='x'.")


def _python_parameters() -> set[str]:
    kinds = (Connection, *NAMESPACES.values(), DeltaTable)
    methods = (value for kind in kinds for _, value in inspect.getmembers(kind, inspect.isfunction))
    return {name for method in methods for name in inspect.signature(method).parameters}


def _shell_parameters(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _shell_parameters(inner)


# --- texts ------------------------------------------------------------------------------------------------------------


def test_the_text_of_an_error_is_its_message_and_the_remedy_in_words_for_python() -> None:
    error = CorruptLogError("A file is gone.", version=3).with_remedy(remedies.RepairTable(table=TABLE))
    assert error.message == "A file is gone."
    assert (
        str(error)
        == "A file is gone. Put back what has an intact copy: lake.table('main.sales.orders').maintenance.repair()."
    )
    assert str(CorruptLogError("A file is gone.")) == "A file is gone."


def test_an_error_has_the_words_of_the_entry_point_of_its_process() -> None:
    error = CmDeltaError("Stopped.").with_remedy(remedies.RecoverTable(table=TABLE))
    with process_entry_point(EntryPoint.SHELL):
        assert str(error).endswith(
            ": `cm-delta recovery recover main.sales.orders`, then `cm-delta recovery recover main.sales.orders --apply`."
        )
    assert str(error).endswith(": plan = lake.recovery.plan_recover('main.sales.orders'), then plan.apply().")


def test_a_remedy_without_a_statement_has_the_words_of_the_process_in_sql() -> None:
    with pytest.raises(CmDeltaError, match=r"doctor\(\)") as raised, errors_in_sql():
        raise CmDeltaError("Stopped.").with_remedy(remedies.CheckTable(table=TABLE))
    assert raised.value.entry_point is EntryPoint.SQL
    with process_entry_point(EntryPoint.SHELL):
        assert "`cm-delta doctor main.sales.orders`" in str(raised.value)


def test_the_name_of_the_table_is_added_to_a_remedy_that_lacks_it() -> None:
    error = CmDeltaError("Stopped.").with_remedy(remedies.RepairTable(), table=TABLE)
    assert error.remedy == remedies.RepairTable(table=TABLE)
    assert error.with_remedy(error.remedy, table="main.other.t").remedy == remedies.RepairTable(table=TABLE)
    assert error.with_remedy(remedies.RelocateTables(), table=TABLE).remedy == remedies.RelocateTables()
    assert error.with_remedy(None, table=TABLE).remedy is None


@pytest.mark.parametrize("remedy", EXAMPLES)
def test_an_error_keeps_its_remedy_when_it_is_copied_or_pickled(remedy: Remedy) -> None:
    error = CorruptLogError("A file is gone.", version=3).with_remedy(remedy)
    error.entry_point = EntryPoint.SQL
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (twin.args, twin.version, twin.remedy, twin.entry_point) == (error.args, 3, remedy, EntryPoint.SQL)
        assert str(twin) == str(error)


@pytest.mark.parametrize("remedy", EXAMPLES)
def test_the_purpose_of_a_remedy_begins_a_sentence_and_names_no_call(remedy: Remedy) -> None:
    assert dataclasses.is_dataclass(remedy)
    assert remedy.purpose[0].isupper() and not remedy.purpose.endswith(".")
    assert all(call not in remedy.purpose for entry_point in EntryPoint for call in calls(remedy, entry_point))
    assert advice(remedy).startswith(remedy.purpose)


def test_the_same_error_is_worded_for_python_for_sql_and_for_the_shell(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    refused = "Enable the feature timestampNtz first: "
    with connect(url, warehouse=str(tmp_path)) as lake:
        table = lake.create_table(TABLE, pa.schema({"id": pa.int64()}))
        with pytest.raises(InvalidArgumentError) as in_python:
            table.alter.add_columns({"at": "timestamp_ntz"})
        assert f"{refused}lake.table('{TABLE}').alter.enable_feature('timestampNtz')." in str(in_python.value)
        with pytest.raises(InvalidArgumentError) as in_sql:
            lake.sql(f"ALTER TABLE {TABLE} ADD COLUMN at timestamp_ntz")
        statement = f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
        assert f"{refused}{statement}." in str(in_sql.value)
        assert in_python.value.remedy == in_sql.value.remedy

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, words, env={"CM_DELTA_CATALOG_URL": url})

    in_shell = run("alter", "add-column", TABLE, "at", "timestamp_ntz")
    assert (
        in_shell.exit_code == 1 and f"{refused}`cm-delta alter enable-feature {TABLE} timestampNtz`." in in_shell.output
    )
    assert run("alter", "enable-feature", TABLE, "timestampNtz").exit_code == 0
    assert run("alter", "add-column", TABLE, "at", "timestamp_ntz").exit_code == 0
    assert str(in_python.value).endswith("enable_feature('timestampNtz').")
