"""``cm-delta head``, ``schema``, ``files``, ``history`` and ``sql``."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.commands.reading import rows_of
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.cli.printer import output, show_rows
from cm_delta_dagster.cli.values import Rows
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.foreign import ForeignTable, field

NAME = "main.sales.orders"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A catalog with one table of two files with three rows each."""
    text = f"sqlite:///{tmp_path}/catalog.db"
    client = DeltaClient(SqlCatalog(text, warehouse=f"file://{tmp_path}/warehouse"), stores=Stores())
    fields = (
        StructField("id", PrimitiveType("long"), metadata={"comment": "number of the order"}),
        StructField("name", PrimitiveType("string")),
        StructField("day", PrimitiveType("date")),
    )
    table = create_table(client, identifier=NAME, schema=StructType(fields), partition_columns=("day",))
    for number in range(2):
        rows = pa.table({"id": [3 * number + i for i in range(3)], "name": ["a", None, 'x,"y"\n']})
        pq.write_table(rows, Path(table.location.removeprefix("file://")) / f"{number}.parquet")
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        size = (Path(table.location.removeprefix("file://")) / f"{number}.parquet").stat().st_size
        values = {"day": f"2026-01-0{number + 1}"}
        add = add_file(f"{number}.parquet", partition_values=values, size=size, stats='{"numRecords":3}')
        transaction.add_files([add])
        transaction.commit()
    client.close()
    yield text


def run(url: str, *arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments, env={"CM_DELTA_CATALOG_URL": url})
    assert result.exit_code == 0, result.output
    return result


def test_head_shows_the_first_rows_aligned(url: str) -> None:
    result = run(url, "head", NAME, "--limit", "4", "--where", "id > 0")
    assert result.stdout.splitlines()[:3] == ["id  name     day", "--  -------  ----------", " 1  NULL     2026-01-01"]
    assert ' 2  x,"y"\\n  2026-01-01' in result.stdout
    assert len(result.stdout.splitlines()) == 6 and "first 4 rows" in result.stderr
    assert run(url, "head", NAME, "--version", "0").stdout == "id  name  day\n--  ----  ---\n"


def test_rows_are_printed_as_json_and_csv(url: str) -> None:
    rows = json.loads(run(url, "head", NAME, "--json", "--column", "day", "--column", "name").stdout)
    assert len(rows) == 6 and list(rows[0]) == ["day", "name"]
    assert {"day": "2026-01-01", "name": None} in rows
    read = list(csv.reader(io.StringIO(run(url, "head", NAME, "--csv").stdout)))
    assert read[0] == ["id", "name", "day"] and ["2", 'x,"y"\n', "2026-01-01"] in read
    refused = CliRunner().invoke(main, ["--catalog", url, "head", NAME, "--json", "--csv"])
    assert refused.exit_code != 0 and "not both" in refused.output


def test_schema_files_and_history(url: str) -> None:
    columns = json.loads(run(url, "schema", NAME, "--json").stdout)
    assert columns[0] == {
        "column": "id",
        "type": "bigint",
        "nullable": True,
        "partition": False,
        "comment": "number of the order",
    }
    assert columns[2]["partition"] is True
    files = json.loads(run(url, "files", NAME, "--json", "--where", "day = DATE '2026-01-02'").stdout)
    assert [(one["path"], one["rows"], one["partition"]) for one in files] == [("1.parquet", 3, {"day": "2026-01-02"})]
    commits = json.loads(run(url, "history", NAME, "--json", "--limit", "2").stdout)
    assert [(one["version"], one["operation"]) for one in commits] == [(2, "WRITE"), (1, "WRITE")]
    assert run(url, "history", NAME).stdout.splitlines()[0].split()[:3] == ["version", "timestamp", "operation"]


def test_a_table_that_does_not_exist_is_an_error(url: str) -> None:
    for command in ("head", "schema", "files", "history"):
        result = CliRunner().invoke(main, ["--catalog", url, command, "main.sales.order"])
        assert result.exit_code == 1 and "no table main.sales.order" in result.output


