"""What schemathesis loads for the API of this package: calls that the catalog has answers to, and a check of refused calls.

The environment of schemathesis has no other packages: the catalog is a SQLite file, and the calls are in a file of JSON.
"""

import json
import os
import sqlite3
from typing import Any

import schemathesis

_KNOWN = json.loads(os.environ["CM_DELTA_TEST_KNOWN_CALLS"])
"""``calls``: the arguments of a call by path; ``database``: the file; ``ignored``: tables and columns."""


class _Rows:
    """The rows of the catalog, read again only if a transaction has written."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(f"file:{_KNOWN['database']}?mode=ro", uri=True, check_same_thread=False)
        self._version: object = None
        self._rows: dict[str, list[str]] = {}

    def read(self) -> dict[str, list[str]]:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version, self._rows = version, {name: self._of(name) for name in self._tables()}
        return self._rows

    def _tables(self) -> list[str]:
        names = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return [name for (name,) in names if name not in _KNOWN["ignored"]]

    def _of(self, table: str) -> list[str]:
        columns = [column for _, column, *_ in self._connection.execute(f"PRAGMA table_info({table})")]
        stated = ", ".join(f'"{column}"' for column in columns if column not in _KNOWN["ignored"])
        return sorted(map(repr, self._connection.execute(f"SELECT {stated} FROM {table}")))


_rows = _Rows()
_before = dict[str, list[str]]()


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Give each operation a call of the catalog of the test as its example, which other calls vary."""
    for path, arguments in _KNOWN["calls"].items():
        body = raw_schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        body["example"] = arguments


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Note the rows before the call."""
    _before.clear()
    _before.update(_rows.read())


@schemathesis.check
def refused_call_changes_nothing(ctx: Any, response: Any, case: Any) -> None:
    """A call that is refused leaves every row as it was."""
    if response.status_code == 200:
        return
    after = _rows.read()
    changed = sorted(name for name in after if after[name] != _before[name])
    assert not changed, f"The call was refused with {response.status_code}, and rows were changed: {changed}"
