"""Tables as lists of versions, each a multiset of rows, and what every call does to them.

A row has a number that it keeps while it is updated, moved or restored, as a row id stays. A call has an :class:`Effect`, which is
computed from one version and applied to the latest one: they differ if the writer has not seen the latest version.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

from tests.api_model.conditions import Condition
from tests.api_model.steps import (
    Append,
    Assign,
    Clause,
    ColumnSpec,
    Delete,
    Merge,
    MergeKeys,
    OnTable,
    Overwrite,
    Rows,
    Update,
)
from tests.api_model.values import INTEGERS, DoesNotFitError, Value, base_type, comparable, group_key, stored

RowKey = tuple[tuple[str, str | None], ...]
Changes = Counter[tuple[str, RowKey]]

_numbers = count(1)


def next_number() -> int:
    """A number for a row that no row had."""
    return next(_numbers)


class RefusedError(Exception):
    """The call must be refused."""


class NotApplicableError(Exception):
    """The step does not fit the state, for example because an earlier step of the sequence was left out."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row. ``changed_at`` is the version that inserted it or last changed its values."""

    number: int
    values: Mapping[str, Value]
    changed_at: int = -1

    def key(self) -> RowKey:
        return row_key(self.values)


def row_key(values: Mapping[str, Value]) -> RowKey:
    return tuple(sorted((name, comparable(value)) for name, value in values.items()))