def test_reading_commands_do_not_load_spark(url: str) -> None:
    code = (
        "import sys; from cm_delta_dagster.cli.main import main\n"
        f"main(['--catalog', {url!r}, 'head', {NAME!r}], standalone_mode=False)\n"
        "sys.exit(sum(name in sys.modules for name in ('pyspark', 'dagster')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 8), done.stderr


def shown(rows: Rows, *options: str, limit: int) -> str:
    """What a command prints that shows the rows."""
    command = click.command()(output("rows", with_csv=True)(lambda: show_rows(rows, limit=limit)))
    return CliRunner().invoke(command, options).stdout


def test_values_of_every_kind_are_shown() -> None:
    rows = Rows(
        columns=("number", "text", "nested", "map", "bytes", "float", "number"),
        rows=(
            (Decimal("1.50"), "a\tb" + "x" * 100, {"day": date(2026, 1, 1)}, [("k", 1)], b"\x00", float("nan"), 1),
            (None, "", {}, [], None, 0.1, 22),
        ),
    )
    lines = shown(rows, limit=5).splitlines()
    assert "a\\tbxxx" in lines[2] and "..." in lines[2] and lines[2].endswith("nan       1")
    assert lines[3].split()[0] == "NULL" and lines[3].endswith("0.1      22")
    assert '"{""day"": ""2026-01-01""}","{""k"": 1}",AA==,nan,1' in shown(rows, "--csv", limit=1)


def test_times_that_python_does_not_have_are_shown() -> None:
    """Years after 9999 and before 1, also inside of other values."""
    day = pa.array([2_932_897 + 30, None], pa.int32()).cast(pa.date32())
    moment = pa.array([-62_135_596_800_000_000 - 1, 0], pa.timestamp("us", "UTC"))
    entry = pa.MapArray.from_arrays(pa.array([0, 1, 1], pa.int32()), pa.array(["k"]), day[:1])
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), day)], ["days"])
    rows = rows_of(pa.table({"day": day, "moment": moment, "entry": entry, "nested": nested}))
    first, second = json.loads(shown(rows, "--json", limit=5))
    assert first["day"] == "10000-01-31" and first["entry"] == {"k": "10000-01-31"}
    assert first["moment"].startswith("0000-12-31 23:59:59.999999") and second["moment"].startswith("1970-01-01")
    assert [first["nested"], second["nested"]] == [{"days": ["10000-01-31"]}, {"days": [None]}]


