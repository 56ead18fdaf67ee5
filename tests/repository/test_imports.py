"""Which modules may import which library, for every module; and protocol code receives times, ids and bytes as arguments.

The contracts in ``pyproject.toml`` list packages by name. These tests read every file, so that a new module, or an import in an
``__init__.py``, is found too.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository.requirements import ROOT
from tests.support.syntax_trees import parse

PACKAGE = ROOT / "cm_delta_dagster"

_SPARK = (
    "cm_delta_dagster.operations.reading.streams.spark_source",
    "cm_delta_dagster.spark.library",
    "definitions",
    "resources",
)
_DAGSTER = ("cm_delta_dagster.orchestration", "definitions", "resources")
_SQL = ("cm_delta_dagster.catalog.sql",)
_STORAGE = ("cm_delta_dagster.storage",)
_SERVER = ("cm_delta_dagster.server",)
_FRAMES = ("cm_delta_dagster.api", "cm_delta_dagster.operations.reading")
ALLOWED = {
    "adlfs": _STORAGE,
    "dagster": _DAGSTER,
    "dagster_pyspark": _DAGSTER,
    "duckdb": _FRAMES,
    "fastapi": _SERVER,
    "fsspec": _STORAGE,
    "gcsfs": _STORAGE,
    "jinja2": _SERVER,
    "jwt": _SERVER,
    "httpx": ("cm_delta_dagster.catalog.rest",),
    "polars": (*_FRAMES, "definitions"),
    "psycopg": _SQL,
    "py4j": _SPARK,
    "pyspark": _SPARK,
    "s3fs": _STORAGE,
    "sqlalchemy": _SQL,
    "starlette": _SERVER,
    "uvicorn": _SERVER,
}
"""The packages whose modules may import a library."""

WITHOUT_SPARK = (
    "cm_delta_dagster.operations.arguments",
    "cm_delta_dagster.operations.doctor",
    "cm_delta_dagster.operations.recovery",
    "cm_delta_dagster.operations.sql.answers",
    "cm_delta_dagster.operations.sql.column_definitions",
    "cm_delta_dagster.operations.sql.default_values",
    "cm_delta_dagster.operations.sql.descriptions",
    "cm_delta_dagster.operations.sql.duckdb_rows",
    "cm_delta_dagster.operations.sql.listings",
    "cm_delta_dagster.operations.sql.names",
    "cm_delta_dagster.operations.sql.parameters",
    "cm_delta_dagster.operations.sql.qualifiers",
    "cm_delta_dagster.operations.sql.rewriting",
    "cm_delta_dagster.operations.sql.statements",
    "cm_delta_dagster.operations.sql.table_references",
    "cm_delta_dagster.operations.sql.time_travel",
    "cm_delta_dagster.operations.sql.words",
)

IMPURE_CALLS = frozenset({"input", "now", "open", "print"})
IMPURE_ATTRIBUTES = frozenset({"OSFile", "memory_map", "random", "today", "utcnow", "uuid1", "uuid4"})
"""I/O, clocks and randomness in modules that are imported for values, such as ``datetime``, ``uuid`` and ``pyarrow``."""


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _modules() -> Iterator[tuple[str, str]]:
    """Name and source of each module."""
    for folder in ("cm_delta_dagster", "definitions", "resources"):
        yield from ((_name(file), file.read_text()) for file in sorted((ROOT / folder).rglob("*.py")))


def imported_by(source: str) -> Iterator[tuple[int, str]]:
    """Line and first part of the name of each module that ``source`` imports, also in functions and for type checkers only."""
    for node in ast.walk(parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name.partition(".")[0]) for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module.partition(".")[0]
            case _:
                pass


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    """Whether ``module`` is one of ``packages`` or below one of them."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def misplaced(module: str, source: str) -> list[str]:
    """The imports of ``source`` that a module of this name may not have."""
    return [
        f"{module}:{line}: {library}"
        for line, library in imported_by(source)
        if (library in ALLOWED and not is_in(module, ALLOWED[library]))
        or (library in ("pyspark", "py4j") and is_in(module, WITHOUT_SPARK))
    ]


def impurities(source: str) -> list[str]:
    """Uses of I/O, clocks and randomness in ``source``."""
    found = []
    for node in ast.walk(parse(source)):
        match node:
            case ast.Attribute(attr=name) if name in IMPURE_ATTRIBUTES:
                found.append(f"{node.lineno}: {name}")
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in IMPURE_CALLS:
                found.append(f"{node.lineno}: {name}")
            case _:
                pass
    return found


def test_each_library_is_imported_only_where_it_belongs() -> None:
    modules = list(_modules())
    assert [place for name, source in modules for place in misplaced(name, source)] == []
    assert len(modules) > 200 and {"cm_delta_dagster", "cm_delta_dagster.catalog"} <= {name for name, _ in modules}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cm_delta_dagster", "import dagster"),
        ("cm_delta_dagster.catalog", "import sqlalchemy as sa"),
        ("cm_delta_dagster.catalog.new_part", "def f():\n    from sqlalchemy.exc import DBAPIError"),
        ("cm_delta_dagster.catalog.sql_other", "import psycopg"),
        ("cm_delta_dagster.arrow.dataset", "import duckdb"),
        ("cm_delta_dagster.client.table", "from fsspec.asyn import sync"),
        ("cm_delta_dagster.operations.doctor.doctor", "from pyspark.sql import DataFrame"),
        ("definitions.defs.flights", "import sqlalchemy"),
    ],
)
def test_an_import_in_another_place_is_found(module: str, source: str) -> None:
    assert len(misplaced(module, source)) == 1


def test_protocol_code_has_no_io_clock_or_randomness() -> None:
    """With the contract on the standard library: ``datetime`` and ``uuid`` are there for their values."""
    found = {
        str(file.relative_to(ROOT)): places
        for file in sorted((PACKAGE / "protocol").rglob("*.py"))
        if (places := impurities(file.read_text()))
    }
    assert found == {}
    text = "now = datetime.now(UTC)\nuuid.uuid4()\nopen('x')"
    assert sorted(impurities(text)) == ["1: now", "2: uuid4", "3: open"]


def test_the_part_for_dagster_imports_no_library_that_only_some_assets_need() -> None:
    program = "import sys, cm_delta_dagster.orchestration; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"duckdb", "pandas", "polars"} & set(done.stdout.split())