@dataclass(frozen=True)
class Version:
    """The state of a table.

    Attributes:
        columns: in order.
        changes: what the change feed of this version must have, exactly; None if only its sum is known.
        blind: whether the commit added rows and did nothing else.
        ended_ms: when the next version was committed; None for the latest one.
    """

    columns: tuple[ColumnSpec, ...]
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    rows: tuple[Row, ...]
    operation: str
    committed_ms: int
    changes: Changes | None = None
    blind: bool = False
    cluster_by: tuple[str, ...] = ()

    @cached_property
    def types(self) -> dict[str, str]:
        return {column.name: column.kind for column in self.columns}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def content(self) -> Counter[RowKey]:
        return Counter(row.key() for row in self.rows)

    def column(self, name: str) -> ColumnSpec:
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise NotApplicableError(f"there is no column {name}")
        return found

    def has(self, key: str) -> bool:
        return self.properties.get(key) == "true"

    @property
    def has_row_ids(self) -> bool:
        return self.has("delta.enableRowTracking")

    @property
    def has_change_feed(self) -> bool:
        return self.has("delta.enableChangeDataFeed")

    @property
    def is_mapped(self) -> bool:
        return self.properties.get("delta.columnMapping.mode", "none") != "none"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call changes.

    Attributes:
        removed: numbers of the rows that it deletes.
        updated: rows with new values.
        inserted: values of new rows.
        columns: the columns that the table has afterwards; None for the same.
        former: names of columns before, by their new names.
        state: changes of other attributes of the version.
        exact: whether the change feed must have exactly these changes.
    """

    operation: str
    removed: frozenset[int] = frozenset()
    updated: Mapping[int, Mapping[str, Value]] = field(default_factory=dict)
    inserted: tuple[Mapping[str, Value], ...] = ()
    columns: tuple[ColumnSpec, ...] | None = None
    former: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, object] = field(default_factory=dict)
    exact: bool = True
    blind: bool = False
    must_commit: bool | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.touched() or self.inserted or self.state or self.columns)

    def touched(self) -> frozenset[int]:
        return self.removed | frozenset(self.updated)


def applied(effect: Effect, version: Version, number: int, now_ms: int) -> Version:
    """The next version, with the version number ``number``."""
    rows: list[Row] = []
    changes: Changes = Counter()
    version = _with_columns(version, effect)
    for row in version.rows:
        if row.number in effect.removed:
            changes["delete", row.key()] += 1
        elif row.number in effect.updated:
            changed = Row(row.number, dict(effect.updated[row.number]), number)
            changes["update_preimage", row.key()] += 1
            changes["update_postimage", changed.key()] += 1
            rows.append(changed)
        else:
            rows.append(row)
    for values in effect.inserted:
        added = Row(next_number(), dict(values), number)
        changes["insert", added.key()] += 1
        rows.append(added)
    after = replace(
        version,
        rows=tuple(rows),
        operation=effect.operation,
        committed_ms=now_ms,
        changes=changes if effect.exact else None,
        blind=effect.blind,
    )
    return replace(after, **effect.state)  # type: ignore[arg-type]


def _with_columns(version: Version, effect: Effect) -> Version:
    """The version with other columns. Rows have NULL in columns that are new."""
    if effect.columns is None:
        return version
    rows = []
    for row in version.rows:
        values = {
            column.name: stored(row.values.get(effect.former.get(column.name, column.name)), column.kind)
            for column in effect.columns
        }
        rows.append(replace(row, values=values))
    return replace(version, columns=effect.columns, rows=tuple(rows))


def agrees(effect: Effect, seen: Effect, version: Version) -> bool:
    """Whether two effects of one call change the same rows of ``version`` to the same values."""
    known = {row.number: row for row in version.rows}
    if effect.removed != seen.removed or set(effect.updated) != set(seen.updated):
        return False
    same_updates = all(row_key(effect.updated[number]) == row_key(seen.updated[number]) for number in effect.updated)
    return (
        effect.touched() <= set(known)
        and same_updates
        and Counter(map(row_key, effect.inserted)) == Counter(map(row_key, seen.inserted))
    )


# --- rows that a write adds -------------------------------------------------------------------------------------------


def completed(given: Mapping[str, Value], version: Version) -> dict[str, Value]:
    """The row that a write of these values adds, with NULL, defaults and generated values. Raises RefusedError."""
    values: dict[str, Value] = {}
    for column in version.columns:
        values[column.name] = given.get(column.name, column.default)
    return checked(values, version)


def checked(values: Mapping[str, Value], version: Version) -> dict[str, Value]:
    """The values as the columns store them, with the generated ones. Raises RefusedError."""
    result: dict[str, Value] = {}
    for column in version.columns:
        value = values[column.name]
        if column.twice is not None:
            value = None if values[column.twice] is None else values[column.twice] * 2
        try:
            result[column.name] = stored(value, column.kind, in_partition=column.name in version.partition_by)
        except DoesNotFitError as error:
            raise RefusedError(str(error)) from error
    _check_nulls(result, version)
    return result


def _check_nulls(values: Mapping[str, Value], version: Version) -> None:
    for column in version.columns:
        if values[column.name] is None and not column.nullable:
            raise RefusedError(f"{column.name} is NOT NULL")


def check_columns(rows: Rows, version: Version) -> None:
    """The columns of ``rows`` must be columns of the table with the same type, and none that the table computes."""
    for name, kind in rows.columns:
        column = next((item for item in version.columns if item.name == name), None)
        if column is None:
            raise RefusedError(f"the table has no column {name}")
        if column.kind != kind or column.twice is not None or column.numbered:
            raise NotApplicableError(f"the rows do not fit {column}")


def check_partitions(rows: Rows, version: Version) -> None:
    """An append or overwrite gives the partition columns that have no value of their own. Raises RefusedError."""
    for name in version.partition_by:
        column = version.column(name)
        has_own_value = column.default is not None or column.twice is not None or column.numbered
        if name not in rows.names and not has_own_value:
            raise RefusedError(f"the rows lack the partition column {name}")


def new_rows(rows: Rows, version: Version) -> tuple[dict[str, Value], ...]:
    check_columns(rows, version)
    return tuple(completed(values, version) for values in rows.dicts())


# --- effects ----------------------------------------------------------------------------------------------------------


def effect_of(step: OnTable, version: Version) -> Effect:
    """What a write does to a version. Raises RefusedError, NotApplicableError."""
    for kind, function in _EFFECTS.items():
        if isinstance(step, kind):
            _check_append_only(effect := function(step, version), version)
            return effect
    raise TypeError(f"{step} writes no rows")


def _check_append_only(effect: Effect, version: Version) -> None:
    if version.has("delta.appendOnly") and effect.touched():
        raise RefusedError("the table is append-only")


def _append(step: Append, version: Version) -> Effect:
    check_partitions(step.rows, version)
    target = version if step.schema_mode == "strict" else _evolved(step.rows, version)
    inserted = new_rows(step.rows, target)
    columns = None if target is version else target.columns
    return Effect("WRITE", inserted=inserted, columns=columns, blind=columns is None)


def _evolved(rows: Rows, version: Version) -> Version:
    """The version with the columns of ``rows`` that it lacks."""
    new = tuple(
        ColumnSpec(name, kind, identity=next_number()) for name, kind in rows.columns if name not in version.types
    )
    return replace(version, columns=(*version.columns, *new)) if new else version


def _overwrite(step: Overwrite, version: Version) -> Effect:
    check_partitions(step.rows, version)
    inserted = new_rows(step.rows, version)
    if step.where is not None:
        if not all(step.where.holds(values) for values in inserted):
            raise RefusedError("a row does not satisfy the condition")
        gone = [row for row in version.rows if step.where.holds(row.values)]
    elif step.dynamic:
        places = {_place(values, version) for values in inserted}
        gone = [row for row in version.rows if _place(row.values, version) in places]
    elif step.replace_using:
        keys = [_keys_of(values, step.replace_using) for values in inserted]
        if any(None in key for key in keys):
            raise RefusedError("a key is NULL")
        gone = [row for row in version.rows if _keys_of(row.values, step.replace_using) in keys]
    else:
        gone = list(version.rows)
    return Effect("WRITE", removed=frozenset(row.number for row in gone), inserted=inserted)


def _place(values: Mapping[str, Value], version: Version) -> tuple[object, ...]:
    return tuple(group_key(values[name]) for name in version.partition_by)


def _keys_of(values: Mapping[str, Value], names: Iterable[str]) -> tuple[object, ...]:
    return tuple(group_key(values[name]) for name in names)


def _delete(step: Delete, version: Version) -> Effect:
    return Effect("DELETE", removed=_matching(step.where, version), must_commit=False)


def _matching(where: Condition | None, version: Version) -> frozenset[int]:
    if where is not None and not where.columns() <= set(version.names):
        raise NotApplicableError("the condition names columns that the table lacks")
    return frozenset(row.number for row in version.rows if where is None or where.holds(row.values))


def _update(step: Update, version: Version) -> Effect:
    found = _matching(step.where, version)
    updated = {
        row.number: checked(assigned(step.assignments, row.values, None, version), version)
        for row in version.rows
        if row.number in found
    }
    return Effect("UPDATE", updated=updated, must_commit=False)


def assigned(
    assignments: Sequence[Assign], row: Mapping[str, Value], source: Mapping[str, Value] | None, version: Version
) -> dict[str, Value]:
    """The row after the assignments, whose columns are of ``source`` if there is one."""
    values = dict(row)
    origin = row if source is None else source
    for assign in assignments:
        column = version.column(assign.target)
        if column.twice is not None or column.numbered:
            raise NotApplicableError(f"{assign.target} is computed")
        if assign.how == "literal":
            values[assign.target] = assign.value
        elif assign.how == "column":
            if assign.value not in origin:
                raise NotApplicableError(f"there is no column {assign.value}")
            values[assign.target] = origin[assign.value]
        else:
            before = row[assign.target]
            values[assign.target] = None if before is None else _sum(before, assign.value, column.kind)
    return values


def _sum(left: int, right: int, kind: str) -> int:
    """The sum of a column and an int literal, which Spark computes in the wider of the two types."""
    limit = 2 ** (max(INTEGERS[base_type(kind)], 32) - 1)
    if not -limit <= left + right < limit:
        raise RefusedError("the sum overflows")
    return left + right


def _merge_keys(step: MergeKeys, version: Version) -> Effect:
    check_columns(step.rows, version)
    # Only the rows of the source that are written must have a value in each NOT NULL column.
    nullable = replace(version, columns=tuple(replace(column, nullable=True) for column in version.columns))
    sources = new_rows(step.rows, nullable)
    given = step.rows.dicts()
    keys = [_keys_of(values, step.keys) for values in sources]
    complete = [key for key in keys if None not in key]
    if len(set(complete)) < len(complete):
        raise RefusedError("a key occurs twice")
    names = [name for name, _ in step.rows.columns]
    where = step.where
    if where is not None and not all(where.holds(values) for values in sources):
        raise RefusedError("a row of the source is outside of the slice")
    if any(
        after[key] is None and before[key] is not None
        for after, before in zip(sources, given, strict=True)
        for key in step.keys
    ):
        raise RefusedError("a key is the empty text in a partition column")
    updated: dict[int, Mapping[str, Value]] = {}
    removed: set[int] = set()
    matched: set[int] = set()
    for row in version.rows:
        if where is not None and not where.holds(row.values):
            continue
        key = _keys_of(row.values, step.keys)
        position = keys.index(key) if None not in key and key in keys else None
        if position is None:
            if step.mode == "delete_unmatched":
                removed.add(row.number)
            continue
        matched.add(position)
        if step.mode != "insert_only":
            updated[row.number] = checked({**row.values, **{name: sources[position][name] for name in names}}, version)
    inserts = () if step.mode == "update_only" else [n for n in range(len(given)) if n not in matched]
    for n in inserts:
        _check_nulls(sources[n], version)
    return Effect("MERGE", removed=frozenset(removed), updated=updated, inserted=tuple(sources[n] for n in inserts))


def _merge(step: Merge, version: Version) -> Effect:
    for name, kind in step.rows.columns:
        if version.column(name).kind != kind:
            raise NotApplicableError("the source does not fit")
    computed = any(column.twice or column.numbered for column in version.columns)
    if computed and any(clause.action.endswith("_all") for clause in step.clauses):
        raise NotApplicableError("the source would have to have the computed columns")
    sources = step.rows.dicts()
    empty_is_null = _compared_as_stored(step, version)

    def is_pair(row: Mapping[str, Value], source: Mapping[str, Value]) -> bool:
        if step.and_target is not None and not step.and_target.holds(row):
            return False
        compared = {
            key: stored(source[key], version.types[key], in_partition=key in empty_is_null) for key in step.keys
        }
        left, right = _keys_of(row, step.keys), _keys_of(compared, step.keys)
        return left == right and (step.null_safe or None not in left)

    removed: set[int] = set()
    updated: dict[int, Mapping[str, Value]] = {}
    met: set[int] = set()
    for row in version.rows:
        partners = [n for n, source in enumerate(sources) if is_pair(row.values, source)]
        met |= set(partners)
        if len(partners) > 1 and _needs_one(step.clauses):
            raise RefusedError("several rows of the source match a row")
        source = sources[partners[0]] if partners else None
        kind = "matched" if partners else "not_matched_by_source"
        clause = _first(step.clauses, kind, row.values, source)
        if clause is None:
            continue
        if clause.action == "delete":
            removed.add(row.number)
        else:
            updated[row.number] = checked(_set_by(clause, row.values, source, version), version)
    inserted = []
    for number, source in enumerate(sources):
        clause = None if number in met else _first(step.clauses, "not_matched", None, source)
        if clause is not None:
            inserted.append(completed(_inserted_by(clause, source, version), version))
    return Effect("MERGE", removed=frozenset(removed), updated=updated, inserted=tuple(inserted))


def _compared_as_stored(step: Merge, version: Version) -> frozenset[str]:
    """The keys of the source that are compared as partition columns store them, because a clause stores them there."""

    def stores(clause: Clause, key: str) -> bool:
        if clause.action == "delete" or clause.kind == "not_matched_by_source":
            return False
        return clause.action.endswith("_all") or Assign(key, "column", key) in clause.assignments

    return frozenset(
        key for key in step.keys if key in version.partition_by and any(stores(clause, key) for clause in step.clauses)
    )


def _needs_one(clauses: Sequence[Clause]) -> bool:
    matched = [clause for clause in clauses if clause.kind == "matched"]
    return bool(matched) and not (len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None)


def _first(
    clauses: Sequence[Clause], kind: str, row: Mapping[str, Value] | None, source: Mapping[str, Value] | None
) -> Clause | None:
    for clause in clauses:
        subject = source if clause.on_source else row
        if clause.kind == kind and (
            clause.condition is None or (subject is not None and clause.condition.holds(subject))
        ):
            return clause
    return None


def _set_by(
    clause: Clause, row: Mapping[str, Value], source: Mapping[str, Value] | None, version: Version
) -> dict[str, Value]:
    if clause.action == "update_all" and source is not None:
        return {**row, **source}
    return assigned(clause.assignments, row, source, version)


def _inserted_by(clause: Clause, source: Mapping[str, Value], version: Version) -> dict[str, Value]:
    if clause.action == "insert_all":
        return dict(source)
    empty: dict[str, Value] = {}
    for assign in clause.assignments:
        empty[assign.target] = assign.value if assign.how == "literal" else source[assign.value]
    return empty


_EFFECTS: Mapping[type[OnTable], Callable[..., Effect]] = {
    Append: _append,
    Overwrite: _overwrite,
    Delete: _delete,
    Update: _update,
    MergeKeys: _merge_keys,
    Merge: _merge,
}


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TableModel:
    """A table: its versions by number, and what is known of its files.

    Attributes:
        uncertain: versions whose files or commits may have been cleaned up: a read may be refused, and is never wrong.
        row_ids: the row id of each row that has been seen.
        stream: offset of a stream, the version up to which it has read, and the columns of that version.
        history_since_ms: commits before this time may be missing from the history.
    """

    versions: dict[int, Version]
    uncertain: set[int] = field(default_factory=set)
    row_ids: dict[int, int] = field(default_factory=dict)
    row_of_id: dict[int, int] = field(default_factory=dict)
    history_since_ms: int = 0
    stream: tuple[str, int, tuple[ColumnSpec, ...]] | None = None
    is_clone: bool = False

    @property
    def number(self) -> int:
        return max(self.versions)

    @property
    def latest(self) -> Version:
        return self.versions[self.number]

    def commit(self, effect: Effect, now_ms: int, *, commits: int = 1) -> None:
        """Add versions: the last one has the effect, those before it change no row."""
        for _ in range(commits - 1):
            before = self.latest
            self.versions[self.number + 1] = replace(
                before, committed_ms=now_ms, operation="", changes=Counter(), blind=False
            )
        number = self.number + 1
        self.versions[number] = applied(effect, self.latest, number, now_ms)

    def ended_by(self, time_ms: int) -> set[int]:
        """The versions that were not the latest one any more at that time."""
        return {
            number
            for number in self.versions
            if number < self.number and self.versions[number + 1].committed_ms <= time_ms
        }

    def mapping_removals(self, first: int, last: int) -> list[int]:
        """The versions after ``first`` up to ``last`` that have no column mapping, unlike the version before them."""
        return [
            number
            for number in range(first + 1, last + 1)
            if self.versions[number - 1].is_mapped and not self.versions[number].is_mapped
        ]

    def certain(self) -> list[int]:
        return [number for number in self.versions if number not in self.uncertain]
