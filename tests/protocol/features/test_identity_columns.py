"""Arithmetic of identity columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, InvalidDataError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.identity_columns import (
    HIGH_WATER_MARK,
    START,
    STEP,
    Identity,
    IdentityColumn,
    check_identity_columns,
    check_not_given,
    identity_column,
    identity_metadata,
    same_columns,
)
from cm_delta_dagster.protocol.schema.types import INTEGER, LONG, StructField, StructType, schema_to_json

SMALL = st.integers(-1000, 1000)
_IDENTITY = identity_metadata(Identity())


@pytest.mark.requirements("IDENT-4", "IDENT-5")
@given(start=SMALL, step=SMALL.filter(bool), mark=st.none() | SMALL)
def test_the_next_value_is_the_first_of_the_sequence_beyond_the_mark(start: int, step: int, mark: int | None) -> None:
    column = IdentityColumn(name="c", identity=Identity(start=start, step=step), high_water_mark=mark)
    members = [start + k * step for k in range(2100)]
    beyond = [each for each in members if mark is None or (each > mark if step > 0 else each < mark)]
    assert column.next_value == beyond[0]


@pytest.mark.requirements("IDENT-6", "IDENT-8")
@given(start=SMALL, step=SMALL.filter(bool), mark=st.none() | SMALL, value=SMALL)
def test_the_mark_moves_only_in_the_direction_of_the_step(start: int, step: int, mark: int | None, value: int) -> None:
    """Later values lie beyond ``value``, whether or not it is a member of the sequence."""
    column = IdentityColumn(name="c", identity=Identity(start=start, step=step), high_water_mark=mark)
    moved = column.further(value)
    assert moved is None or mark is None or (moved > mark if step > 0 else moved < mark)
    after = IdentityColumn(name="c", identity=column.identity, high_water_mark=mark if moved is None else moved)
    following = after.next_value
    assert following > value if step > 0 else following < value


@pytest.mark.requirements("IDENT-6", "IDENT-8")
@pytest.mark.parametrize(
    ("step", "mark", "value", "expected"),
    [
        (1, None, 4, None), (1, None, 5, 5), (1, None, 7, 7), (1, 7, 6, None), (1, 7, 7, None), (1, 7, 8, 8),
        (3, None, 5, 5), (3, None, 7, 5), (3, 5, 7, None), (3, 5, 8, 8), (3, 8, 5, None),
        (-1, None, 6, None), (-1, None, 5, 5), (-1, 4, 4, None), (-1, 4, 5, None), (-1, 4, 3, 3),
    ],
)  # fmt: skip
def test_the_mark_is_the_furthest_member_of_the_sequence_from_5(
    step: int, mark: int | None, value: int, expected: int | None
) -> None:
    """It does not move to a value that it has, or that the sequence has passed."""
    column = IdentityColumn(name="c", identity=Identity(start=5, step=step), high_water_mark=mark)
    assert column.further(value) == expected


@pytest.mark.requirements("IDENT-2", "IDENT-7")
def test_metadata_of_an_identity_column() -> None:
    metadata = identity_metadata(Identity(start=5, step=2, always=False))
    assert metadata == {START: 5, "delta.identity.step": 2, "delta.identity.allowExplicitInsert": True}
    found = identity_column(StructField("c", LONG, True, {**metadata, HIGH_WATER_MARK: 9}))
    assert found is not None and found.next_value == 11 and not found.identity.always
    for field in (StructField("c", INTEGER, True, metadata), StructField("c", LONG, True, {START: 1})):
        with pytest.raises(CorruptLogError, match="'c'"):
            identity_column(field)
    with pytest.raises(InvalidArgumentError):
        identity_metadata(Identity(step=0))
    for start, step in ((2**63, 1), (-(2**63) - 1, 1), (1, 2**63), (1, -(2**63) - 1)):
        with pytest.raises(InvalidArgumentError):
            identity_metadata(Identity(start=start, step=step))
    for start, step in ((-(2**63), 2**63 - 1), (2**63 - 1, -(2**63))):
        assert identity_metadata(Identity(start=start, step=step))[STEP] == step
    full = IdentityColumn(name="c", identity=Identity(), high_water_mark=2**63 - 1)
    with pytest.raises(InvalidDataError, match="64-bit"):
        _ = full.next_value


@pytest.mark.requirements("IDENT-2")
@pytest.mark.parametrize(
    ("schema", "partitions", "message"),
    [
        (StructType((StructField("c", LONG, True, _IDENTITY),)), ("p",), None),
        (StructType((StructField("s", StructType((StructField("c", LONG),))),)), ("s",), None),
        (StructType((StructField("c", INTEGER, True, _IDENTITY),)), (), "only top-level columns of type bigint"),
        (
            StructType((StructField("s", StructType((StructField("c", LONG, True, _IDENTITY),))),)),
            (),
            r"'s\.c'.*only top",
        ),
        (StructType((StructField("c", LONG, True, _IDENTITY),)), ("C",), "cannot be a partition column"),
        (StructType((StructField("c", LONG, True, {**_IDENTITY, "CURRENT_DEFAULT": "1"}),)), (), "has a default too"),
        (StructType((StructField("c", LONG, True, {**_IDENTITY, STEP: 0}),)), (), "the step 0"),
    ],
    ids=["ordinary", "none", "type", "nested", "partition column", "default", "step 0"],
)
def test_identity_columns_that_a_table_cannot_have_are_refused(
    schema: StructType, partitions: tuple[str, ...], message: str | None
) -> None:
    if message is None:
        check_identity_columns(schema, partitions)
        return
    with pytest.raises(InvalidArgumentError, match=message):
        check_identity_columns(schema, partitions)


@pytest.mark.requirements("IDENT-3")
def test_only_columns_that_are_always_generated_take_no_values() -> None:
    schema = StructType(
        (
            StructField("Always", LONG, True, identity_metadata(Identity())),
            StructField("default", LONG, True, identity_metadata(Identity(always=False))),
            StructField("plain", LONG),
        )
    )
    check_not_given(schema, ("default", "plain"), action="inserts")
    for names in (("always",), ("plain", "ALWAYS")):
        with pytest.raises(InvalidArgumentError, match="inserts values of 'Always'"):
            check_not_given(schema, names, action="inserts")


def test_a_write_that_moves_a_mark_leaves_the_columns_as_they_are() -> None:
    def defined(*names: str, by: tuple[str, ...] = (), **properties: object) -> Metadata:
        columns = tuple(StructField(name, LONG, metadata=properties) for name in names)
        return Metadata(id="t", schema_string=schema_to_json(StructType(columns)), partition_columns=by)

    before, mark = defined("a", "b"), "delta.identity.highWaterMark"
    assert same_columns(before, defined("a", "b", **{mark: 7}))
    assert not same_columns(before, defined("a", "b", comment="another"))
    assert not same_columns(before, defined("a", "c"))
    assert not same_columns(before, defined("a", "b", by=("a",)))
