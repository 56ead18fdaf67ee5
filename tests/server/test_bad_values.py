"""Values that no argument may have, in each place of each call of the API of this package: refused, and nothing is changed.

The calls are those of ``every_operation``, so that a new operation is tried here too.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from cm_delta_dagster.server.settings import ServerSettings
from tests.server.test_bad_input import has_form_of
from tests.support.every_operation import OWNER, RECORDS_OF_REFUSALS, every_operation, fill, rows_over
from tests.support.live_server import LiveServer

_NUMBERS = (2**63, -(2**63) - 1, -(2**63))
_TEXTS = ("", "a\0b", "file:///\0", "x" * 70_000)
_ENDS = {
    "access.revoke",
    "access.disable_grants",
    "tokens.revoke_token",
    "registry.drop_table",
    "recovery.release_table",
}
"""What would end the use of something that other operations use."""

_STATE = {"sqlite": "PRAGMA data_version", "postgresql": "SELECT pg_snapshot_xmax(pg_current_snapshot())"}
"""What has another value after each transaction that writes."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow])])
def server_settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServerSettings:
    url = str(request.getfixturevalue(f"{request.param}_url"))
    return ServerSettings(catalog=url, warehouse=f"file://{tmp_path}/warehouse")


def bad_values(value: Any) -> Iterator[Any]:
    """The value with another one in each of its places."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield from _NUMBERS
    elif isinstance(value, float):
        yield from (float("nan"), float("inf"), -1e308)
    elif isinstance(value, str):
        yield from _TEXTS
    elif isinstance(value, list):
        yield []
        for place, entry in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in bad_values(entry))
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from ({**value, name: other} for other in bad_values(entry))
            others = {key: member for key, member in value.items() if key != name}
            yield {**others, "a\0b": entry}


class _Rows:
    """The rows of the catalog but the records of refusals, read again only if a transaction has written."""

    def __init__(self, url: str) -> None:
        self._connection = sa.create_engine(url, poolclass=sa.pool.NullPool, isolation_level="AUTOCOMMIT").connect()
        self._state: object = None
        self._rows: Mapping[str, frozenset[str]] = {}

    def read(self) -> Mapping[str, frozenset[str]]:
        state = self._connection.exec_driver_sql(_STATE[self._connection.dialect.name]).scalar_one()
        if state != self._state:
            self._state = state
            self._rows = rows_over(self._connection, without=RECORDS_OF_REFUSALS)
        return self._rows

    def close(self) -> None:
        self._connection.close()


def test_a_bad_value_is_refused_in_each_place_and_changes_nothing(server: LiveServer) -> None:
    """Some are good values in some places: then the call is answered."""
    with server.catalog(owner=OWNER) as catalog:
        full = fill(catalog)
    headers = {"Authorization": f"Bearer {server.token_for(OWNER, by=OWNER)}"}
    rows, failures, refused = _Rows(server.settings.catalog), [], 0
    with httpx.Client(base_url=server.url, headers=headers, timeout=300) as http:
        for operation in every_operation():
            if str(operation) in _ENDS:
                continue
            arguments = json.loads(operation.arguments.encode(full.arguments_of(operation)))
            before = rows.read()
            for body in bad_values(arguments):
                answer, sent = http.post(operation.path, content=json.dumps(body)), json.dumps(body)[:300]
                after = rows.read()
                if answer.status_code == 200:
                    before = after
                    continue
                refused += 1
                if not 400 <= answer.status_code < 500 or not has_form_of(operation.path, answer):
                    failures.append(f"{operation} {sent}: {answer.status_code} {answer.text[:300]}")
                if after != before:
                    changed = {name for name in after if after[name] != before[name]}
                    failures.append(f"{operation} {sent}: refused, and {changed} were changed")
                    before = after
    rows.close()
    assert not failures, "\n".join(failures)
    assert refused > 1000
