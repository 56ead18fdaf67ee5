"""Identity columns (protocol heading "Identity Columns"): numbers that the writer assigns.

The values are ``start + k * step`` and beyond the high-water mark in the direction of ``step``. The commit that writes them also
writes the furthest value to the metadata of the field.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, InvalidDataError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT, IDENTITY_PREFIX
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    StructField,
    StructType,
    data_type_text,
    parse_schema,
    schema_to_json,
    walk_fields,
)

START = IDENTITY_PREFIX + "start"
STEP = IDENTITY_PREFIX + "step"
HIGH_WATER_MARK = IDENTITY_PREFIX + "highWaterMark"
ALLOW_EXPLICIT_INSERT = IDENTITY_PREFIX + "allowExplicitInsert"

_MIN, _MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """How an identity column is numbered.

    Attributes:
        start: the first value.
        step: difference between successive values; not 0.
        always: whether the values always come from the table; if not, a write may give its own.
    """

    start: int = 1
    step: int = 1
    always: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityColumn:
    """An identity column of a table; ``high_water_mark`` is None until a value was generated."""

    name: str
    identity: Identity
    high_water_mark: int | None = None

    @property
    def next_value(self) -> int:
        """The first value that the next write assigns.

        Raises:
            InvalidDataError: it would not fit into 64 bits.
        """
        start, step = self.identity.start, self.identity.step
        value = start
        if self.high_water_mark is not None:
            passed = (self.high_water_mark - start) // step  # Rounds towards the start for both signs of the step.
            value = start + max(passed + 1, 0) * step
        self.check_value(value)
        return value

    def check_value(self, value: int) -> None:
        """Refuse a value of the sequence that does not fit into 64 bits.

        Raises:
            InvalidDataError: the column has used all its values.
        """
        if not _MIN <= value <= _MAX:
            raise InvalidDataError(
                f"The identity column {self.name!r} has used all 64-bit values of its sequence (start "
                f"{self.identity.start}, step {self.identity.step}, high-water mark "
                f"{self.high_water_mark}). Nothing was committed. Rows need another key."
            )

    def further(self, value: int) -> int | None:
        """The high-water mark after ``value`` was generated or found; None if it does not move.

        A value between two members of the sequence counts as the member before it.
        """
        start, step = self.identity.start, self.identity.step
        steps = (value - start) // step
        if steps < 0:
            return None
        member = start + steps * step
        mark = self.high_water_mark
        return member if mark is None or (member > mark if step > 0 else member < mark) else None


def identity_metadata(identity: Identity) -> dict[str, object]:
    """The metadata of a new identity column.

    Raises:
        InvalidArgumentError: the step is 0, or a number does not fit into 64 bits.
    """
    if identity.step == 0:
        raise InvalidArgumentError(
            "An identity column cannot have the step 0: all its values would be equal. Use another step."
        )
    if not (_MIN <= identity.start <= _MAX and _MIN <= identity.step <= _MAX):
        raise InvalidArgumentError("Start and step of an identity column must be 64-bit integers.")
    return {START: identity.start, STEP: identity.step, ALLOW_EXPLICIT_INSERT: not identity.always}


def identity_column(item: StructField) -> IdentityColumn | None:
    """The identity column that the metadata of a field defines; None if it defines none.

    Raises:
        CorruptLogError: the metadata is not complete, or the column is not a bigint.
    """
    if not any(key.startswith(IDENTITY_PREFIX) for key in item.metadata):
        return None
    start, step = item.metadata.get(START), item.metadata.get(STEP)
    mark, explicit = item.metadata.get(HIGH_WATER_MARK), item.metadata.get(ALLOW_EXPLICIT_INSERT)
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in (start, step, mark or 0))
    if not whole or step == 0 or not isinstance(explicit, bool) or item.type != LONG:
        raise CorruptLogError(
            f"The identity column {item.name!r} cannot be numbered: it is of type {data_type_text(item.type)} and has start "
            f"{start!r}, step {step!r}, high-water mark {mark!r} and allowExplicitInsert {explicit!r}. Nothing was written."
        )
    assert isinstance(start, int) and isinstance(step, int) and (mark is None or isinstance(mark, int))
    identity = Identity(start=start, step=step, always=not explicit)
    return IdentityColumn(name=item.name, identity=identity, high_water_mark=mark)


def identity_columns(schema: StructType) -> dict[str, IdentityColumn]:
    """The identity columns by name. Raises CorruptLogError as :func:`identity_column`."""
    return {item.name: column for item in schema.fields if (column := identity_column(item)) is not None}


def check_identity_columns(schema: StructType, partition_columns: tuple[str, ...]) -> None:
    """Refuse identity columns that a table cannot have.

    Raises:
        InvalidArgumentError: one is nested, not a bigint, a partition column, or has a default or the step 0.
    """
    partitions = {name.lower() for name in partition_columns}
    for path, item in walk_fields(schema):
        if not any(key.startswith(IDENTITY_PREFIX) for key in item.metadata):
            continue
        name = ".".join(path)
        if len(path) > 1 or item.type != LONG:
            raise InvalidArgumentError(
                f"Column {name!r} of type {data_type_text(item.type)} cannot be an identity column; only top-level columns of type "
                "bigint can. Nothing was written."
            )
        if item.name.lower() in partitions:
            raise InvalidArgumentError(
                f"The identity column {name!r} cannot be a partition column: each partition would hold one row. Nothing "
                "was written."
            )
        if CURRENT_DEFAULT in item.metadata:
            raise InvalidArgumentError(
                f"The identity column {name!r} has a default too. Nothing was written. Choose one of the two."
            )
        if item.metadata.get(STEP) == 0:
            identity_metadata(Identity(step=0))
        try:
            identity_column(item)
        except CorruptLogError as error:
            raise InvalidArgumentError(
                f"Column {name!r} is not a complete identity column; it needs {START}, {STEP} and {ALLOW_EXPLICIT_INSERT}."
            ) from error


def check_not_given(schema: StructType, names: tuple[str, ...], *, action: str) -> None:
    """Refuse values for identity columns that are always generated.

    Args:
        names: the columns for which a write gives values.
        action: the write, for the message, e.g. ``inserts``.

    Raises:
        InvalidArgumentError: names the column.
    """
    lowered = {name.lower() for name in names}
    for name, column in identity_columns(schema).items():
        if column.identity.always and name.lower() in lowered:
            raise InvalidArgumentError(
                f"The write {action} values of {name!r}, an identity column that is always generated. Nothing was written. Leave "
                "the column out."
            )


def same_columns(before: Metadata, after: Metadata) -> bool:
    """Whether two definitions of a table have the same columns and partition columns; high-water marks do not count."""
    if before.partition_columns != after.partition_columns:
        return False
    return before.schema_string == after.schema_string or _without_marks(before) == _without_marks(after)


def _without_marks(metadata: Metadata) -> tuple[StructField, ...]:
    return tuple(
        replace(item, metadata={key: value for key, value in item.metadata.items() if key != HIGH_WATER_MARK})
        for item in parse_schema(metadata.schema_string).fields
    )


def with_furthest_marks(current: StructType, new: StructType) -> StructType:
    """``new`` with the high-water marks of ``current`` where they are further in the direction of the step.

    The column of ``current`` is the one of the same name, and the one of the same name in files, which a renamed column keeps.
    """
    by_name = {item.name.lower(): item.metadata.get(HIGH_WATER_MARK) for item in current.fields}
    in_files = {_name_in_files(item): item.metadata.get(HIGH_WATER_MARK) for item in current.fields}
    return StructType(
        tuple(
            _with_furthest(item, (by_name.get(item.name.lower()), in_files.get(_name_in_files(item))))
            for item in new.fields
        )
    )


def with_marks_kept(current: Metadata, new: Metadata) -> Metadata:
    """``new`` with :func:`with_furthest_marks` of its columns."""
    if HIGH_WATER_MARK not in current.schema_string or new.schema_string == current.schema_string:
        return new
    schema = parse_schema(new.schema_string)
    kept = with_furthest_marks(parse_schema(current.schema_string), schema)
    return new if kept == schema else replace(new, schema_string=schema_to_json(kept))


def _name_in_files(item: StructField) -> str:
    return str(item.metadata.get(PHYSICAL_NAME, item.name)).lower()


def _with_furthest(item: StructField, marks: Iterable[object]) -> StructField:
    step, own = item.metadata.get(STEP), item.metadata.get(HIGH_WATER_MARK)
    known = [mark for mark in (own, *marks) if isinstance(mark, int)]
    if not isinstance(step, int) or not known:
        return item
    furthest = max(known) if step > 0 else min(known)
    return item if furthest == own else replace(item, metadata={**item.metadata, HIGH_WATER_MARK: furthest})


def with_high_water_marks(schema: StructType, marks: Mapping[str, int]) -> StructType:
    """The schema with new high-water marks of identity columns, by name."""
    return StructType(
        tuple(
            replace(item, metadata={**item.metadata, HIGH_WATER_MARK: marks[item.name]}) if item.name in marks else item
            for item in schema.fields
        )
    )


def updated_identity(statement: str, name: str) -> InvalidArgumentError:
    """The error for an UPDATE that sets an identity column.

    Args:
        statement: or the clause, for the message.
    """
    return InvalidArgumentError(
        f"{statement} sets the identity column {name!r}, which is never updated. Nothing was written. Leave the column out."
    )
