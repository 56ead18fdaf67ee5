"""Errors for arguments of public methods: unknown names, their number, and values of another type."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from types import FunctionType
from typing import Any, NoReturn, TypeVar, cast

from cm_delta_dagster.api.argument_types import choices, type_checks
from cm_delta_dagster.api.moved_names import MOVED_ARGUMENTS
from cm_delta_dagster.api.peer_names import METHOD_NAMES

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])

_COMMIT_KEYWORDS = frozenset({"commit_properties", "custom_metadata", "snapshot_properties", "userMetadata", "context"})
PEER_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "predicate",
            "condition",
            "filter",
            "filters",
            "row_filter",
            "overwrite_filter",
            "delete_filter",
            "partition_filters",
            "replace_where",
            "replaceWhere",
            "within",
        ),
        ("where", "within", "condition", "on", "check"),
    ),
    **dict.fromkeys(("join_cols", "merge_keys", "merge_on", "keys", "replace_using"), ("on", "keys")),
    **dict.fromkeys(
        (
            "retention_check",
            "enforce_retention_duration",
            "missing_files",
            "ignore_missing_files",
            "any_name",
            "lock_out",
            "confirm",
        ),
        ("force",),
    ),
    **dict.fromkeys(("columns_to_read", "selected_fields", "selectedFields"), ("columns",)),
    **dict.fromkeys(("snapshot_id", "versionAsOf", "version_as_of", "load_as_version"), ("version",)),
    **dict.fromkeys(("timestampAsOf", "timestamp_as_of", "as_of"), ("timestamp",)),
    **dict.fromkeys(("startingVersion", "from_snapshot_id_exclusive"), ("starting_version",)),
    **dict.fromkeys(("endingVersion", "to_snapshot_id_inclusive"), ("ending_version",)),
    **dict.fromkeys(("updates", "set", "set_", "new_values"), ("assignments", "values")),
    **dict.fromkeys(("df", "data", "source", "table", "dataset"), ("frame", "source", "schema")),
    **dict.fromkeys(("partition_columns", "partitionBy", "partition_spec"), ("partition_by",)),
    **dict.fromkeys(("configuration", "table_properties", "custom_properties"), ("properties",)),
    **dict.fromkeys(_COMMIT_KEYWORDS, ("commit_properties", "context")),
    **dict.fromkeys(("table_name", "identifier", "tableName", "from_identifier"), ("name",)),
    **dict.fromkeys(("new_name", "to_identifier"), ("to",)),
    **dict.fromkeys(("mergeSchema", "overwriteSchema"), ("schema_mode",)),
    **dict.fromkeys(
        ("retain", "retention_hours", "retentionHours", "older_than", "min_snapshot_age_ms"), ("retention",)
    ),
    **dict.fromkeys(("z_order", "zorder_by", "zOrderBy", "columns"), ("z_order_by", "columns")),
    **{old: (new,) for old, new in MOVED_ARGUMENTS.items()},
    "namespace": ("scope", "name"),
    "privileges": ("privilege",),
    "description": ("comment", "description"),
}
"""Keywords of other libraries and earlier releases, and what they may be called here: the first one that a method has."""


_ACCEPTED: Mapping[str, str] = {
    **dict.fromkeys(("predicate", "row_filter", "overwrite_filter", "filter", "filters"), "where"),
    **dict.fromkeys(("updates", "set"), "assignments"),
    "selected_fields": "columns",
    "join_cols": "on",
    "z_order": "z_order_by",
}
"""Of these keywords, those that are accepted by methods with the argument, which has the same type and meaning."""

_FIELDS: Mapping[str, str] = {
    "userMetadata": "user_metadata='...'",
    **dict.fromkeys(("custom_metadata", "snapshot_properties"), "custom_metadata={...}"),
}
"""For keywords of other libraries, the field of the commit properties."""

_CALLS: Mapping[tuple[str, str], str] = {
    **{
        (method, keyword): f"write table.changes(starting_version=...).{form}()"
        for keyword in ("readChangeFeed", "readChangeData")
        for method, form in (("to_df", "to_df"), ("to_arrow", "to_arrow"), ("scan", "to_df"))
    },
    ("scan", "limit"): "write scan(...).to_df().limit(n)",
    ("to_df", "limit"): "write to_df(...).limit(n)",
    ("restore", "target"): "write version=... or timestamp=...",
    ("merge", "predicate"): "write on=...",
    ("clone", "isShallow"): "write clone(name), which is shallow, or clone(name, mode='deep')",
    ("clone", "is_shallow"): "write clone(name), which is shallow, or clone(name, mode='deep')",
    ("sql", "hold"): (
        "writes of lake.sql are not held; write lake.table(name).update(..., hold=True), or another of its methods, or use "
        "lake.transaction(hold=True)"
    ),
    **dict.fromkeys(
        (("merge", "hold"), ("when_matched_update", "hold"), ("when_not_matched_insert", "hold")),
        "write merge(...)....execute(hold=True)",
    ),
    ("drop", "purge"): "drop(name) keeps the files, and lake.maintenance.purge(name) deletes those of dropped tables",
    **{
        ("vacuum", keyword): "write retention=timedelta(hours=...)"
        for keyword in ("retention_hours", "retentionHours", "retain")
    },
    ("append", "mode"): "append(frame) adds rows, and overwrite(frame) replaces them",
    ("overwrite", "mode"): "overwrite(frame) replaces the rows, and append(frame) adds rows",
}
"""For methods with keywords that mean another call, what to write."""


def with_keyword_hints(owner: _Class) -> _Class:
    """Wrap the public methods of a class, so that a keyword that a method lacks is a TypeError that names the right one.

    The signatures, and what help and type checkers show, stay. Inherited methods are wrapped in the class that is given.
    """
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        if not name.startswith("_") and isinstance(member, FunctionType) and not hasattr(member, "checks_keywords"):
            plan = f"plan_{name}" if hasattr(owner, f"plan_{name}") else ""
            method = checking_keywords(member, owner=owner.__name__, plan=plan)
            for attribute, here in METHOD_NAMES.get(name, {}).items():
                setattr(method, attribute, _absent(attribute, method=name, here=here))
            setattr(owner, name, method)
    return owner


def _absent(attribute: str, *, method: str, here: str) -> Callable[..., NoReturn]:
    """What is called in ``table.optimize.compact()``, where ``optimize`` is a method."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AttributeError(f"{method} is a method, without {attribute!r}: write {here}")

    return refuse


