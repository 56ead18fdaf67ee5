"""Runs statements in DuckDB; a program of the environment ``duckdb``, see ``other_readers``.

Answers for each statement with its rows as dictionaries, or with the text of the error of one that failed.
"""

import importlib.resources
import json
import sys

import duckdb


def main() -> None:
    request = json.load(sys.stdin)
    # Extensions that the user has are not loaded in the place of these, and none is downloaded.
    settings = {"extension_directory": f"{sys.prefix}/none", "autoinstall_known_extensions": False}
    connection = duckdb.connect(config=settings)
    for name in request["extensions"]:
        files = importlib.resources.files(f"duckdb_extension_{name}")
        # By its path: INSTALL would copy it into the home directory of the user.
        connection.execute(f"LOAD '{files / 'extensions' / f'v{duckdb.__version__}' / name}.duckdb_extension'")
    json.dump([answer(connection, statement) for statement in request["statements"]], sys.stdout, default=str)


def answer(connection: duckdb.DuckDBPyConnection, statement: str) -> list[dict[str, object]] | str:
    try:
        rows = connection.execute(statement).fetchall()
    except duckdb.Error as error:
        return str(error)
    names = [column[0] for column in connection.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]


if __name__ == "__main__":
    main()
