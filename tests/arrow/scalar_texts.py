"""Random expressions whose values Arrow computes, and rows for them."""

import datetime as dt
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("b", pa.int8()),
        pa.field("sh", pa.int16()),
        pa.field("i", pa.int32()),
        pa.field("l", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("quoted name", pa.string()),
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("n", pa.timestamp("us")),
        pa.field("flag", pa.bool_()),
        pa.field("x", pa.float64()),
        pa.field("amount", pa.decimal128(9, 2)),
        pa.field("st", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.struct([pa.field("z", pa.string())]))])),
    ]
)
_TEXTS = ("", "a", "ab", "äöü", "日本語テキスト", "a b", "-", "Zz", "\U0001f600x", "e\u0301")
_MOMENTS = (
    dt.datetime(1, 1, 2),
    dt.datetime(1582, 10, 20, 1),
    dt.datetime(1900, 1, 1, 23, 59, 59, 999999),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2000, 2, 29, 12, 30),
    dt.datetime(2024, 3, 31, 1, 30),
    dt.datetime(2024, 10, 27, 0, 30, 0, 1),
    dt.datetime(2038, 1, 19, 3, 14, 8),
    dt.datetime(9999, 12, 30, 23, 0),
)
_NUMBERS = (0.0, -0.0, 0.1, 1.0, -2.5, 1e308, -1e308, 5e-324, 2.0**53, math.inf, -math.inf, math.nan)
_INTEGERS: Mapping[str, int] = {"b": 8, "sh": 16, "i": 32, "l": 64}


def rows(random_numbers: random.Random, num_rows: int = 60) -> pa.Table:
    """Rows with values at the limits of their types, and NULLs."""
    return pa.Table.from_pylist([_row(random_numbers) for _ in range(num_rows)], SCHEMA)


def _row(numbers: random.Random) -> dict[str, Any]:
    def or_null(value: Any) -> Any:
        return None if numbers.random() < 0.15 else value

    def integer(bits: int) -> int:
        edge = 2 ** (bits - 1)
        return numbers.choice([0, 1, -1, 7, -10, edge - 1, -edge, numbers.randrange(-100, 100)])

    moment = numbers.choice(_MOMENTS)
    values = {
        **{name: or_null(integer(bits)) for name, bits in _INTEGERS.items()},
        "s": or_null(numbers.choice(_TEXTS)),
        "quoted name": or_null(numbers.choice(_TEXTS)),
        "d": or_null(moment.date()),
        "t": or_null(numbers.choice(_MOMENTS).replace(tzinfo=dt.UTC)),
        "n": or_null(numbers.choice(_MOMENTS)),
        "flag": or_null(numbers.random() < 0.5),
        "x": or_null(numbers.choice(_NUMBERS)),
        "amount": or_null(numbers.randrange(-500, 500)),
        "st": or_null({"x": or_null(integer(32)), "y": or_null({"z": or_null(numbers.choice(_TEXTS))})}),
    }
    return values


