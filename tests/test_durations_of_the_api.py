"""Durations of the public API are of type ``timedelta``: a number whose unit stands in its name is only a point in time."""

import functools
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from datetime import timedelta
from typing import Any

import click
import pytest
from pydantic import BaseModel

import cm_delta_dagster
from cm_delta_dagster import orchestration
from cm_delta_dagster.api.keyword_hints import checking_keywords
from cm_delta_dagster.api.moved_names import MOVED_ARGUMENTS
from cm_delta_dagster.api.table.table_maintenance import DeltaTableMaintenance
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.runs.resources import ClientSettingsConfig
from tests.support.public_classes import NAMESPACES

_UNIT = re.compile(r"_(ms|millis|milliseconds|seconds|secs|minutes|hours|days)$")
_TIMES = frozenset(
    {
        "acquired_ms",
        "at_ms",
        "created_ms",
        "decided_ms",
        "expires_ms",
        "granted_ms",
        "last_used_ms",
        "last_written_ms",
        "ratified_ms",
        "requested_ms",
        "revoked_ms",
        "set_ms",
        "since_ms",
        "timestamp_ms",
        "now_ms",
    }
)
"""Points in time, in epoch milliseconds: of commits, and of other entries of the catalog. The last is the clock of a client."""


def test_a_public_name_has_a_unit_only_if_it_is_a_point_in_time() -> None:
    with_unit = {name: place for place, name in _names() if _UNIT.search(name)}
    assert {name: place for name, place in with_unit.items() if name not in _TIMES} == {}


def test_the_walk_reaches_arguments_fields_of_results_and_attributes_of_components() -> None:
    names = set(_names())
    assert names >= {
        ("DeltaTable.vacuum", "retention"),
        ("VacuumPlan", "retention"),
        ("PurgePlan", "abandoned_after"),
        ("MaintenanceDecision", "min_retention"),
        ("HistoryEntry", "timestamp_ms"),
        ("CommitSensor", "minimum_interval"),
        ("ClientSettingsConfig", "publish_delay"),
        ("build_maintenance_sweep", "budget"),
    }
    assert {name for _, name in names} >= set(MOVED_ARGUMENTS.values())
    assert {name for _, name in names}.isdisjoint(MOVED_ARGUMENTS)


def test_no_option_of_the_command_line_has_a_unit_in_its_name() -> None:
    options = [option for option in _options(main) if not option.hidden]
    assert len(options) > 20
    assert [option.name for option in options if _UNIT.search(f"_{option.name}")] == []


@pytest.mark.parametrize(("old", "new"), MOVED_ARGUMENTS.items())
def test_an_old_argument_is_an_error_that_names_the_new_one(old: str, new: str) -> None:
    function: Callable[..., object] = eval(f"lambda {new}=None: None")
    with pytest.raises(TypeError, match=f"has no argument '{old}': write {new}="):
        checking_keywords(function)(**{old: 7})


def test_settings_of_a_config_are_texts_or_timedeltas() -> None:
    config = ClientSettingsConfig(publish_delay="2 seconds", maintenance_lease=timedelta(minutes=5))  # type: ignore[arg-type]  # Converted.
    assert config.client_settings() == ClientSettings(
        publish_delay=timedelta(seconds=2), maintenance_lease=timedelta(minutes=5)
    )
    with pytest.raises(ValueError, match="'publish_delay_seconds' of a client is now 'publish_delay'"):
        ClientSettingsConfig(publish_delay_seconds=2)  # type: ignore[call-arg]  # An old name.
    with pytest.raises(ValueError, match=r"ClientSettingsConfig\.publish_delay is '2'; give a duration"):
        ClientSettingsConfig(publish_delay="2")


