"""The texts of a JSON array as rows: one parameter for any number of texts, in a statement for any of the databases."""

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction


class _TextsOf(GenericFunction[Any]):
    """``json_each`` of SQLite, ``json_array_elements_text`` of PostgreSQL. Both call their column ``value``."""

    name = "cm_delta_texts_of"
    inherit_cache = True


@compiles(_TextsOf, "sqlite")
def _of_sqlite(function: _TextsOf, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(function.clauses, **options)})"


@compiles(_TextsOf, "postgresql")
def _of_postgresql(function: _TextsOf, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(function.clauses, **options)} AS JSON))"


def texts_of(parameter: str) -> sa.TableValuedAlias:
    """The rows, with the column ``value``, of the array in the parameter of this name, whose value is :func:`texts`."""
    return _TextsOf(sa.bindparam(parameter, type_=sa.Text)).table_valued(sa.column("value", sa.Text))


def texts(values: Iterable[str]) -> str:
    """The value of the parameter of :func:`texts_of`."""
    return json.dumps(list(values), ensure_ascii=False)
