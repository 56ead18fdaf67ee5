"""The documents are correct: every Python block runs, every link has a target.

The blocks of one document run in order, in one namespace and a temporary working directory. Blocks of CSV, TOML, YAML and SQL are
written to files with the name that the page gives before them, and so are those of ``py``, which are not run by themselves.
Definitions for Dagster are used once: assets are materialized, checks and jobs executed, sensors and schedules evaluated. Lines of
shell blocks that begin with ``cm-delta`` run too.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cm_delta_dagster import __version__, connect
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.orchestration.metadata.metadata_keys import READ_KEYS, WRITE_KEYS
from cm_delta_dagster.server.settings import ServerSettings
from tests.support.live_server import live_server

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")))
SENSOR = "docs/sensor.md"
SERVER = "docs/server.md"
SERVER_URL = "http://127.0.0.1:8181"
"""What the page of the server calls it; the one of the test has another port."""
REFERENCE = ("docs/assets.md", "docs/asset-writes.md", SENSOR, "docs/inputs.md", "docs/partitions.md")
"""The pages on the IO manager: together with that of the events they name every key."""

_BLOCK = re.compile(r"^```(python|py|bash|csv|toml|yaml|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"`([\w./]+\.(?:py|csv|toml|yaml|sql))`[^`]*:\n\n\Z")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(kw_only=True)
class Reader:
    """Executes the blocks of one document in order."""

    document: str
    namespace: dict[str, Any]
    monkeypatch: pytest.MonkeyPatch
    instance: dg.DagsterInstance
    assets: list[dg.AssetsDefinition] = field(default_factory=list)
    used: list[object] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    ticks: dict[str, Any] = field(default_factory=dict)
    server_url: str = SERVER_URL

    def type_everything(self) -> None:
        text = (ROOT / self.document).read_text()
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            match block[1]:
                case "bash":
                    self._shell(block[2])
                case "python":
                    self._python(block[2], line=line)
                    self._use_definitions()
                case "yaml" | "sql" | "py" if not _FILE_NAME.search(text[: block.start()]):
                    pass  # An example, and not a file of the page.
                case _:
                    path = Path(_file_name(text, block))
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block[2])

    def _python(self, code: str, *, line: int) -> None:
        # Empty lines in front, so that a traceback shows the line of the document.
        code = code.replace(SERVER_URL, self.server_url)
        exec(compile("\n" * line + code, str(ROOT / self.document), "exec", dont_inherit=True), self.namespace)

    def _shell(self, code: str) -> None:
        for line in code.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["export"]:
                name, _, value = words[1].partition("=")
                self.monkeypatch.setenv(name, value)
            elif words[:1] == ["cm-delta"]:
                answer = CliRunner().invoke(main, words[1:])
                assert answer.exit_code == 0, f"{line}: {answer.output}"

    def _use_definitions(self) -> None:
        for value in list(_flat(self.namespace.values())):
            if any(value is known for known in self.used):
                continue
            self.used.append(value)
            match value:
                case dg.AssetChecksDefinition():
                    self._check(value)
                case dg.AssetsDefinition():
                    # Completed definitions have the assets again.
                    self.assets = [*(known for known in self.assets if not known.keys & value.keys), value]
                    self._materialize(value)
                case dg.AutomationConditionSensorDefinition():
                    with dg.build_sensor_context(instance=self.instance, repository_def=self._repository()) as context:
                        self.ticks[value.name] = value.evaluate_tick(context)
                case dg.SensorDefinition():
                    with dg.build_sensor_context(instance=self.instance, resources=self._resources()) as context:
                        self.ticks[value.name] = value.evaluate_tick(context)
                case dg.ScheduleDefinition():
                    with dg.build_schedule_context(instance=self.instance, resources=self._resources()) as context:
                        self.ticks[value.name] = value.evaluate_tick(context)
                case dg.JobDefinition():
                    assert value.execute_in_process(instance=self.instance, resources=self._resources()).success

    def _materialize(self, asset: dg.AssetsDefinition) -> None:
        made = {key for known in self.assets for key in known.keys}
        specs = [value for value in self.namespace.values() if isinstance(value, dg.AssetSpec)]
        result = dg.materialize(
            [*self.assets, *(spec for spec in specs if spec.key not in made)],
            selection=[asset],
            resources=self._resources(),
            instance=self.instance,
            partition_key=_some_key(asset.partitions_def, self.instance),
        )
        assert result.success
        for event in result.get_asset_materialization_events():
            self.reported |= event.materialization.metadata.keys()

    def _check(self, checks: dg.AssetChecksDefinition) -> None:
        defs = dg.Definitions(assets=self.assets, asset_checks=[checks], resources=self._resources())
        job = dg.define_asset_job("checks_of_the_page", selection=dg.AssetSelection.checks(checks))
        defs = dg.Definitions.merge(defs, dg.Definitions(jobs=[job]))
        result = defs.resolve_job_def(job.name).execute_in_process(instance=self.instance, raise_on_error=False)
        failed = [one.description for one in result.get_asset_check_evaluations() if not one.passed]
        assert failed == [] and result.get_asset_check_evaluations()

    def _repository(self) -> dg.RepositoryDefinition:
        specs = [value for value in self.namespace.values() if isinstance(value, dg.AssetSpec)]
        return dg.Definitions(assets=[*self.assets, *specs], resources=self._resources()).get_repository_def()

    def _resources(self) -> dict[str, Any]:
        defs = self.namespace.get("defs")
        return dict(self.namespace.get("resources") or (defs.resources if defs is not None else {}))


def _file_name(text: str, block: re.Match[str]) -> str:
    found = _FILE_NAME.search(text[: block.start()])
    assert found, f"the page does not say which file this is: {block[2][:60]!r}"
    return found[1]


def _flat(values: Any) -> Iterator[object]:
    for value in values:
        if isinstance(value, dg.Definitions):
            dg.Definitions.validate_loadable(value)
            yield from _flat(
                [*(value.assets or ()), *(value.jobs or ()), *(value.schedules or ()), *(value.sensors or ())]
            )
        elif type(value) in (list, tuple):  # Not records of Dagster, which are tuples too.
            yield from _flat(value)
        elif isinstance(value, dg.AssetsDefinition | dg.SensorDefinition | dg.ScheduleDefinition | dg.JobDefinition):
            yield value


def _some_key(definition: dg.PartitionsDefinition[Any] | None, instance: dg.DagsterInstance) -> str | None:
    if definition is None:
        return None
    parts = [part.partitions_def for part in getattr(definition, "partitions_defs", ())] or [definition]
    for part in parts:
        if isinstance(part, dg.DynamicPartitionsDefinition) and not instance.get_dynamic_partitions(part.name):
            instance.add_dynamic_partitions(part.name, ["acme"])
    return definition.get_partition_keys(dynamic_partitions_store=instance)[0]


@pytest.fixture
def working_directory(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of its own, for Python and for the JVM, which resolves the paths of files that Spark reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # The directory of a project, as for dg.
    jvm = spark._jvm.org.apache.hadoop.fs
    files = jvm.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(jvm.Path(tmp_path.as_uri()))
    # The first write of a session makes Hadoop forget its file systems; new ones take this directory.
    user_directory = spark._jvm.System.setProperty("user.dir", str(tmp_path))
    yield tmp_path
    spark._jvm.System.setProperty("user.dir", user_directory)
    jvm.FileSystem.get(spark._jsc.hadoopConfiguration()).setWorkingDirectory(before)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


@pytest.fixture
def reader_of(
    working_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Reader]]:
    dagster_home = tmp_path_factory.mktemp("dagster")

    def reader(document: str) -> Reader:
        namespace: dict[str, Any] = {"__name__": f"snippets of {document}"}
        return Reader(document=document, namespace=namespace, monkeypatch=monkeypatch, instance=instance)

    with dg.instance_for_test(temp_dir=str(dagster_home)) as instance:
        yield reader


@pytest.mark.filterwarnings("ignore:Function `PipesMessageReader")  # Dagster calls its own preview function.
@pytest.mark.parametrize("document", [document for document in DOCUMENTS if document not in (*REFERENCE, SERVER)])
def test_every_block_of_a_document_runs(document: str, reader_of: Any, capsys: pytest.CaptureFixture[str]) -> None:
    reader_of(document).type_everything()


def test_the_page_of_the_server_runs_with_a_server(
    reader_of: Any, working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ServerSettings(
        catalog=f"sqlite:///{working_directory}/served.db", warehouse=f"file://{working_directory}/served"
    )
    with live_server(settings) as server:
        monkeypatch.setenv("CM_DELTA_TOKEN", server.token_for("etl"))
        reader = reader_of(SERVER)
        reader.server_url = server.url
        reader.type_everything()
        assert reader.reported == {"orders"}


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
@pytest.mark.parametrize("document", REFERENCE)
def test_the_reference_runs_and_names_every_key_of_an_event(
    document: str, reader_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = reader_of(document)
    reader.type_everything()
    ours = {key for key in reader.reported if key.startswith(("cm_delta/", "dagster/"))}
    assert "cm_delta/commit_version" in ours
    assert sorted(key for key in ours if f"`{key}`" not in _reference()) == []
    # Commits of this instance's runs are not reported again; the one run of another instance changed no row.
    ticks = [tick for name, tick in reader.ticks.items() if name == "orders_changed"]
    assert len(ticks) == (document == SENSOR)
    for tick in ticks:
        assert [event for event in tick.asset_events if isinstance(event, dg.AssetMaterialization)] == []


def _reference() -> str:
    return "\n".join((ROOT / page).read_text() for page in (*REFERENCE, "docs/asset-events.md"))


@pytest.mark.slow
def test_the_first_asset_of_the_readme_is_a_project_that_dg_runs(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (tmp_path / "shop" / "defs").mkdir(parents=True)
    for block in _BLOCK.finditer(text, text.index("## A first asset"), text.index("Without Dagster,")):
        (tmp_path / _file_name(text, block)).write_text(block[2])
    _dg(tmp_path, "launch", "--assets", "*")
    with connect(f"sqlite:///{tmp_path}/catalog.db") as lake:
        assert lake.table("main.sales.orders").scan().count() == 3


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_project_from_zero_is_one_that_dg_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "first-asset.md").read_text()
    (tmp_path / "shop" / "defs").mkdir(parents=True)
    commands: list[str] = []
    for block in _BLOCK.finditer(text, 0, text.index("## A commit from outside")):
        if block[1] == "bash":
            commands += [line for line in block[2].splitlines() if line.startswith("dg ")]
        else:
            (tmp_path / _file_name(text, block)).write_text(block[2])
    assert len(commands) == 3
    for command in commands:
        _dg(tmp_path, *shlex.split(command)[1:])
    with connect(f"sqlite:///{tmp_path}/catalog.db") as lake:
        assert lake.table("main.sales.orders").scan().count() == 3
        assert lake.table("main.sales.revenue").to_arrow()["amount"].to_pylist() == [270.0]


@pytest.mark.timeout(1200)
@pytest.mark.exhaustive
def test_the_project_of_components_is_one_that_dg_checks_and_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "components.md").read_text()
    for block in _BLOCK.finditer(text):
        if block[1] not in ("bash", "python"):
            path = tmp_path / _file_name(text, block)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block[2])
    _dg(tmp_path, "check", "yaml")
    _dg(tmp_path, "check", "defs")
    for command in re.findall(r"`dg (launch [^`]*)`", text):
        _dg(tmp_path, *shlex.split(command))
    with connect(f"sqlite:///{tmp_path}/catalog.db") as lake:
        assert lake.table("main.sales.orders").scan().count() == 2
        assert sorted(lake.table("main.sales.report").to_arrow()["amount"].to_pylist()) == [20.0, 250.0]


def _dg(project: Path, *words: str) -> None:
    """Run a command of ``dg`` in a process group of its own: Java, which the command starts, ends with it."""
    command = [sys.executable, "-c", "from dagster_dg_cli.cli import main; main()", *words]
    environment = {**os.environ, "DAGSTER_HOME": str(project)}
    printed = project / "dg.log"  # Not a pipe: its end would come when all processes that have it end.
    with printed.open("w") as log:
        process = subprocess.Popen(
            command, cwd=project, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(timeout=300)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert code == 0, printed.read_text()[-4000:]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_leads_to_a_file(document: str) -> None:
    path = ROOT / document
    targets = [target for target in _LINK.findall(path.read_text()) if not re.match(r"[a-z]+:", target)]
    for target in targets:
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        assert found.exists(), f"{document} links to {target}"
        if anchor:
            assert anchor in _anchors(found.read_text()), f"{document} links to {target}"


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reference_names_every_metadata_key() -> None:
    text = _reference()
    missing = [key for key in sorted(WRITE_KEYS | READ_KEYS) if f"`{key}`" not in text]
    assert missing == []


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", headings[1])
