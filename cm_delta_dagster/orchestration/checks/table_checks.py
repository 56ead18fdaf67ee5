"""Asset checks for Dagster: one op for all checks of an asset, which opens the table once."""

import re
from collections.abc import Collection, Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.arguments import listed
from cm_delta_dagster.orchestration.checks.evaluation import Outcome, evaluate
from cm_delta_dagster.orchestration.checks.observation import CheckedAsset, ObservedTable
from cm_delta_dagster.orchestration.checks.settings import CheckSettings, TableCheck
from cm_delta_dagster.orchestration.metadata.metadata_keys import DEFAULT_READ_KEYS, WRITE_KEYS, own_entries
from cm_delta_dagster.orchestration.metadata.write_contract import (
    NamingDefaults,
    parse_partition_expr,
    table_identifier,
)

ACCEPT_SCHEMA_TAG = "cm_delta_checks/accept_schema"
"""Run tag: with the value ``true``, the check of the schema accepts the schema as it is."""

DEFAULT_BLOCKING = frozenset({TableCheck.SCHEMA_CHANGE, TableCheck.CONSTRAINTS})

_DESCRIPTIONS = {
    TableCheck.HEALTH: "Doctor finds no damage in the log, the catalog's records and the data files.",
    TableCheck.UNPUBLISHED_COMMITS: "Few ratified commits are missing in _delta_log.",
    TableCheck.STAGED_COMMITS: "_staged_commits has few files.",
    TableCheck.SMALL_FILES: "Compaction would not join many small files.",
    TableCheck.LOG_SIZE: "_delta_log has few files and bytes.",
    TableCheck.CHECKPOINT_LAG: "The newest checkpoint is not many commits old.",
    TableCheck.FRESHNESS: "The data changed recently, by the time of the commit.",
    TableCheck.ROW_COUNT: "The number of rows and its change by the newest data-changing commit are within bounds.",
    TableCheck.PARTITION_ROW_COUNT: "The number of rows of each materialized partition is within bounds.",
    TableCheck.SCHEMA_CHANGE: "The schema is the declared one, or the one accepted last.",
    TableCheck.CONSTRAINTS: "The table has the declared CHECK constraints.",
    TableCheck.APPROVALS: "No commit waits for an approval.",
    TableCheck.MAINTENANCE: "No maintenance task is due and denied, or overdue.",
}


def table_checks(
    asset: dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey,
    *,
    checks: Collection[TableCheck] | None = None,
    settings: CheckSettings | None = None,
    blocking: Collection[TableCheck] = DEFAULT_BLOCKING,
    table: str | None = None,
    catalog: str = "catalog",
    default_catalog: str = "main",
    default_schema: str = "default",
) -> list[dg.AssetChecksDefinition]:
    """Checks of the tables of ``asset``: one op for each asset key, which reads catalog and log and needs no Spark.

    Args:
        asset: with several asset keys, each gets the checks.
        checks: None for those whose settings are given, without ``HEALTH``.
        settings: limits.
        blocking: checks of which a failure with severity ERROR stops downstream assets in the same run.
        table: name of the table, if metadata and key of the asset do not determine it.
        catalog: key of the CatalogResource.
        default_catalog: first part of the table's name, as for the IO manager.
        default_schema: second part of the table's name, as for the IO manager.

    Raises:
        InvalidArgumentError: there is no such check or ``asset`` is no asset, a check lacks its settings, or metadata does not
            name a table.
    """
    limits = CheckSettings() if settings is None else settings
    chosen = limits.default_checks() if checks is None else tuple(map(_check, listed(checks, name="checks")))
    for check in chosen:
        missing = limits.missing_for(check)
        if missing is not None:
            raise InvalidArgumentError(f"The check {check.value} needs the setting {missing} of CheckSettings.")
    if not chosen:
        raise InvalidArgumentError("No check is chosen. Give at least one, or None for the default checks.")
    names = NamingDefaults(catalog=default_catalog, schema=default_schema)
    return [
        TableChecks(
            asset=checked,
            name=table_name,
            op="table" if checks is None else chosen[0].value,
            checks=chosen,
            settings=limits,
            blocking=frozenset(blocking),
            catalog=catalog,
        ).definition()
        for checked, table_name in _checked_assets(asset, table=table, names=names)
    ]


def _check(name: TableCheck | str) -> TableCheck:
    try:
        return TableCheck(name)
    except ValueError:
        known = ", ".join(check.value for check in TableCheck)
        raise InvalidArgumentError(f"There is no check {name!r}. The checks are {known}.") from None


