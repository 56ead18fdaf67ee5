"""Outputs of one run that write one table: none replaces the rows of another, and a mapped step reads its own rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from pyspark.sql import DataFrame

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager
from tests.orchestration.conftest import World
from tests.support.dagster_assets import asset, raised, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

TABLE = "main.s.files"
SHARED = {"table": TABLE}
COLUMNS = "file string, n int"


def dynamic_job(world: World, consumer: dg.OpDefinition, **metadata: Any) -> dg.JobDefinition:
    """An op with an output for each of three files, and a step for each of them."""

    @dg.op(out=dg.DynamicOut(Any, metadata={**SHARED, **metadata}))
    def split() -> Iterator[dg.DynamicOutput[Any]]:
        for number, name in enumerate("abc"):
            yield dg.DynamicOutput(world.frame([(name, number)], COLUMNS), mapping_key=name)

    @dg.job(resource_defs=world.resources, executor_def=dg.in_process_executor)
    def load() -> None:
        split().map(consumer)

    return load


def run_of(world: World, job: dg.JobDefinition) -> dg.ExecuteInProcessResult:
    return job.execute_in_process(instance=world.instance)


def test_dynamic_outputs_that_overwrite_one_table_are_refused_at_the_second(world: World) -> None:
    @dg.op
    def use(rows: DataFrame) -> None: ...

    for _ in range(2):
        with pytest.raises(Exception) as caught:
            run_of(world, dynamic_job(world, use))
        error = raised(caught.value)
        assert isinstance(error, InvalidArgumentError)
        assert "split:result:b would replace rows" in str(error) and "split:result:a wrote in the same run" in str(
            error
        )
        assert world.rows(TABLE) == [("a", 0)]


WHERE = {"append": {}, "replace_where": {"where": "file = 'none'"}}


@pytest.mark.parametrize(("mode", "runs"), [("append", 2), ("replace_where", 1)])
def test_a_mapped_step_reads_the_rows_of_its_own_mapping_key(world: World, mode: str, runs: int) -> None:
    """Through each engine; the rows of earlier runs and of the other keys are not read, also not by what collects them."""
    seen, collected = {}, []

    @dg.op
    def gather(frames: list[pa.Table]) -> None:
        collected.extend(sorted(zip(*frame.to_pydict().values(), strict=True)) for frame in frames)

    @dg.op(out=dg.DynamicOut(pl.DataFrame, metadata={**SHARED, "mode": "append"}))
    def split() -> Iterator[dg.DynamicOutput[pl.DataFrame]]:
        for number, name in enumerate("abc"):
            rows = pl.DataFrame({"file": [name] * 2, "n": pl.Series([number] * 2, dtype=pl.Int32)})
            yield dg.DynamicOutput(rows, mapping_key=name)

    @dg.op(out=dg.Out(metadata={"table": "main.s.twice", "mode": mode, **WHERE[mode]}))
    def doubled(context: dg.OpExecutionContext, rows: pl.LazyFrame) -> pl.DataFrame:
        frame = rows.collect()
        seen[context.get_mapping_key()] = sorted(frame.rows())
        if mode == "replace_where":
            context.add_output_metadata({"where": f"file = '{context.get_mapping_key()}'"})
        return frame.with_columns(n=(pl.col("n") * 2).cast(pl.Int32)).filter(pl.col("n") > 0)

    @dg.job(resource_defs=world.resources, executor_def=dg.in_process_executor)
    def load() -> None:
        gather(split().map(doubled).collect())

    for times in range(1, runs + 1):
        seen.clear()
        collected.clear()
        run_of(world, load)
        assert seen == {name: [(name, number)] * 2 for number, name in enumerate("abc")}
        assert collected == [[], [("b", 2)] * 2, [("c", 4)] * 2]
        assert len(world.rows(TABLE)) == 6 * times


def test_mapped_steps_that_overwrite_one_table_are_refused(world: World) -> None:
    @dg.op(out=dg.Out(metadata={"table": "main.s.copies"}))
    def copied(rows: DataFrame) -> DataFrame:
        return rows

    with pytest.raises(Exception) as caught:
        run_of(world, dynamic_job(world, copied, mode="append"))
    assert "op:load:copied[b]:result would replace rows" in str(raised(caught.value))
    assert world.rows("main.s.copies") == [("a", 0)]


def test_the_rows_of_a_merged_mapped_output_cannot_be_read(world: World) -> None:
    @dg.op
    def use(rows: DataFrame) -> None: ...

    with pytest.raises(Exception) as caught:
        run_of(world, dynamic_job(world, use, mode="merge", on=["file"]))
    assert "was merged into main.s.files" in str(raised(caught.value))


def shared(
    world: World, name: str, rows: list[tuple[Any, ...]], deps: Sequence[str] = (), **metadata: Any
) -> dg.AssetsDefinition:
    return asset(name, lambda _: world.frame(rows, COLUMNS), deps=list(deps), metadata={**SHARED, **metadata})


OVERWRITE: dict[str, str] = {}
WHERE_A = {"mode": "replace_where", "where": "file = 'a'"}
WHERE_B = {"mode": "replace_where", "where": "file in ('b', 'c')"}
LIKE_B = {"mode": "replace_where", "where": "upper(file) = 'B'"}
APPEND = {"mode": "append"}
MERGE = {"mode": "merge", "on": ["file"]}
MIRROR = {**MERGE, "merge_mode": "delete_unmatched"}
A, B = [("a", 1)], [("b", 2)]
CASES = [
    # first output, its rows; second output, its rows; whether the second one is written
    (OVERWRITE, A, OVERWRITE, B, False),
    (OVERWRITE, [], OVERWRITE, B, False),
    (OVERWRITE, A, APPEND, B, True),
    (OVERWRITE, A, MERGE, B, True),
    (OVERWRITE, A, MIRROR, B, False),
    (APPEND, A, APPEND, B, True),
    (APPEND, A, OVERWRITE, B, False),
    (MERGE, A, OVERWRITE, B, False),
    (WHERE_A, A, WHERE_B, B, True),
    (WHERE_A, A, LIKE_B, B, True),
    (LIKE_B, B, WHERE_B, B, False),
    (WHERE_A, [], WHERE_A, A, False),
    (OVERWRITE, A, WHERE_B, B, True),
    (APPEND, A, WHERE_B, B, True),
    (APPEND, B, WHERE_B, B, False),
]


def test_an_overwrite_keeps_the_rows_of_the_other_outputs_of_its_run(world: World) -> None:
    """Both outputs write a table that has a row before."""
    old, both = [], []
    for number, (first, first_rows, second, second_rows, _) in enumerate(CASES):
        table = {"table": f"main.s.t{number}"}
        old.append(shared(world, f"old{number}", [("z", 0)], **table))
        both.append(shared(world, f"one{number}", first_rows, **{**first, **table}))
        both.append(shared(world, f"two{number}", second_rows, [f"one{number}"], **{**second, **table}))
    world.materialize(*old)
    result = world.materialize(*both, raises=False)
    refused_steps = {event.step_key for event in result.get_step_failure_events()}
    for number, (first, first_rows, second, second_rows, is_written) in enumerate(CASES):
        what = f"{first} {first_rows}, then {second} {second_rows}"
        assert (f"two{number}" not in refused_steps) is is_written, what
        before = [] if first is OVERWRITE else [("z", 0)]
        assert world.rows(f"main.s.t{number}") == sorted(before + first_rows + (second_rows if is_written else [])), (
            what
        )


def clauses(then: str, condition: str | None = None, **arguments: Any) -> dict[str, Any]:
    """A merge that also changes the rows of the table that the output does not have."""
    others = {"when": "not_matched_by_source", "then": then, "condition": condition, **arguments}
    return {**MERGE, "merge_clauses": [{"when": "not_matched", "then": "insert"}, others]}


ZEROED = {"set": {"n": "0"}}
CLAUSES = [
    # mode of the second output, whose rows are those of ``B``; the rows of a table to which the first one appended those of ``A``
    (clauses("delete"), [*A, ("z", 7)]),
    (clauses("delete", "target.n < 5"), [*A, ("z", 7)]),
    (clauses("delete", "n < 5 OR `target`.file LIKE 'z%'"), [*A, ("z", 7)]),
    (clauses("delete", "true"), [*A, ("z", 7)]),
    (clauses("update", **ZEROED), [*A, ("z", 7)]),
    (clauses("update", "target.n <> 7", **ZEROED), [*A, ("z", 7)]),
    (clauses("update", "target.n > 5", **ZEROED), A + B + [("z", 0)]),
    (clauses("delete", "target.n > 5"), A + B),
]


def test_a_merge_that_changes_unmatched_rows_keeps_those_of_the_other_outputs_of_its_run(world: World) -> None:
    old, both = [], []
    for number, (mode, _) in enumerate(CLAUSES):
        table = {"table": f"main.s.t{number}"}
        old.append(shared(world, f"old{number}", [("z", 7)], **table))
        both.append(shared(world, f"one{number}", A, **{**APPEND, **table}))
        both.append(shared(world, f"two{number}", B, [f"one{number}"], **{**mode, **table}))
    world.materialize(*old)
    result = world.materialize(*both, raises=False)
    refused_steps = {event.step_key for event in result.get_step_failure_events()}
    for number, (mode, rows) in enumerate(CLAUSES):
        assert world.rows(f"main.s.t{number}") == rows, mode
        assert (f"two{number}" in refused_steps) is (B[0] not in rows), mode


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_of_a_file_that_a_merge_rewrote_are_not_known_to_be_others(world: World, vectors: str) -> None:
    """With deletion vectors, the merge writes the rows that it changes, and no other."""
    world.materialize(
        shared(world, "old", [("a", 0), ("b", 0)], table_properties={"delta.enableDeletionVectors": vectors})
    )
    both = shared(world, "one", A, **MERGE), shared(world, "two", B, ["one"], **WHERE_B)
    if vectors == "true":
        world.materialize(*both)
        assert world.rows(TABLE) == A + B
        return
    text = str(refused(world, *both))
    assert "The output two would replace rows of main.s.files in files that the output one rewrote" in text
    assert "Enable deletion vectors ('table_properties': {'delta.enableDeletionVectors': 'true'})" in text
    assert world.rows(TABLE) == [("a", 1), ("b", 0)]


def test_the_slices_of_two_partitioned_assets_are_compared(world: World) -> None:
    def sliced(name: str, keys: Sequence[str], deps: Sequence[str] = ()) -> dg.AssetsDefinition:
        return asset(
            name,
            lambda context: world.frame([(context.partition_key, 1)], COLUMNS),
            partitions_def=dg.StaticPartitionsDefinition(keys),
            deps=deps,
            metadata={**SHARED, "partition_expr": "file"},
        )

    one, two, three = sliced("one", ["a", "b"]), sliced("two", ["a", "b"], ["one"]), sliced("three", ["c"])
    world.materialize(one, partition_key="a")
    world.materialize(two, partition_key="b")
    world.materialize(three, partition_key="c")
    error = refused(world, one, two, partition_key="b")
    assert "The output two would replace rows of main.s.files that the output one:b wrote" in str(error)
    assert world.rows(TABLE) == [("a", 1), ("b", 1), ("c", 1)]


class FailsOnce(CatalogManagedDeltaIOManager):
    """Loses the answer of each first commit."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        if context.step_context.previous_attempt_count == 0:
            raise dg.RetryRequested(max_retries=1)


