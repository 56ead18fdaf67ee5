"""Literals of SQL expressions whose values are certain without an engine (protocol heading "Generated Columns")."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sqlglot import exp

from cm_delta_dagster.protocol.predicates.scalars import LiteralValue, Scalar, ScalarCall, ScalarOperation
from cm_delta_dagster.protocol.predicates.sql_literals import NotUnderstoodError, date_of, moment_of
from cm_delta_dagster.protocol.predicates.sql_strings import like_pattern, like_regex
from cm_delta_dagster.protocol.schema.types import (
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

_BITS: Mapping[DataType, int] = {INTEGER: 32, LONG: 64}
_DIGITS = re.compile(r"\d+", re.ASCII)
_FRACTION = re.compile(r"\d*\.\d*", re.ASCII)
_MOST_DIGITS = 38
_MOST_LETTERS = 200


def number_literal(text: str, sign: int) -> LiteralValue:
    """An integer, or a decimal with as many digits as it is written with, whose zero has no sign.

    Raises:
        NotUnderstoodError: the value of the text is not certain.
    """
    if _FRACTION.fullmatch(text) is not None and text != ".":
        number = Decimal(text)
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int), "it is a number"
        precision = max(len(number.as_tuple().digits), -exponent)
        if precision > _MOST_DIGITS:
            raise NotUnderstoodError
        return LiteralValue(sign * number if number else abs(number), DecimalType(precision, -exponent))
    if _DIGITS.fullmatch(text) is None:
        raise NotUnderstoodError
    value = sign * int(text)
    for data_type, bits in _BITS.items():
        if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return LiteralValue(value, data_type)
    raise NotUnderstoodError


def like_call(text: Scalar, pattern: Scalar, escape: str) -> ScalarCall:
    """``text LIKE pattern ESCAPE escape``.

    Raises:
        NotUnderstoodError: the pattern is no literal, or Spark refuses it, or it is long.
    """
    if (
        not isinstance(pattern, LiteralValue)
        or not isinstance(pattern.value, str)
        or len(pattern.value) > _MOST_LETTERS
    ):
        raise NotUnderstoodError
    if len(escape) != 1 or escape in "%_" or like_pattern(pattern.value, escape) is None:
        raise NotUnderstoodError
    regex = LiteralValue(like_regex(pattern.value, escape), STRING)
    return ScalarCall(ScalarOperation.LIKE, (text, regex), BOOLEAN)


def time_literal(text: str, kind: Any) -> LiteralValue:
    """A text, date or time in its usual form, as the type of sqlglot ``kind``.

    Raises:
        NotUnderstoodError: as :func:`number_literal`.
    """
    if kind is exp.DataType.Type.TEXT:
        return LiteralValue(text, STRING)
    if kind is exp.DataType.Type.DATE:
        return LiteralValue(date_of(text), DATE)
    if kind in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
        return LiteralValue(moment_of(text, zoned=True), TIMESTAMP)
    if kind is exp.DataType.Type.TIMESTAMPNTZ:
        return LiteralValue(moment_of(text, zoned=False), TIMESTAMP_NTZ)
    raise NotUnderstoodError
