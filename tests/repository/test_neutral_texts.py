"""Texts of the layers below the entry points name no method of the Python API, no argument of one and no command.

An error has a remedy for that.
"""

import inspect
import re
from collections.abc import Iterator

import pytest

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.api.table.table_alterer import TableAlterer
from cm_delta_dagster.cli.command_table import PLACES
from tests.repository.module_source import read_part
from tests.repository.requirements import ROOT
from tests.support.public_classes import NAMESPACES
from tests.support.syntax_trees import parse

LAYERS = ("protocol", "client", "catalog", "storage", "spark", "arrow", "operations", "orchestration")
ALLOWED = {
    "protocol/predicates/sql_functions.py": "lists of functions of SQL",
    "arrow/dataset.py": "names methods of its own class, which stands for a dataset of pyarrow",
    "spark/session/java.py": "has a shell script",
    "spark/stores/jars.py": "has a file of Maven, and is what the command spark-jars does",
    "orchestration/assets/change_inputs.py": "a position is set by a command, and by a function of this package for Dagster",
    "orchestration/assets/missing_partitions.py": "names arguments of Dagster",
    "orchestration/automation/unread_changes.py": "names arguments of Dagster",
    "orchestration/checks/evaluation.py": "names tasks of maintenance and tags of checks, which are those of Dagster",
    "orchestration/components/delta_tables.py": "names variables of templates",
    "orchestration/definitions.py": "names arguments of Dagster",
    "orchestration/metadata/write_contract.py": "names keys of metadata and arguments of Dagster",
    "orchestration/runs/resource_fields.py": "names fields of resources, which Dagster takes as arguments",
    "spark/stores/object_stores.py": "jars for Spark come from the command spark-jars for every entry point",
}
"""Files that are not read, with the reason."""


def _methods() -> Iterator[str]:
    for kind in (Connection, *NAMESPACES.values(), DeltaTable, TableAlterer, MergeBuilder):
        yield from (name for name, _ in inspect.getmembers(kind) if not name.startswith("_"))


_NAMES = sorted(set(_methods()) | {"connect", "raw_sql"})
_WITH_UNDERSCORE = "|".join(name for name in _NAMES if "_" in name)
_COMMANDS = "|".join(sorted(PLACES))
_NAMED = re.compile(
    rf"\bcm-delta (?:{_COMMANDS}|-)"
    rf"|`(?:{_COMMANDS}) "
    rf"|(?<![\w-])--[a-z]"
    rf"|\b(?:lake|conn|connection|table)\.(?:(?:{'|'.join(NAMESPACES)})\.)?(?:{'|'.join(_NAMES)})\b"
    rf"|(?<![\w.])\.?(?:{'|'.join(_NAMES)})\((?!s\))"
    rf"|(?<![\w.])(?:{_WITH_UNDERSCORE})\b"
    r"|(?<![\w.?&'{])(?!client_kwargs=)[a-z]+(?:_[a-z]+)*=(?![=\0\s]|$)"
)
"""A command, an option, a method with its object or with brackets, and an argument with its name.

The storage option ``client_kwargs`` of s3fs is no argument.
"""


def named_in(text: str) -> list[str]:
    """What of the API or of the command line a text names. Texts without a space are no sentences."""
    return [match[0] for match in _NAMED.finditer(text)] if re.search(r"[a-z,.;:] [a-z\0(`]", text) else []


def test_texts_of_the_layers_below_the_entry_points_name_no_method_and_no_command() -> None:
    faults = []
    for layer in LAYERS:
        for file in sorted((ROOT / "cm_delta_dagster" / layer).rglob("*.py")):
            if "migrations" in file.parts:
                continue
            if str(file.relative_to(ROOT / "cm_delta_dagster")) in ALLOWED:
                continue
            for text in read_part(parse(file.read_text())).texts:
                faults += [f"{file.relative_to(ROOT)}: {name!r} in {text!r}" for name in named_in(text)]
    assert not faults, "Give the error a remedy (cm_delta_dagster/remedies.py):\n" + "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "Run `cm-delta doctor \0 --repair` for this table.",
        "Then `recovery recover ` shows both histories.",
        "The call with --apply records it.",
        "Set the columns again: table.alter.cluster_by(...).",
        "Use table.alter in Python.",
        "Use set_properties to change it.",
        "Read the rows with to_arrow from the offset \0.",
        "Call lake.doctor for this table.",
        "Read it with history() instead.",
        "Pass the text as raw_sql(...) to Spark.",
        "Give the condition as where='x > 1' to the read.",
        "Overwrite the table with schema_mode=OVERWRITE.",
    ],
)
def test_a_call_a_command_and_an_argument_are_found(text: str) -> None:
    assert named_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "Set the property delta.enableChangeDataFeed = 'true' first.",
        "The commit of version \0 is missing in the table.",
        "Log files of _delta_log, and the history of the table (see there).",
        "The function date_add(x, 1) is not known.",
        "To reach the store, raise ClientSettings.max_commit_attempts.",
        "Write a condition such as `x > 1`, with files(s) in it.",
    ],
)
def test_names_of_the_protocol_are_not_taken_for_calls(text: str) -> None:
    assert not named_in(text)
