"""Makes a failing sequence of steps shorter: ``python -m tests.api_model.reduce FILE``, a file with the steps as Python."""

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.api_model import conditions, steps, values
from tests.api_model.sequence import run_sequence
from tests.api_model.steps import Rows, Step

_NAMES = {**vars(steps), **vars(conditions), "nan": values.nan, "inf": values.inf, "Decimal": Decimal}


def parsed(text: str) -> list[Step]:
    """The steps of a text that ``World.text`` wrote."""
    import datetime as module

    names = {**_NAMES, "datetime": module}
    found: list[Step] = eval(text, names)
    return found


def run(sequence: Sequence[Step], spark: SparkSession) -> None:
    """Run steps on a new catalog. Raises the first fault."""
    with tempfile.TemporaryDirectory(prefix="api-model") as home:
        run_sequence(sequence, Path(home), spark)


def kind_of(error: Exception) -> str:
    """What two failures of one cause have in common: the message without values."""
    text = re.sub(r"Spark|Arrow|arrow|spark|duckdb|polars", "R", str(error))
    return f"{type(error).__name__} {re.sub(r'[0-9]+|[[(].*|`.*|main[.].*', '', text)[:40]}"


def failure(sequence: Sequence[Step], spark: SparkSession) -> str | None:
    try:
        run(sequence, spark)
    except Exception as error:
        return kind_of(error)
    return None


def smaller(step: Step) -> Iterator[Step]:
    """The step with fewer rows, clauses or assignments."""
    for item in fields(step):  # type: ignore[arg-type]
        value: Any = getattr(step, item.name)
        if isinstance(value, Rows):
            for number in range(len(value.values)):
                kept = value.values[:number] + value.values[number + 1 :]
                yield replace(step, **{item.name: Rows(value.columns, kept)})  # type: ignore[type-var]
        elif item.name in ("clauses", "assignments", "columns", "properties") and len(value) > 1:
            for number in range(len(value)):
                yield replace(step, **{item.name: value[:number] + value[number + 1 :]})  # type: ignore[type-var]
        elif item.name in ("where", "and_target") and isinstance(value, conditions.Both | conditions.Either):
            yield replace(step, **{item.name: value.left})  # type: ignore[type-var]
            yield replace(step, **{item.name: value.right})  # type: ignore[type-var]


def reduced(sequence: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """A sequence that still fails, from which no single step can be removed."""
    found = list(sequence)
    size = max(1, len(found) // 2)
    while size:
        start = 0
        while start < len(found):
            candidate = found[:start] + found[start + size :]
            if candidate and fails(candidate):
                found = candidate
            else:
                start += size
        size //= 2
    for position in range(len(found)):
        progress = True
        while progress:
            progress = False
            for step in smaller(found[position]):
                candidate = [*found[:position], step, *found[position + 1 :]]
                if fails(candidate):
                    found, progress = candidate, True
                    break
    return found


def main() -> None:
    sequence = parsed(Path(sys.argv[1]).read_text())
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    kind = failure(sequence, session)
    print("fails with", kind, flush=True)
    if kind is None:
        return
    found = reduced(sequence, lambda candidate: failure(candidate, session) == kind)
    print("[\n" + "".join(f"    {step!r},\n" for step in found) + "]")
    try:
        run(found, session)
    except Exception as error:
        print(error)


if __name__ == "__main__":
    main()
