"""A check that every row satisfies an SQL condition, for audits that a component declares."""

import warnings
from collections.abc import Callable

import dagster as dg
from dagster_shared.utils.warnings import PreviewWarning

from cm_delta_dagster.protocol.features.expressions import checked_text
from cm_delta_dagster.spark.library import DataFrame, F

_SAMPLE_ROWS = 5


def condition_check(spec: dg.AssetSpec, *, name: str, condition: str) -> dg.AssetChecksDefinition:
    """A blocking check of the rows of an asset; of a partitioned one, of those of the partitions of the run.

    Args:
        condition: Spark SQL. A row for which it is NULL does not satisfy it.

    Raises:
        InvalidArgumentError: the condition is no expression.
    """
    text = checked_text(condition)

    with warnings.catch_warnings():
        # Dagster calls partitions of checks a preview. Only the step of the audit uses those of this check.
        warnings.simplefilter("ignore", PreviewWarning)
        decorator = dg.asset_check(
            asset=spec.key,
            name=name,
            blocking=True,
            description=f"Every row satisfies {text}.",
            partitions_def=spec.partitions_def,
        )
        return decorator(_every_row(text))


def _every_row(text: str) -> Callable[[DataFrame], dg.AssetCheckResult]:
    def every_row_satisfies(rows: DataFrame) -> dg.AssetCheckResult:
        wrong = rows.where(~F.coalesce(F.expr(text), F.lit(False)))
        number = wrong.count()
        metadata: dict[str, dg.MetadataValue] = {"cm_delta/wrong_rows": dg.MetadataValue.int(number)}
        if number:
            metadata["cm_delta/sample"] = _sample(wrong)
        verb = "row does" if number == 1 else "rows do"
        described = f"{number:,} {verb} not satisfy {text}." if number else f"Every row satisfies {text}."
        return dg.AssetCheckResult(passed=not number, description=described, metadata=metadata)

    return every_row_satisfies


def _sample(rows: DataFrame) -> dg.MetadataValue:
    """The first rows as a table."""
    return dg.MetadataValue.table(
        records=[
            dg.TableRecord({name: "NULL" if value is None else str(value) for name, value in row.asDict().items()})
            for row in rows.limit(_SAMPLE_ROWS).collect()
        ],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, kind) for name, kind in rows.dtypes]),
    )