def test_a_retried_output_overwrites_its_own_rows(world: World) -> None:
    manager = FailsOnce(catalog=world.resources["catalog"], spark=world.resources["spark"])
    world.resources["io_manager"] = manager
    world.materialize(shared(world, "one", A, **WHERE_A), shared(world, "two", B, **WHERE_B))
    assert world.rows(TABLE) == A + B


def test_a_run_that_continues_another_one_keeps_the_rows_of_its_outputs(world: World) -> None:
    """Also the second time; each output has an IO manager of its own, as in processes of their own."""
    other = CatalogManagedDeltaIOManager(catalog=world.resources["catalog"], spark=world.resources["spark"])
    resources = {**world.resources, "other": other}
    two = asset("two", lambda _: world.frame(B, COLUMNS), deps=["one"], io_manager_key="other", metadata=SHARED)
    definitions = dg.Definitions(
        assets=[shared(world, "one", A), two],
        resources=resources,
        jobs=[dg.define_asset_job("write", executor_def=dg.in_process_executor)],
    )
    job = definitions.resolve_job_def("write")
    failed = job.execute_in_process(instance=world.instance, raise_on_error=False)
    assert not failed.success and world.rows(TABLE) == A
    tags = {"dagster/is_resume_retry": "true"}
    run = world.instance.create_run_for_job(job, parent_run_id=failed.run_id, root_run_id=failed.run_id, tags=tags)
    assert not execute_run(InMemoryJob(job), run, world.instance).success
    assert world.rows(TABLE) == A
    assert job.execute_in_process(instance=world.instance, asset_selection=[dg.AssetKey("two")]).success
    assert world.rows(TABLE) == B, "in a run of its own, an output may replace those of other runs"