class Expressions:
    """Random expressions over :data:`SCHEMA`, by the type of their values."""

    def __init__(self, numbers: random.Random, *, with_arithmetic: bool) -> None:
        self._numbers = numbers
        self._with_arithmetic = with_arithmetic

    def any(self, depth: int = 3) -> str:
        """An expression of any type."""
        return self._one_of([self.integer, self.text, self.date, self.boolean, self.number], depth)

    def integer(self, depth: int) -> str:
        if depth == 0:
            return self._numbers.choice(
                ["b", "sh", "i", "l", "st.x", "0", "1", "-3", "100", "2147483648", "-2147483648"]
            )
        choices: list[Callable[[int], str]] = [
            lambda deep: f"{self._part('year quarter month day dayofmonth')}({self.time(deep)})",
            lambda deep: f"{self._part('hour minute second')}({self.clock()})",
            lambda deep: f"{self._part('length char_length')}({self.text(deep)})",
            lambda deep: f"{self.integer(deep)} % {self._numbers.choice([1, 2, 7, 100])}",
            lambda deep: f"coalesce({self.integer(deep)}, {self.integer(deep)})",
            lambda deep: f"CASE WHEN {self.boolean(deep)} THEN {self.integer(deep)} ELSE {self.integer(deep)} END",
            lambda deep: f"if({self.boolean(deep)}, {self.integer(deep)}, {self.integer(deep)})",
            lambda deep: f"CAST({self.integer(deep)} AS BIGINT)",
        ]
        if self._with_arithmetic:
            choices += [
                lambda deep: f"({self.integer(deep)} {self._part('+ - *')} {self.integer(deep)})",
                lambda deep: f"(- {self.integer(deep)})",
            ]
        return self._one_of(choices, depth - 1)

    def number(self, depth: int) -> str:
        """Of 64 bits with a binary point."""
        if depth == 0:
            return self._numbers.choice(["x", "-x", "CAST(l AS DOUBLE)", "2.5D"])
        choices: list[Callable[[int], str]] = [
            lambda deep: f"coalesce({self.number(deep)}, {self._numbers.choice(['0.1', '7', 'l', 'x'])})",
            lambda deep: f"if({self.boolean(deep)}, {self.number(deep)}, {self.number(deep)})",
        ]
        if self._with_arithmetic:
            choices += [
                lambda deep: f"({self.number(deep)} {self._part('+ - *')} {self._operand(deep)})",
                lambda deep: f"({self._operand(deep)} {self._part('+ - * /')} {self.number(deep)})",
                lambda deep: f"({self.integer(deep)} / {self._part('2 7 i')})",
            ]
        return self._one_of(choices, depth - 1)

    def _operand(self, depth: int) -> str:
        return self._numbers.choice(["0.1", "-12.50", "-0.0", "3", self.number(depth), "l"])

    def text(self, depth: int) -> str:
        if depth == 0:
            return self._numbers.choice(["s", "`quoted name`", "st.y.z", "'x'", "''", "'é'"])
        return self._one_of(
            [
                lambda deep: f"concat({self.text(deep)}, '-', {self.text(deep)})",
                lambda deep: f"{self.text(deep)} || {self.text(deep)}",
                lambda deep: (
                    f"substring({self.text(deep)}, {self._numbers.randrange(1, 4)}, {self._numbers.randrange(4)})"
                ),
                lambda deep: f"substr({self.text(deep)}, {self._numbers.randrange(1, 4)})",
                lambda deep: f"nvl({self.text(deep)}, {self.text(deep)})",
                lambda deep: f"CAST({self._one_of([self.integer, self.boolean], deep)} AS STRING)",
                lambda deep: (
                    f"CASE WHEN {self.boolean(deep)} THEN {self.text(deep)} WHEN flag THEN 'w' ELSE {self.text(deep)} END"
                ),
            ],
            depth - 1,
        )

    def date(self, depth: int) -> str:
        return self._one_of(
            [lambda deep: f"CAST({self.time(deep)} AS DATE)", lambda deep: f"to_date({self.time(deep)})"], depth
        )

    def time(self, depth: int) -> str:
        """A date or a timestamp."""
        return self._numbers.choice(["d", "t", "n", "coalesce(d, d)", "CASE WHEN flag THEN t ELSE t END"])

    def clock(self) -> str:
        """A timestamp."""
        return self._numbers.choice(["t", "n"])

    def boolean(self, depth: int) -> str:
        if depth <= 0:
            simple = [
                "flag",
                "true",
                "s IS NULL",
                "i > 1",
                "d < to_date(n)",
                "amount = amount",
                "d >= DATE '1970-01-01'",
            ]
            times = ["t < TIMESTAMP '2024-03-31 01:30:00Z'", "n = TIMESTAMP_NTZ '1900-01-01 23:59:59.999999'"]
            return self._numbers.choice([*simple, *times])
        operator = self._part("= <> < <= > >= <=>")
        return self._one_of(
            [
                lambda deep: f"({self.integer(deep)} {operator} {self.integer(deep)})",
                lambda deep: f"({self.text(deep)} {operator} {self.text(deep)})",
                lambda deep: (
                    f"({self.number(deep)} {operator} {self._numbers.choice(['0', '2.5', 'l', self.number(deep)])})"
                ),
                lambda deep: f"x {self._part('IN NOT-IN').replace('-', ' ')} (1, 0.0, -x)",
                lambda deep: f"({self.date(deep)} {operator} {self.date(deep)})",
                lambda deep: f"{self.text(deep)} {self._part('LIKE NOT-LIKE').replace('-', ' ')} {self._pattern()}",
                lambda deep: f"({self.any(deep)}) IS {self._part('NULL NOT-NULL').replace('-', ' ')}",
                lambda deep: (
                    f"{self.integer(0)} {self._part('IN NOT-IN').replace('-', ' ')} (1, {self.integer(0)}, 100)"
                ),
                lambda deep: f"{self.integer(0)} BETWEEN {self.integer(0)} AND {self.integer(0)}",
                lambda deep: f"({self.boolean(0)} {self._part('AND OR')} {self.boolean(0)})",
                lambda deep: f"(NOT {self.boolean(deep)})",
            ],
            depth - 1,
        )

    def _pattern(self) -> str:
        """A pattern of LIKE, perhaps with an escape."""
        escape = self._numbers.choice(["", "", "#"])
        pieces = ["a", "b", "%", "_", "ä", " ", ".", "\U0001f600", "-", f"{escape}%", f"{escape}_", escape * 2]
        pattern = "".join(self._numbers.choice(pieces) for _ in range(self._numbers.randrange(5)))
        return f"'{pattern}' ESCAPE '{escape}'" if escape else f"'{pattern}'"

    def _part(self, words: str) -> str:
        return self._numbers.choice(words.split())

    def _one_of(self, choices: Sequence[Callable[[int], str]], depth: int) -> str:
        return self._numbers.choice(choices)(max(depth, 0))
