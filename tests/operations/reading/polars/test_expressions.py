"""The parts of polars expressions."""

import json
from typing import Any

import polars as pl

from cm_delta_dagster.operations.reading.polars.expressions import PolarsPredicate


def test_hints_that_only_polars_can_evaluate_are_left_out() -> None:
    """A polars of another version puts them beside the condition if a limit is above the scan."""
    hint = {"Display": {"inputs": [], "fmt_str": "dynamic_pred: 4f0e"}}

    class Given:
        """An expression of which polars gives this tree."""

        def __init__(self, tree: Any) -> None:
            self.meta = self
            self._text = json.dumps(tree)

        def serialize(self, format: str) -> str:
            assert format == "json"
            return self._text

    condition = json.loads((pl.col("i") > 3).meta.serialize(format="json"))
    both: Any = Given({"BinaryExpr": {"left": condition, "op": "And", "right": hint}})
    left = PolarsPredicate(both, polars=pl)
    assert left.expression is not None
    assert pl.DataFrame({"i": [3, 4]}).filter(left.expression)["i"].to_list() == [4]
    only: Any = Given(hint)
    assert PolarsPredicate(only, polars=pl).expression is None
