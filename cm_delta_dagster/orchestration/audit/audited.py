"""Audited assets: definitions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster._core.execution.plan.compute import gen_from_async_gen
from dagster._core.execution.plan.compute_generator import create_op_compute_wrapper

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import hold_duration_ms
from cm_delta_dagster.orchestration.assets.change_inputs import io_manager_of
from cm_delta_dagster.orchestration.assets.commit_together import check_group
from cm_delta_dagster.orchestration.assets.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.audit.audit_check import AuditCheck, refused
from cm_delta_dagster.orchestration.audit.run_guard import refuse_visible_rows
from cm_delta_dagster.orchestration.audit.step_audit import StepAudit
from cm_delta_dagster.orchestration.metadata.audit_mode import AUDITED_BY, mark_audit
from cm_delta_dagster.orchestration.metadata.metadata_keys import DEFAULT_READ_KEYS, WRITE_KEYS, own_entries
from cm_delta_dagster.orchestration.metadata.metadata_values import switch

DEFAULT_HOLD = timedelta(days=7)


def audited(
    asset: dg.AssetsDefinition,
    *,
    checks: Iterable[dg.AssetChecksDefinition | Sequence[dg.AssetChecksDefinition]],
    hold: timedelta = DEFAULT_HOLD,
) -> dg.AssetsDefinition:
    """The same asset with checks that read its rows before any reader of the table sees them.

    Its step writes the rows and has the catalog hold the commit. The checks get exactly what the table would be. If no blocking
    check fails with severity ERROR, the commit is ratified; otherwise it is discarded, the step fails, and the table stays as it
    is.

    Args:
        asset: of ``@dg.asset``, or of ``@dg.multi_asset`` with ``commit_together`` in the metadata of all outputs.
        checks: of ``@dg.asset_check`` and ``@dg.multi_asset_check``, with a parameter for the rows, and of ``table_checks``. They
            become a part of the asset; do not register them as well.
        hold: how long the checks, and retries of a step that was stopped, may take. The rows are discarded then.

    Raises:
        InvalidArgumentError: the asset or a check cannot be a part of an audit.
    """
    hold_ms = hold_duration_ms(hold)
    _check_asset(asset)
    audit_checks = [AuditCheck.of(check, audited=frozenset(asset.keys)) for check in _flat(checks)]
    specs = _check_specs(asset, audit_checks)
    resources = dict(asset.resource_defs)
    for check in audit_checks:
        resources = {**check.definition.resource_defs, **resources}
    names = ", ".join(spec.name for spec in specs.values())
    attributes = asset.get_attributes_dict() | {
        "node_def": _audited_op(asset.op, audit_checks, specs, hold_ms=hold_ms),
        "check_specs_by_output_name": {**asset.node_check_specs_by_output_name, **specs},
        "selected_asset_keys": None,
        "selected_asset_check_keys": None,
        "resource_defs": resources,
        "specs": [spec.merge_attributes(metadata={AUDITED_BY: names}) for spec in asset.specs],
    }
    return dg.AssetsDefinition.dagster_internal_init(**attributes)


def _flat(
    checks: Iterable[dg.AssetChecksDefinition | Sequence[dg.AssetChecksDefinition]],
) -> Iterator[dg.AssetChecksDefinition]:
    if isinstance(checks, dg.AssetChecksDefinition):
        checks = [checks]
    for check in checks:
        for definition in check if isinstance(check, list | tuple) else [check]:
            if not isinstance(definition, dg.AssetChecksDefinition):
                raise refused(f"{definition!r} is no check. Give functions with @dg.asset_check, or table_checks(...)")
            yield definition


def _check_asset(asset: dg.AssetsDefinition) -> None:
    """Raises InvalidArgumentError."""
    if not isinstance(asset, dg.AssetsDefinition) or not asset.is_materializable:
        raise refused(f"{asset!r} is no asset of a function. Give what @dg.asset or @dg.multi_asset returns")
    name = ", ".join(sorted(key.to_user_string() for key in asset.keys))
    if not isinstance(asset.node_def, dg.OpDefinition):
        raise refused(f"{name} is made by a graph of ops. Give what @dg.asset or @dg.multi_asset returns")
    if asset.can_subset:
        raise refused(
            f"{name} are outputs of a function with can_subset, and a run that leaves one out would not check it. Remove can_subset"
        )
    own = [spec.name for spec in asset.check_specs if spec.blocking]
    if any(AUDITED_BY in spec.metadata for spec in asset.specs):
        raise refused(f"{name} is audited already. Give all checks to one audit")
    if own:
        raise refused(
            f"the function of {name} yields the result of the blocking check {own[0]} itself, when readers see the rows already. "
            "Make it a function with @dg.asset_check, and give that to the audit"
        )
    outputs = {
        asset.get_output_name_for_asset_key(key): asset.op.output_dict[asset.get_output_name_for_asset_key(key)]
        for key in asset.keys
    }
    for spec in asset.specs:
        if outputs[asset.get_output_name_for_asset_key(spec.key)].dagster_type.is_nothing:
            raise refused(
                f"{spec.key.to_user_string()} returns no rows, so that it stores its result itself. Return a DataFrame, or "
                "hold the writes of the function itself, see docs/holds.md"
            )
        entries = own_entries(
            spec.metadata,
            known=WRITE_KEYS | DEFAULT_READ_KEYS,
            place=f"The metadata of {spec.key.to_user_string()}",
        )
        if len(outputs) > 1 and not switch(entries.get("commit_together"), "commit_together"):
            raise refused(
                f"{spec.key.to_user_string()} is one of several outputs of a function. Set 'commit_together' in the metadata "
                "of all of them, so that all are published or none is"
            )
    if len(outputs) > 1:
        check_group(name, outputs)


def _check_specs(asset: dg.AssetsDefinition, checks: Sequence[AuditCheck]) -> dict[str, dg.AssetCheckSpec]:
    """The specs of the checks, by the names of the outputs that Dagster has for them. Raises InvalidArgumentError."""
    taken: AbstractSet[dg.AssetCheckKey] = {spec.key for spec in asset.check_specs}
    specs: dict[str, dg.AssetCheckSpec] = {}
    for check in checks:
        for spec in check.specs:
            if spec.key in taken:
                raise refused(f"{spec.asset_key.to_user_string()} has two checks with the name {spec.name}. Rename one")
            taken = taken | {spec.key}
            specs[spec.get_python_identifier()] = spec
    if not any(spec.blocking for spec in specs.values()):
        listed = ", ".join(spec.name for spec in specs.values()) or "there is none"
        raise refused(
            f"no check of it is blocking ({listed}), so that nothing would keep rows from readers. Make those blocking that "
            "must pass"
        )
    return specs


def _audited_op(
    op: dg.OpDefinition, checks: Sequence[AuditCheck], specs: Mapping[str, dg.AssetCheckSpec], *, hold_ms: int
) -> dg.OpDefinition:
    """The op of the asset with outputs for its checks. The function of the asset yields its outputs as before."""

    def compute(context: Any, inputs: Mapping[str, Any]) -> Iterator[Any]:
        step = context.op_execution_context.get_step_execution_context()
        audit = StepAudit(checks=checks, context=context, manager=_manager(step), hold_ms=hold_ms)
        refuse_visible_rows(step, audit.manager)
        with audit.manager.committing(step, audit.commit):
            events = create_op_compute_wrapper(op)(context, inputs)
            yield from events if isinstance(events, Iterator) else gen_from_async_gen(step, events)
        yield from audit.events()

    annotations = getattr(getattr(op.compute_fn, "decorated_fn", None), "__annotations__", {})
    mark_audit(compute, (check.definition.op for check in checks))
    compute.__annotations__ = {"context": annotations["context"]} if "context" in annotations else {}
    return dg.OpDefinition(
        compute_fn=compute,
        name=op.name,
        ins=op.ins,
        outs={**op.outs, **{name: dg.Out(dg.Nothing) for name in specs}},
        description=op.description,
        config_schema=op.config_schema,
        required_resource_keys=frozenset(op.required_resource_keys).union(
            *(check.definition.op.required_resource_keys for check in checks)
        ),
        tags=op.tags,
        retry_policy=op.retry_policy,
        pool=op.pool,
    )


def _manager(step: Any) -> CatalogManagedDeltaIOManager:
    """The IO manager of the assets of the step, which all have the same. Raises InvalidArgumentError."""
    asset_key = min(step.get_output_asset_keys())
    manager = io_manager_of(step, asset_key)
    if not isinstance(manager, CatalogManagedDeltaIOManager):
        raise InvalidArgumentError(
            f"{asset_key.to_user_string()} is audited, and its IO manager is a {type(manager).__name__}, which cannot hold "
            "rows. Nothing was computed. Give the asset a CatalogManagedDeltaIOManager."
        )
    return manager