def _checked_assets(
    asset: dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey, *, table: str | None, names: NamingDefaults
) -> Iterator[tuple[CheckedAsset, str]]:
    if isinstance(asset, dg.AssetKey):
        asset = dg.AssetSpec(asset)
    if not isinstance(asset, dg.AssetSpec | dg.AssetsDefinition):
        raise InvalidArgumentError(
            f"asset is {asset!r}; give an asset, an AssetSpec or an AssetKey, such as dg.AssetKey(['sales', 'orders'])."
        )
    specs = [asset] if isinstance(asset, dg.AssetSpec) else list(asset.specs)
    if table is not None and len(specs) > 1:
        raise InvalidArgumentError(
            f"table is {table!r}, and there are {len(specs)} assets. Call table_checks for each of them."
        )
    for spec in specs:
        place = f"The metadata of {spec.key.to_user_string()}"
        entries = own_entries(spec.metadata, known=WRITE_KEYS | DEFAULT_READ_KEYS, place=place)
        entries |= {} if table is None else {"table": table, "schema": None, "catalog": None}
        declared = spec.metadata.get("dagster/column_schema")
        declared = declared.value if isinstance(declared, dg.MetadataValue) else declared
        checked = CheckedAsset(
            key=spec.key,
            partitions=spec.partitions_def,
            partition_expr=parse_partition_expr(entries.get("partition_expr")),
            column_schema=declared if isinstance(declared, dg.TableSchema) else None,
        )
        yield checked, str(table_identifier(entries, asset_path=spec.key.path, names=names))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChecks:
    """The table of one asset with its checks.

    Attributes:
        name: full name.
        op: end of the name of the op. Two calls for one asset have no check in common, so the first one makes the name unique.
        catalog: key of the CatalogResource.
    """

    asset: CheckedAsset
    name: str
    op: str
    checks: tuple[TableCheck, ...]
    settings: CheckSettings
    blocking: frozenset[TableCheck]
    catalog: str

    def definition(self) -> dg.AssetChecksDefinition:
        """The op for all checks."""

        @dg.multi_asset_check(
            name=re.sub(r"\W", "_", f"check_{'__'.join(self.asset.key.path)}_{self.op}"),
            description=f"Checks of {self.name}, from the catalog and the log.",
            specs=self._specs(),
            can_subset=True,
            required_resource_keys={self.catalog},
        )
        def run_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
            yield from self.results(context)

        _CHECKED[run_checks.op] = self
        return run_checks

    def _specs(self) -> list[dg.AssetCheckSpec]:
        return [
            dg.AssetCheckSpec(
                name=check.value,
                asset=self.asset.key,
                description=_DESCRIPTIONS[check],
                blocking=check in self.blocking,
                metadata={"dagster/table_name": self.name},
            )
            for check in self.checks
        ]

    def results(
        self,
        context: dg.AssetCheckExecutionContext,
        *,
        state: ReadableTable | None = None,
        written: Collection[str] = (),
    ) -> Iterator[dg.AssetCheckResult]:
        """Run the selected checks. An error of one of them is its result.

        Args:
            state: what they read; None for the table as its readers see it.
            written: partitions that are not materialized yet, and that ``state`` has.
        """
        selected_names = {key.name for key in context.selected_asset_check_keys}
        selected = [check for check in self.checks if check.value in selected_names]
        try:
            seen = ObservedTable(
                asset=self.asset,
                table=getattr(context.resources, self.catalog).client.table(self.name),
                state=state,
                settings=self.settings,
                instance=context.instance,
                written=frozenset(written),
                accepts_schema=context.run.tags.get(ACCEPT_SCHEMA_TAG, "").lower() == "true",
            )
        except TableNotFoundError:
            text = f"The table {self.name} does not exist yet. Materialize {self.asset.key.to_user_string()} first."
            for check in selected:
                yield _result(self.asset, check, Outcome(passed=False, text=text))
            return
        for check in selected:
            try:
                outcome = evaluate(check, seen)
                outcome = replace(outcome, is_error=outcome.is_error or check in self.settings.errors)
            except CmDeltaError as error:
                entries = {"cm_delta/error": type(error).__name__}
                text = f"The check could not be computed: {error}"
                outcome = Outcome(passed=False, is_error=True, text=text, metadata=entries)
            context.log.info("%s of %s: %s", check.value, self.name, outcome.text)
            yield _result(self.asset, check, outcome)


_CHECKED: MutableMapping[dg.OpDefinition, TableChecks] = WeakKeyDictionary()
"""The ops of this module."""


def table_checks_of(definition: dg.AssetChecksDefinition) -> TableChecks | None:
    """What :func:`table_checks` made the definition of; None for another one."""
    return _CHECKED.get(definition.op)


def _result(asset: CheckedAsset, check: TableCheck, outcome: Outcome) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.ERROR if outcome.is_error else dg.AssetCheckSeverity.WARN
    metadata: dict[str, Any] = dict(outcome.metadata)
    return dg.AssetCheckResult(
        passed=outcome.passed,
        asset_key=asset.key,
        check_name=check.value,
        severity=severity,
        description=outcome.text,
        metadata=metadata,
    )
