"""What can be audited: definitions that are refused when they are loaded, and runs that are refused before they compute."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import (
    CatalogManagedDeltaIOManager,
    CatalogResource,
    CheckSettings,
    SparkResource,
    TableCheck,
    audited,
    cm_delta_definitions,
    table_checks,
)


class Limits(dg.Config):
    least: int = 0


@dg.asset(metadata={"mode": "append"})
def orders() -> pa.Table:
    return pa.table({"amount": [1.0]})


@dg.asset(metadata={"mode": "append"})
def customers() -> pa.Table:
    return pa.table({"name": ["acme"]})


@dg.asset_check(asset=orders, blocking=True)
def positive(orders: pa.Table) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=orders)
def reports(orders: pa.Table) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=customers, blocking=True)
def of_customers(customers: pa.Table) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=orders, blocking=True)
def without_rows() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=orders, blocking=True)
def configured(orders: pa.Table, config: Limits) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=orders, blocking=True)
def of_a_list(orders: list) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=orders, blocking=True, additional_ins={"others": dg.AssetIn("customers")})
def joined(orders: pa.Table, others: pa.Table) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=orders, blocking=True, automation_condition=dg.AutomationCondition.eager())
def automated(orders: pa.Table) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@pytest.mark.requirements("WAP-3")
@pytest.mark.parametrize(
    ("checks", "what"),
    [
        ([], "no check of it is blocking"),
        ([reports], "no check of it is blocking"),
        ([of_customers], "belongs to customers"),
        ([without_rows], "no parameter for the rows"),
        ([configured], "has a configuration"),
        ([of_a_list], "is annotated"),
        ([joined], "additional_ins"),
        ([automated], "automation_condition"),
        ([positive, positive], "two checks with the name positive"),
        ([lambda orders: None], "is no check"),
        ([table_checks(orders, checks=[TableCheck.LOG_SIZE])], "does not look at the rows"),
    ],
)
def test_checks_that_an_audit_cannot_run_are_refused(checks: Any, what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=what):
        audited(orders, checks=checks)


@pytest.mark.requirements("WAP-3")
def test_an_asset_that_an_audit_cannot_keep_from_readers_is_refused() -> None:
    @dg.asset(name="orders", check_specs=[dg.AssetCheckSpec("own", asset="orders", blocking=True)])
    def with_own_check() -> Iterator[dg.Output[pa.Table] | dg.AssetCheckResult]:
        yield dg.Output(pa.table({"amount": [1.0]}))
        yield dg.AssetCheckResult(check_name="own", passed=False)

    with pytest.raises(InvalidArgumentError, match="yields the result of the blocking check own itself"):
        audited(with_own_check, checks=[positive])
    with pytest.raises(InvalidArgumentError, match="is audited already"):
        audited(audited(orders, checks=[positive]), checks=[reports])
    for hold in (timedelta(0), timedelta(days=400), 5):
        with pytest.raises(InvalidArgumentError, match="hold is"):
            audited(orders, checks=[positive], hold=hold)


@pytest.mark.requirements("WAP-5")
@pytest.mark.parametrize("mode", ["recheck", "disjoint_ok"])
def test_metadata_for_an_audit_without_one_is_an_error_at_load(mode: str) -> None:
    @dg.asset(metadata={"mode": "append", "audit": mode})
    def forgotten() -> pa.Table:
        return pa.table({"amount": [1.0]})

    assert "Asset forgotten has 'audit' in its metadata, and no audit" in problems(forgotten)


def multi(*, together: bool = True, **arguments: Any) -> dg.AssetsDefinition:
    metadata = {"mode": "append"} | ({"commit_together": True} if together else {})

    @dg.multi_asset(
        outs={
            "orders": dg.AssetOut(metadata=metadata, is_required="can_subset" not in arguments),
            "customers": dg.AssetOut(metadata=metadata, is_required="can_subset" not in arguments),
        },
        **arguments,
    )
    def both() -> Iterator[dg.Output[pa.Table]]:
        yield dg.Output(pa.table({"amount": [1.0]}), "orders")

    return both


@dg.asset
def nothing() -> None:
    return None


@dg.op
def one() -> int:
    return 1


@dg.graph_asset
def of_ops() -> Any:
    return one()


@pytest.mark.parametrize(
    ("asset", "what"),
    [
        (multi(together=False), "Set 'commit_together'"),
        (multi(can_subset=True), "can_subset"),
        (nothing, "returns no rows"),
        (dg.AssetSpec("orders"), "no asset of a function"),
        (of_ops, "graph of ops"),
    ],
)
def test_assets_that_cannot_be_audited_are_refused(asset: Any, what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=what):
        audited(asset, checks=[positive])


def resources() -> dict[str, object]:
    catalog, spark = CatalogResource(url="sqlite:///missing.db", warehouse="missing"), SparkResource()
    return {"spark": spark, "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=spark)}


def problems(*assets: Any, checks: Sequence[dg.AssetChecksDefinition] = ()) -> str:
    defs = dg.Definitions(assets=list(assets), asset_checks=list(checks), resources=resources())
    with pytest.raises(InvalidArgumentError) as caught:
        cm_delta_definitions(defs, look_up_locations=False)
    return str(caught.value)


@pytest.mark.requirements("WAP-3")
def test_a_blocking_check_of_an_audited_asset_as_a_step_of_its_own_is_an_error_at_load() -> None:
    @dg.asset_check(asset=orders, blocking=True)
    def late(orders: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    made = audited(orders, checks=[positive])
    assert "The check late of orders is blocking and is a step of its own" in problems(made, checks=[late])


def test_a_check_of_an_audit_that_a_folder_of_definitions_registers_too_is_a_part_of_the_audit_only() -> None:
    """``load_from_defs_folder`` registers each check that a module defines or imports."""
    made = audited(orders, checks=[positive])
    loaded = dg.Definitions(assets=[made, made], asset_checks=[positive], resources=resources())
    (check,) = cm_delta_definitions(loaded, look_up_locations=False).resolve_asset_graph().asset_check_keys
    assert check == positive.check_key

    @dg.asset_check(asset=orders, name="positive", blocking=True)
    def another(orders: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    assert "The check positive of orders is blocking and is a step of its own" in problems(made, checks=[another])


def test_a_table_of_an_audited_asset_that_another_asset_writes_is_an_error_at_load() -> None:
    @dg.asset(metadata={"mode": "append", "table": "main.default.shared"})
    def first() -> pa.Table:
        return pa.table({"amount": [1.0]})

    @dg.asset(metadata={"mode": "append", "table": "main.default.shared"})
    def second() -> pa.Table:
        return pa.table({"amount": [1.0]})

    @dg.asset_check(asset=first, blocking=True)
    def checked(first: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    assert "Asset first is audited, and second writes to the same table" in problems(
        audited(first, checks=[checked]), second
    )


def test_an_audited_asset_keeps_what_its_definition_says() -> None:
    @dg.asset(
        key=["sales", "bills"],
        description="Bills.",
        metadata={"mode": "append"},
        retry_policy=dg.RetryPolicy(max_retries=2),
        op_tags={"team": "sales"},
        owners=["ada@example.com"],
        code_version="3",
        pool="bills",
        deps=[customers],
    )
    def bills(orders: pa.Table, config: Limits) -> pa.Table:
        return orders

    @dg.asset_check(asset=bills, blocking=True, description="No negative amount.")
    def correct(bills: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    made, (spec,), (before,) = audited(bills, checks=[correct]), *[[*bills.specs]] * 2
    (after,) = made.specs
    assert after.replace_attributes(metadata=before.metadata) == spec
    assert after.metadata["cm_delta/audited_by"] == "correct"
    assert made.op.retry_policy == bills.op.retry_policy and made.op.pool == "bills"
    assert made.op.tags == bills.op.tags
    assert made.keys_by_input_name == bills.keys_by_input_name
    (check,) = made.check_specs
    assert (check.name, check.blocking, check.description) == ("correct", True, "No negative amount.")
    assert table_checks(made, settings=CheckSettings(min_rows=1))
    defs = cm_delta_definitions(
        dg.Definitions(assets=[made, customers, orders], resources=resources()), look_up_locations=False
    )
    dg.Definitions.validate_loadable(defs)