def test_registered_names_are_read_without_spark(url: str, tmp_path: Path) -> None:
    theirs = ForeignTable(tmp_path / "theirs", field("id", "long"))
    theirs.add("f.parquet", pa.table({"id": [7]}))
    run(url, "onboarding", "register", str(theirs.root), "main.ext.theirs")
    assert run(url, "head", "main.ext.theirs").stdout.splitlines()[-1].strip() == "7"
    assert "bigint" in run(url, "schema", "main.ext.theirs").stdout
    assert "f.parquet" in run(url, "files", "main.ext.theirs").stdout
    assert len(json.loads(run(url, "history", "main.ext.theirs", "--json").stdout)) == 2
    query = f"select theirs.id, count(*) n from main.ext.Theirs join {NAME} on true group by 1"
    assert json.loads(run(url, "sql", query, "--engine", "duckdb", "--json").stdout) == [{"id": 7, "n": 6}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1; copy (select 1) to '{path}'", "more than one statement"),
        ("select * from url", "The catalog has no table url, and DuckDB has no table"),
        ("select * frm main.sales.orders", "LINE 1: select * frm main.sales.orders"),
    ],
)
def test_duckdb_runs_one_statement_and_sees_no_variables(url: str, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "written.csv"
    refused = CliRunner().invoke(main, ["--catalog", url, "sql", text.format(path=path), "--engine", "duckdb"])
    assert refused.exit_code == 1 and message in refused.output and not path.exists(), refused.output


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_sql_runs_through_each_engine(url: str, spark: SparkSession, engine: str) -> None:
    def sql(statement: str, *options: str) -> Result:
        return run(url, "sql", statement, "--engine", engine, *options)

    statement = f"SELECT day, count(*) AS rows, max(id) AS id FROM {NAME} GROUP BY day ORDER BY day"
    assert json.loads(sql(statement, "--json").stdout) == [
        {"day": "2026-01-01", "rows": 3, "id": 2},
        {"day": "2026-01-02", "rows": 3, "id": 5},
    ]
    limited = sql(f"select id as a, id as b from {NAME} order by 1", "--limit", "1")
    assert limited.stdout == "a  b\n-  -\n0  0\n" and "first 1 rows" in limited.stderr
    assert sql("show tables").stdout.splitlines()[-1].split() == ["main.sales", "orders", "false"]
    assert "WRITE" in sql(f"describe history {NAME}").stdout
    newest = json.loads(sql(f"describe history {NAME}", "--json").stdout)[0]["operationParameters"]
    assert isinstance(newest, dict) and None not in newest.values()
    refused = CliRunner().invoke(main, ["--catalog", url, "sql", "create view v as select 1", "--engine", engine])
    assert refused.exit_code == 1 and "createOrReplaceTempView" in refused.output
    wrong = CliRunner().invoke(main, ["--catalog", url, "sql", f"select nothing from {NAME}", "--engine", engine])
    assert wrong.exit_code == 1 and "nothing" in wrong.output and "Traceback" not in wrong.output
    for name in ("main.sales.orderz", "sales.orders", "orders"):
        missing = CliRunner().invoke(main, ["--catalog", url, "sql", f"select * from {name}", "--engine", engine])
        assert missing.exit_code == 1 and f"The catalog has no table {name}, and " in missing.output
        assert f"Did you mean {NAME}?" in missing.output and "Catalog Error" not in missing.output


def test_spark_runs_what_writes(url: str, spark: SparkSession, tmp_path: Path) -> None:
    inserted = f"INSERT INTO {NAME} VALUES (7, 'new', DATE '2026-01-01'), (8, 'new', DATE '2026-01-01')"
    assert run(url, "sql", inserted).stdout == "Done.\n"
    assert run(url, "sql", f"DELETE FROM {NAME} WHERE id = 8").stdout.splitlines()[-1].strip() == "1"
    assert json.loads(run(url, "sql", inserted, "--json").stdout) == []
    for arguments, message in (
        ((inserted, "--engine", "duckdb"), "duckdb runs only statements that read"),
        (("CREATE TABLE main.sales.t AS SELECT 1 AS a",), "needs --warehouse"),
        ((f"INSERT INTO {NAME} VALUES (1)",), "1 columns"),
    ):
        refused = CliRunner().invoke(main, ["--catalog", url, "sql", *arguments])
        assert refused.exit_code != 0 and message in refused.output and "Traceback" not in refused.output
    warehouse = f"file://{tmp_path}/warehouse"
    run(url, "sql", "CREATE TABLE main.sales.t AS SELECT 1 AS a", "--warehouse", warehouse)
    assert run(url, "head", "main.sales.t").stdout.splitlines()[-1] == "1"


def test_optimize_shows_its_plan_and_rewrites(url: str, spark: SparkSession) -> None:
    for number in range(2):
        run(url, "sql", f"INSERT INTO {NAME} VALUES ({number}, 'new', DATE '2026-03-01')")
    where = ("--zorder", "id", "--where", "day = DATE '2026-03-01'")
    denied = run(url, "optimize", NAME, *where).stdout
    assert "2 files (" in denied and "--apply would be refused: " in denied
    refused = CliRunner().invoke(main, ["--catalog", url, "optimize", NAME, *where, "--apply"])
    assert refused.exit_code == 1 and "DATA_REORGANIZATION" in refused.output
    run(url, "maintenance", "set-policy", NAME, "DATA_REORGANIZATION")
    assert "2 files (" in run(url, "optimize", NAME, *where, "--apply").stdout
    allowed = run(url, "optimize", NAME, "--where", where[-1]).stdout
    assert "would be rewritten; nothing was changed. --apply rewrites." in allowed


def test_duckdb_is_preferred_and_loads_no_spark(url: str) -> None:
    code = (
        "import sys; from cm_delta_dagster.cli.main import main\n"
        f"main(['--catalog', {url!r}, 'sql', 'select count(*) from {NAME}'], standalone_mode=False)\n"
        "sys.exit(sum(name in sys.modules for name in ('pyspark', 'dagster')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout.split()[-1]) == (0, "6"), done.stderr
