"""The page *A first asset on S3*, as a reader types it: its files, and the commands after the installation."""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from cm_delta_dagster import connect
from tests.support.s3_server import s3_server
from tests.support.spark_jars import s3_jars

PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
_FILE = re.compile(r"`([\w./]+)`:\n\n```(?:py|csv|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPED = ("mkdir ", "python -c ", "python read.py", "dg ", "cm-delta --catalog ")
"""The other commands install packages and jars, and start moto."""
_PROGRAMS = "\n".join(
    f"{name}() {{ python -W ignore -c 'from {module} import main; main()' \"$@\"; }}"
    for name, module in (("dg", "dagster_dg_cli.cli"), ("cm-delta", "cm_delta_dagster.cli.main"))
)
"""The programs that the installation makes, of the package that is tested."""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_asset_on_s3_is_materialized_and_read(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    section = PAGE.read_text().partition("\n## A first asset on S3\n")[2].partition("\n## ")[0]
    (tmp_path / "s3-jars").symlink_to(s3_jars()[0].parent)
    (tmp_path / "shop").mkdir()
    printed = []
    with s3_server() as server:
        # The servers of one process share their buckets, and other tests use the name of this page too.
        bucket = f"lake-{uuid.uuid4().hex}"
        section = section.replace("s3://lake/", f"s3://{bucket}/").replace("mkdir('lake')", f"mkdir('{bucket}')")
        section = section.replace("http://127.0.0.1:5000", server.endpoint)
        files = dict(_FILE.findall(section))
        assert set(files) == {"pyproject.toml", "orders.csv", "shop/definitions.py", "read.py"}
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        commands = [line for block in _COMMANDS.findall(section) for line in block.splitlines()]
        for command in (line for line in commands if line.startswith(_TYPED)):
            printed.append(typed(command, tmp_path))
        options = {"key": "test", "secret": "test", "endpoint_url": server.endpoint}
        with connect(
            f"sqlite:///{tmp_path}/catalog.db", warehouse=f"s3://{bucket}/tables", storage_options=options
        ) as lake:
            table = lake.table("main.sales.orders")
            assert table.location.startswith(f"s3://{bucket}/tables/")
            assert table.version() == 1 and sorted(table.to_arrow()["amount"].to_pylist()) == [22.0, 132.0, 275.0]
    assert len(printed) == 6, "mkdir, the bucket, dg launch, commits, read.py, head"
    assert "275.0" in printed[4] and "2024-05-02" in printed[4] and "132.0" in printed[5]


def typed(command: str, directory: Path) -> str:
    """What the command prints in a shell whose programs are those of this Python."""
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "S3_KEY": "test",
        "S3_SECRET": "test",
        "DAGSTER_HOME": str(directory / ".dagster"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        ["bash", "-c", f"{_PROGRAMS}\n{command}"],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, command + done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout
