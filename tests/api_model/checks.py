"""What must hold after each step, and at the end: readers, history, row ids, change feed, doctor."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.api_model import steps
from tests.api_model.driver import CmDeltaError
from tests.api_model.model import RowKey, TableModel, Version, row_key
from tests.api_model.values import Value
from tests.api_model.world import FaultError, World

READERS = ("arrow", "spark", "duckdb", "polars")
_SPARK_EVERY = 5
_CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def compare(what: str, found: Counter[RowKey], expected: Counter[RowKey]) -> None:
    if found != expected:
        more = [dict(key) for key in (found - expected).elements()]
        missing = [dict(key) for key in (expected - found).elements()]
        raise FaultError(f"{what}: too many {more[:5]}, missing {missing[:5]}")


def counted(rows: Iterable[Mapping[str, Value]]) -> Counter[RowKey]:
    return Counter(map(row_key, rows))


def after_step(world: World) -> None:
    """Cheap checks of every table that the step changed, and dear ones now and then."""
    number = len(world.done)
    step = world.done[-1]
    names = _names_of(step) & set(world.tables)
    if world.driver.names() != set(world.tables):
        raise FaultError(f"tables are {world.driver.names()}, not {set(world.tables)}")
    for name in names:
        model = world.tables[name]
        client = number % 2
        latest = world.driver.version(name, client)
        if latest != model.number:
            raise FaultError(f"{name} has the version {latest}, not {model.number}, for client {client}")
        read(world, name, model, model.number, "arrow", client)
        if (count := world.driver.count(name)) != len(model.latest.rows):
            raise FaultError(f"{name} has {count} rows by its statistics, not {len(model.latest.rows)}")
        _history(world, name, model)
        _changes(world, name, model, model.number, "arrow")
        _row_ids(world, name, model, model.number, "arrow")
        if number % _SPARK_EVERY == 0:
            read(world, name, model, model.number, "spark", client)
            _row_ids(world, name, model, model.number, "spark")
            _changes(world, name, model, model.number, "spark")
            older = model.certain()[number % len(model.certain())]
            for reader in ("arrow", "duckdb", "polars"):
                read(world, name, model, older, reader, client)


def _names_of(step: Any) -> set[str]:
    names = {getattr(step, "table", ""), getattr(step, "to", "")}
    if isinstance(step, steps.Begin):
        names |= {write.table for write in step.writes}
    if isinstance(step, steps.Commit | steps.Abandon | steps.Decide | steps.PassTime):
        return {"a", "b", "c", "d"}
    return names


def at_end(world: World) -> None:
    """All versions of all tables by all readers, the whole change feed, and doctor."""
    for name, model in world.tables.items():
        for number in sorted(model.versions):
            readers = READERS if number in (model.number, model.number // 2) else ("arrow", "duckdb", "polars")
            for reader in readers:
                read(world, name, model, number, reader, 0)
            _changes(world, name, model, number, "arrow")
            _row_ids(world, name, model, number, "arrow")
        _range_of_changes(world, name, model)
        findings = world.driver.doctor(name, deep=True)
        if findings:
            raise FaultError(f"doctor of {name}: {findings}")


def read(world: World, name: str, model: TableModel, number: int, reader: str, client: int) -> None:
    """A version as a reader sees it."""
    version = model.versions[number]
    try:
        found = world.driver.rows(name, reader, version=number, client=client)
        names = world.driver.schema(name, number, client)
    except CmDeltaError as error:
        if number in model.uncertain:
            return
        raise FaultError(f"{reader} cannot read version {number} of {name}: {type(error).__name__}: {error}") from error
    if tuple(names) != version.names:
        raise FaultError(f"version {number} of {name} has the columns {names}, not {version.names}")
    compare(f"{reader} reads version {number} of {name}", counted(known(found, version)), shown(version))


def known(rows: Sequence[Mapping[str, Value]], version: Version) -> list[dict[str, Value]]:
    """The rows that a reader returned without identity values, which are only checked to be there and to be unique."""
    numbered = [column.name for column in version.columns if column.numbered]
    for name in numbered:
        values = [row[name] for row in rows]
        if None in values or len(set(values)) < len(values):
            raise AssertionError(f"identity values {values}")
    return [{name: value for name, value in row.items() if name not in numbered} for row in rows]


def shown(version: Version) -> Counter[RowKey]:
    """The rows of a version without identity values."""
    numbered = {column.name for column in version.columns if column.numbered}
    if not numbered:
        return version.content
    return counted({n: v for n, v in row.values.items() if n not in numbered} for row in version.rows)


def released(world: World, model: TableModel, path: str) -> None:
    """A released table, read by its path."""
    found = known(world.driver.path_rows(path), model.latest)
    compare(f"by path {path}", counted(found), shown(model.latest))


def condition(world: World, step: steps.Read, model: TableModel, number: int) -> None:
    """The rows of a condition, by every reader that can evaluate it."""
    version = model.versions[number]
    text = step.where.sql(version.types)
    names = [column.name for column in version.columns if not column.numbered]
    rows = [row.values for row in version.rows if step.where.holds(row.values)]
    expected = counted({name: row[name] for name in names} for row in rows)
    for reader in READERS:
        try:
            found = world.driver.rows(step.table, reader, version=number, where=text, names=names)
        except CmDeltaError as error:
            if reader == "spark" or "Spark" not in str(error):
                raise FaultError(f"{reader} cannot read where {text}: {type(error).__name__}: {error}") from error
            continue
        compare(f"{reader} reads version {number} of {step.table} where {text}", counted(found), expected)
        if (
            reader == "arrow"
            and number == model.number
            and (count := world.driver.count(step.table, text)) != len(rows)
        ):
            raise FaultError(f"{step.table} has {count} rows where {text}, not {len(rows)}")


def streamed(
    world: World, step: steps.Stream, model: TableModel, found: list[dict[str, Value]], between: list[int] | None
) -> None:
    """The rows of a stream: those of the version at which it begins, then the rows that commits add that change none."""
    if between is None:
        compare(f"{step} begins", counted(found), model.latest.content)
        return
    expected: Counter[RowKey] = Counter()
    for number in between:
        version = model.versions[number]
        if version.columns != model.latest.columns or version.operation == "RESTORE" or version.changes is None:
            return
        kinds = {kind for kind, _ in version.changes}
        if kinds == {"insert"}:
            expected.update({key: amount for (_, key), amount in version.changes.items()})
    compare(f"{step} continues at {between}", counted(found), expected)


def _history(world: World, name: str, model: TableModel) -> None:
    found = world.driver.operations(name)
    expected = {
        number
        for number, version in model.versions.items()
        if version.committed_ms > model.history_since_ms or number == model.number
    }
    if not expected <= set(found) <= set(model.versions):
        raise FaultError(f"the history of {name} has the versions {sorted(found)}, not {sorted(expected)}")
    for number in expected:
        operation = model.versions[number].operation
        if operation and found[number] != operation:
            raise FaultError(f"the history of {name} says {found[number]} of version {number}, not {operation}")


def _changes(world: World, name: str, model: TableModel, number: int, reader: str) -> None:
    """The change feed of one version is the difference to the one before."""
    version = model.versions[number]
    if not version.has_change_feed or number - 1 not in model.versions or number in model.uncertain:
        return
    before = model.versions[number - 1]
    if number - 1 in model.uncertain or any(column.numbered for column in version.columns):
        return
    try:
        found = world.driver.changes(name, number, number, reader)
    except CmDeltaError as error:
        if version.columns != model.latest.columns or version.columns != before.columns:
            return
        raise FaultError(
            f"no changes of version {number} of {name} by {reader}: {type(error).__name__}: {error}"
        ) from error
    plain = [(row["_change_type"], {k: v for k, v in row.items() if k not in _CHANGE_COLUMNS}) for row in found]
    if version.columns != model.latest.columns or version.columns != before.columns:
        return
    kinds = Counter((kind, row_key(row)) for kind, row in plain)
    if version.changes is not None and kinds != version.changes:
        more = [(kind, dict(key)) for kind, key in (kinds - version.changes).elements()]
        missing = [(kind, dict(key)) for kind, key in (version.changes - kinds).elements()]
        raise FaultError(f"changes of version {number} of {name} by {reader}: too many {more}, missing {missing}")
    rows = Counter(before.content)
    rows.subtract(row_key(row) for kind, row in plain if kind in ("delete", "update_preimage"))
    rows.update(row_key(row) for kind, row in plain if kind in ("insert", "update_postimage"))
    if any(amount < 0 for amount in rows.values()) or +rows != version.content:
        raise FaultError(f"changes of version {number} of {name} by {reader} are not the difference: {plain}")


def _range_of_changes(world: World, name: str, model: TableModel) -> None:
    """The change feed of all versions since it was enabled, by both readers, leads from the first to the latest version."""
    first = model.number
    while (
        first - 1 in model.certain()
        and model.versions[first].has_change_feed
        and model.versions[first - 1].columns == model.latest.columns
    ):
        first -= 1
    if first == model.number or any(column.numbered for column in model.latest.columns):
        return
    for reader in ("arrow", "spark"):
        found = _all_changes(world, name, model, first + 1, reader)
        rows = Counter(model.versions[first].content)
        for row in found:
            values = {key: value for key, value in row.items() if key not in _CHANGE_COLUMNS}
            rows[row_key(values)] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        if any(amount < 0 for amount in rows.values()) or +rows != model.latest.content:
            raise FaultError(f"changes of {name} since version {first + 1} by {reader} are not the difference: {found}")


def _all_changes(world: World, name: str, model: TableModel, first: int, reader: str) -> Sequence[Mapping[str, Value]]:
    """The changes since version ``first``. Changes before column mapping was removed are not read with a schema after it."""
    removals = model.mapping_removals(first, model.number)
    if not removals or model.latest.is_mapped:
        return world.driver.changes(name, first, model.number, reader)
    if world.error_of(lambda: world.driver.changes(name, first, model.number, reader)) is None:
        raise FaultError(f"{reader} reads changes of {name} since {first} across the removal of column mapping")
    ranges = zip([first, *removals], [*(number - 1 for number in removals), model.number], strict=True)
    return [row for start, end in ranges for row in world.driver.changes(name, start, end, reader)]


def _row_ids(world: World, name: str, model: TableModel, number: int, reader: str) -> None:
    """Every row has the id that it had when it was first seen; no two rows ever share one."""
    version = model.versions[number]
    if not version.has_row_ids or number in model.uncertain or any(column.numbered for column in version.columns):
        return
    rows = world.driver.tracked_rows(name, number, reader)
    by_key: dict[RowKey, set[int]] = {}
    ids: set[int] = set()
    for row in rows:
        row_id = row.pop("_row_id")
        row.pop("_row_commit_version")
        if row_id is None or row_id in ids:
            raise FaultError(f"row id {row_id} of version {number} of {name} is missing or not unique ({reader})")
        ids.add(row_id)
        by_key.setdefault(row_key(row), set()).add(row_id)
    for key in version.content:
        numbers = [row.number for row in version.rows if row.key() == key]
        free = set(by_key.get(key, ()))
        for row_number in numbers:
            known = model.row_ids.get(row_number)
            if known is not None and known not in free:
                raise FaultError(
                    f"row {dict(key)} of version {number} of {name} had the id {known}, now {free} ({reader})"
                )
            free.discard(known if known is not None else -1)
        for row_number in numbers:
            if row_number not in model.row_ids and free:
                row_id = free.pop()
                if row_id in model.row_of_id:
                    raise FaultError(f"row id {row_id} of version {number} of {name} belonged to another row")
                model.row_ids[row_number] = row_id
                model.row_of_id[row_id] = row_number
