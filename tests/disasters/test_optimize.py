"""The disasters before OPTIMIZE, which reads and writes rows: a few by default, all of them with ``-m exhaustive``."""

import pytest
from pyspark.sql import SparkSession

from tests.disasters.conftest import Places
from tests.disasters.place import Place
from tests.disasters.runner import findings_of_a_healthy_place, run
from tests.disasters.selection import DIFFERENT, EXPECTED, Kind
from tests.disasters.vocabulary import Act, Cell, Harm, Mode, Object, Outcome

FEW = (
    (Object.PUBLISHED_COMMIT, Harm.ONE_BIT),
    (Object.STAGED_COMMIT, Harm.MISSING),
    (Object.SIDECAR, Harm.MISSING),
    (Object.DATA_FILE, Harm.MISSING),
    (Object.DATA_FILE, Harm.ONE_BIT),
    (Object.DATA_FILE, Harm.OTHER_CONTENT),
    (Object.VECTOR_FILE, Harm.ONE_BIT),
    (Object.WAREHOUSE, Harm.TRUNCATED),
    (Object.CATALOG_DATABASE, Harm.OLDER_COPY),
)
ALL = [
    cell for cell in sorted(EXPECTED) if cell.act is Act.OPTIMIZE and EXPECTED[cell].outcome is not Outcome.INAPPLICABLE
]


def differences(place: Place, cell: Cell, spark: SparkSession) -> list[str]:
    healthy = findings_of_a_healthy_place(place)
    wrong = run(place, cell, EXPECTED[cell], healthy=healthy, spark=spark).differences(EXPECTED[cell])
    if cell in DIFFERENT:
        return [] if wrong else [f"{cell}: it comes out as expected; take it from the known differences"]
    return [f"{cell}: {what}" for what in wrong]


@pytest.mark.parametrize(("object_", "harm"), FEW, ids=lambda value: value.value.replace(" ", "_"))
def test_what_optimize_does_after_a_disaster_is_what_the_table_says(
    places: Places, spark: SparkSession, object_: Object, harm: Harm
) -> None:
    cell = Cell(object=object_, harm=harm, act=Act.OPTIMIZE, mode=Mode.STAGED)
    assert not differences(places(Kind.SQLITE, cell.mode), cell, spark)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cell", ALL, ids=lambda cell: str(cell).replace(" ", "_"))
def test_what_optimize_does_after_every_disaster_is_what_the_table_says(
    places: Places, spark: SparkSession, cell: Cell
) -> None:
    assert not differences(places(Kind.SQLITE, cell.mode), cell, spark)