def checking_keywords(function: _Function, *, owner: str = "", plan: str = "") -> _Function:
    """A function that refuses unknown keywords with a hint, and values of another type, before anything is done.

    Too many or too few arguments are refused with the signature. It is ``function`` itself if that takes any number of them.

    Args:
        owner: name of its class.
        plan: name of the method that says what ``function`` would do.
    """
    parameters = inspect.signature(function).parameters.values()
    variable = {parameter.kind for parameter in parameters}
    if inspect.Parameter.VAR_POSITIONAL in variable:
        return function
    takes_any = inspect.Parameter.VAR_KEYWORD in variable
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = tuple(parameter.name for parameter in parameters if parameter.kind in kinds and parameter.name != "self")
    known = frozenset(names)
    called = f"{owner}.{function.__name__}" if owner else function.__name__
    positional = tuple(parameter.name for parameter in parameters if parameter.kind is kinds[0])
    needed = tuple(
        (place, parameter.name)
        for place, parameter in enumerate(parameters)
        if parameter.default is parameter.empty and parameter.kind in kinds
    )
    # Functions outside of classes check their other arguments themselves, with messages of their own.
    checks = type_checks(entry for entry in parameters if owner or entry.name == "commit_properties")

    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        keywords = keywords if takes_any else _with_own_names(called, known, positional[: len(arguments)], keywords)
        if not takes_any and not known.issuperset(keywords):
            unknown = next(name for name in keywords if name not in known)
            raise TypeError(
                f"{called}() has no argument {unknown!r}: {_CALLS.get((function.__name__, unknown)) or _hint(unknown, names, plan)}"
            )
        missing = [name for place, name in needed if place >= len(arguments) and name not in keywords]
        if missing or len(arguments) > len(positional):
            what = f"lacks {', '.join(missing)}" if missing else f"takes {_count_text(function)} without a name"
            raise TypeError(
                f"{called}() {what}: write {called}({_signature_text(function)}){_choices(function, missing)}"
            )
        for name, value in (*zip(positional, arguments, strict=False), *keywords.items()):
            if name in checks:
                checks[name].refuse_other(value)
        return function(*arguments, **keywords)

    checked.checks_keywords = True  # type: ignore[attr-defined]  # A mark of this module on its own function.
    return cast(_Function, checked)


def _with_own_names(
    called: str, known: Collection[str], positional: Collection[str], keywords: dict[str, Any]
) -> dict[str, Any]:
    """The keywords, an accepted one of another library under the name of the argument. Raises TypeError if that has two values."""
    named = {}
    for keyword, value in keywords.items():
        name = _ACCEPTED.get(keyword, keyword)
        is_accepted = keyword not in known and name in known and (isinstance(value, str) or "filter" not in keyword[:6])
        own = name if is_accepted else keyword
        if own in named or (is_accepted and (own in positional or own in keywords)):
            raise TypeError(f"{called}() has two values for {own}: leave out {keyword}=...")
        named[own] = value
    return named


def _signature_text(function: Callable[..., object]) -> str:
    """The names of the parameters, ``=...`` after those that can be left out."""
    shown, has_star = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not has_star:
            shown.append("*")
            has_star = True
        stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
        shown.append(stars + parameter.name if parameter.default is parameter.empty else f"{parameter.name}=...")
    return ", ".join(shown)


def _count_text(function: Callable[..., object]) -> str:
    """How many arguments a method takes without a name, in words."""
    parameters = inspect.signature(function).parameters.values()
    positional = [entry for entry in parameters if entry.kind is entry.POSITIONAL_OR_KEYWORD and entry.name != "self"]
    return {0: "no argument", 1: "one argument"}.get(len(positional), f"{len(positional)} arguments")


def _choices(function: Callable[..., object], missing: Iterable[str]) -> str:
    """What the missing arguments can be that are a choice."""
    parameters = inspect.signature(function).parameters
    known = {name: choices(parameters[name].annotation) for name in missing}
    return "".join(f"; {name} is one of {', '.join(values)}" for name, values in known.items() if values)


def _hint(unknown: str, names: tuple[str, ...], plan: str) -> str:
    if unknown in _COMMIT_KEYWORDS and not {"commit_properties", "context"}.intersection(names):
        return "it makes no commit"
    if plan and unknown in ("dry_run", "dryRun", "plan_only"):
        return f"write {plan}(...), whose result has apply()"
    meant = next((name for name in PEER_KEYWORDS.get(unknown, ()) if name in names), None)
    if meant is None:
        meant = next(iter(get_close_matches(unknown.lower(), names, n=1)), None)
    if meant == "commit_properties":
        return (
            f"write commit_properties=CommitProperties({_FIELDS.get(unknown, '...')}), of the package cm_delta_dagster"
        )
    if meant is not None:
        return f"write {meant}=..."
    return f"its arguments are {', '.join(names)}" if names else "it takes no arguments"