def test_durations_of_components_are_texts_in_yaml() -> None:
    sensor = orchestration.CommitSensor.resolve_from_yaml("tables: {a: main.s.a}\nminimum_interval: 2 minutes")
    assert sensor.minimum_interval == timedelta(minutes=2)
    maintenance = orchestration.TableMaintenance.resolve_from_yaml("tables: [main.s.a]\nretention: P30D")
    assert maintenance.policy().retention == timedelta(days=30)
    assert orchestration.TableMaintenance.resolve_from_yaml("tables: [main.s.a]").policy().retention is None
    for kind, text, message in (
        (orchestration.CommitSensor, "minimum_interval_seconds: 5", "is now 'minimum_interval'"),
        (orchestration.TableMaintenance, "tables: [main.s.a]\nretention_ms: 5", "is now 'retention'"),
    ):
        with pytest.raises(ValueError, match=message):
            kind.resolve_from_yaml(text)
    with pytest.raises(Exception, match="retention is 30; give a duration"):
        orchestration.TableMaintenance.resolve_from_yaml("tables: [main.s.a]\nretention: '30'")


def test_a_number_is_no_duration_of_a_rule() -> None:
    with pytest.raises(InvalidArgumentError, match=r"min_retention .* is 7; give a datetime\.timedelta"):
        MaintenanceConditions(min_retention=7)  # type: ignore[arg-type]  # Refused at run time too.


def _options(command: click.Command) -> Iterator[click.Option]:
    yield from (option for option in command.params if isinstance(option, click.Option))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _options(child)


def _names() -> Iterator[tuple[str, str]]:
    """Place and name of the parameters of public calls, and of the fields of all values that they take or return."""
    seen: set[type] = {cm_delta_dagster.DeltaClient}
    exported = [getattr(module, name) for module in (cm_delta_dagster, orchestration) for name in module.__all__]
    calls = [value for value in exported if inspect.isfunction(value)]
    for kind in (*filter(inspect.isclass, exported), *NAMESPACES.values(), DeltaTableMaintenance):
        yield from _fields(kind, seen)
        methods = inspect.getmembers(kind, inspect.isroutine)
        calls += [
            method for name, method in methods if not name.startswith("_") and kind is not cm_delta_dagster.DeltaClient
        ]
    for call in calls:
        if not str(getattr(call, "__module__", "")).startswith("cm_delta_dagster"):
            continue  # Inherited from another package.
        yield from ((call.__qualname__, name) for name in inspect.signature(call).parameters)
        for hint in _hints(call).values():
            yield from _fields_of_hint(hint, seen)


def _fields_of_hint(hint: object, seen: set[type]) -> Iterator[tuple[str, str]]:
    for kind in (hint, *typing.get_args(hint)):
        if kind is not hint:
            yield from _fields_of_hint(kind, seen)
        elif isinstance(kind, type):
            yield from _fields(kind, seen)


def _fields(kind: type, seen: set[type]) -> Iterator[tuple[str, str]]:
    """The fields and properties of a class of the package, and of the classes of their values.

    Those of ``protocol`` are the core, which computes with epoch milliseconds.
    """
    package, _, layer = kind.__module__.partition(".")
    if kind in seen or package != "cm_delta_dagster" or layer.startswith("protocol"):
        return
    seen.add(kind)
    hints = _hints(kind) if is_dataclass(kind) or issubclass(kind, BaseModel) else {}
    for name, member in inspect.getmembers_static(kind):
        if isinstance(member, property) and member.fget is not None:
            hints[name] = _hints(member.fget).get("return")
    for name, hint in hints.items():
        if not name.startswith("_"):
            yield kind.__name__, name
            yield from _fields_of_hint(hint, seen)


def _hints(annotated: Any) -> dict[str, Any]:
    """Also with classes that are imported for type checkers only, by this module or by that of an alias."""
    return typing.get_type_hints(annotated, localns=_classes())


@functools.cache
def _classes() -> dict[str, type]:
    """The classes of the package, no two of which have the same name."""
    infos = pkgutil.walk_packages(cm_delta_dagster.__path__, "cm_delta_dagster.")
    modules = [importlib.import_module(info.name) for info in infos if not info.name.endswith("__main__")]
    return {
        kind.__name__: kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }
