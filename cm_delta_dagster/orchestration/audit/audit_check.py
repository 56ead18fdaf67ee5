"""One check of an audited asset: what it needs, and how it runs within the step of the asset."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster._core.execution.plan.compute import gen_from_async_gen
from dagster._core.execution.plan.compute_generator import create_op_compute_wrapper

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.checks.settings import TableCheck
from cm_delta_dagster.orchestration.checks.table_checks import TableChecks, table_checks_of
from cm_delta_dagster.orchestration.metadata.frame_types import FrameType, frame_type, without_none

READ_BY_TABLE_CHECKS = frozenset(
    {TableCheck.ROW_COUNT, TableCheck.PARTITION_ROW_COUNT, TableCheck.SCHEMA_CHANGE, TableCheck.CONSTRAINTS}
)
"""The library checks that are computed from a state alone. The others look at the log, the catalog or the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldInput:
    """An input of a check that gets the held state of an asset."""

    name: str
    asset_key: dg.AssetKey
    kind: FrameType


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """The checks of one function.

    Attributes:
        inputs: each gets the held state of its asset.
        table: for checks of this package, which have no input.
    """

    definition: dg.AssetChecksDefinition
    inputs: tuple[HeldInput, ...]
    table: TableChecks | None

    @classmethod
    def of(cls, definition: dg.AssetChecksDefinition, *, audited: frozenset[dg.AssetKey]) -> "AuditCheck":
        """The checks of a definition.

        Raises:
            InvalidArgumentError: they cannot run within the step of the assets ``audited``.
        """
        table = table_checks_of(definition)
        check = cls(definition=definition, table=table, inputs=())
        check._require_one_step(audited)
        return check if table else replace(check, inputs=tuple(_inputs(definition, audited)))

    @property
    def specs(self) -> tuple[dg.AssetCheckSpec, ...]:
        return tuple(self.definition.check_specs)

    @property
    def reads_partitions(self) -> bool:
        """Whether the checks are partitioned as the asset is; others read the whole table."""
        return any(spec.partitions_def is not None for spec in self.specs)

    def _require_one_step(self, audited: frozenset[dg.AssetKey]) -> None:
        op, name = self.definition.op, self.definition.op.name
        for spec in self.specs:
            if spec.asset_key not in audited:
                listed = ", ".join(sorted(key.to_user_string() for key in audited))
                raise refused(
                    f"the check {spec.name} belongs to {spec.asset_key.to_user_string()}, and {listed} is to be audited. Make it "
                    "a check of that asset"
                )
            if spec.automation_condition is not None:
                raise refused(
                    f"the check {spec.name} has an automation_condition, and runs only within the step of its asset. Remove it"
                )
            if any(dep.asset_key not in audited for dep in spec.additional_deps):
                raise refused(
                    f"the check {spec.name} has additional_ins or additional_deps, which the step of the audited asset does not "
                    "wait for. Make the check a step of its own, or have the asset read what it needs"
                )
        if _has_configuration(op):
            raise refused(
                f"the check {name} has a configuration, and that of the step is the asset's. Take the values from a resource"
            )
        if self.table is not None:
            for kind in self.table.checks:
                if kind not in READ_BY_TABLE_CHECKS:
                    readable = ", ".join(sorted(READ_BY_TABLE_CHECKS))
                    raise refused(
                        f"the check {kind.value} does not look at the rows to be published. Register it as a step of its own; "
                        f"of table_checks, an audit takes {readable}"
                    )

    def run(
        self, context: dg.AssetCheckExecutionContext, states: "States", *, load: Callable[["HeldInput"], Any]
    ) -> Iterator[dg.AssetCheckResult]:
        """The results of the checks, with their names.

        Raises:
            InvalidArgumentError: the function gives something else than the results of its checks.
        """
        if self.table is not None:
            key = self.table.asset.key
            results: Any = self.table.results(context, state=states.tables[key], written=states.written[key])
        else:
            results = create_op_compute_wrapper(self.definition.op)(
                context,  # type: ignore[arg-type]
                {entry.name: load(entry) for entry in self.inputs},
            )
        if inspect.isasyncgen(results):
            results = gen_from_async_gen(context.get_step_execution_context(), results)
        names = {
            asset_key: {spec.name for spec in self.specs if spec.asset_key == asset_key}
            for asset_key in self.asset_keys
        }
        missing = {spec.key for spec in self.specs}
        for result in results:
            if not isinstance(result, dg.AssetCheckResult):
                raise InvalidArgumentError(
                    f"The check {self.definition.op.name} returned a value of the type {type(result).__name__}; return a "
                    "dg.AssetCheckResult."
                )
            check_key = result.resolve_target_check_key(names)
            missing.discard(check_key)
            yield result._replace(asset_key=check_key.asset_key, check_name=check_key.name)
        if missing:
            listed = ", ".join(sorted(missed.name for missed in missing))
            raise InvalidArgumentError(f"The check {self.definition.op.name} gave no result for {listed}.")

    @property
    def asset_keys(self) -> frozenset[dg.AssetKey]:
        """The assets that the checks belong to."""
        return frozenset(spec.asset_key for spec in self.specs)


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """What the checks of a step read.

    Attributes:
        tables: by asset.
        written: by asset, the partitions that the step writes.
    """

    tables: Mapping[dg.AssetKey, ReadableTable]
    written: Mapping[dg.AssetKey, tuple[str, ...]]


def _inputs(definition: dg.AssetChecksDefinition, audited: frozenset[dg.AssetKey]) -> Iterator[HeldInput]:
    """The inputs with rows, at least one. Raises InvalidArgumentError also for one that an audit cannot load."""
    if all(entry.dagster_type.is_nothing for entry in definition.op.input_defs):
        raise refused(
            f"the check {definition.op.name} has no parameter for the rows of the asset, so it would read what readers see "
            "already. Add one with an annotation, such as orders: pyarrow.Table"
        )
    for name, key in definition.node_keys_by_input_name.items():
        kind = definition.op.input_def_named(name).dagster_type
        if kind.is_nothing:
            continue
        if key not in audited:
            raise refused(
                f"the check {definition.op.name} has the input {name} of {key.to_user_string()}, which is not audited "
                "with it. Make the check a step of its own, or have the asset read what it needs"
            )
        annotation = without_none(kind.typing_type)
        annotated = frame_type(annotation)
        if annotated is None:
            raise refused(
                f"the input {name} of the check {definition.op.name} is annotated {getattr(annotation, '__name__', annotation)}. "
                f"Annotate it with one of {', '.join(FrameType)}"
            )
        yield HeldInput(name=name, asset_key=key, kind=annotated)


def _has_configuration(op: dg.OpDefinition) -> bool:
    config_type: Any = op.config_schema.as_field().config_type
    return bool(getattr(config_type, "fields", None)) or config_type.kind.value not in ("ANY", "STRICT_SHAPE")


def refused(why: str) -> InvalidArgumentError:
    """The error of a definition."""
    return InvalidArgumentError(f"The asset cannot be audited: {why}.")
