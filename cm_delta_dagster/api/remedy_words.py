"""The calls of the Python API for remedies. ``lake`` is the connection, ``table`` a table whose name is not known."""

from cm_delta_dagster import remedies
from cm_delta_dagster.advice import RemedyWords
from cm_delta_dagster.remedies import TableRemedy


def _table(remedy: TableRemedy) -> str:
    return "table" if remedy.table is None else f"lake.table({remedy.table!r})"


def _recover(remedy: TableRemedy) -> tuple[str, ...]:
    return f"plan = lake.recovery.plan_recover({_name(remedy)})", "plan.apply()"


def _choose(remedy: TableRemedy) -> tuple[str, ...]:
    return tuple(f"lake.recovery.plan_recover({_name(remedy)}, keep={kept!r})" for kept in ("catalog", "storage"))


def _name(remedy: TableRemedy) -> str:
    return "name" if remedy.table is None else repr(remedy.table)


def _text(value: str | None, placeholder: str) -> str:
    return placeholder if value is None else repr(value)


def _relocate(remedy: remedies.RelocateTables) -> tuple[str, ...]:
    moved_from = "moved_from" if remedy.moved_from is None else repr(remedy.moved_from)
    moved_to = "moved_to" if remedy.moved_to is None else repr(remedy.moved_to)
    return f"plan = lake.recovery.plan_relocate({moved_from}, {moved_to})", "plan.apply()"


def _recover_warehouse(remedy: remedies.RecoverWarehouse) -> tuple[str, ...]:
    warehouse = "warehouse" if remedy.warehouse is None else repr(remedy.warehouse)
    return f"plan = lake.recovery.plan_recover_warehouse({warehouse})", "plan.apply()"


def _set_property(remedy: remedies.SetTableProperty) -> tuple[str, ...]:
    return (f"{_table(remedy)}.alter.set_properties({ ({remedy.key: remedy.value})!r})",)


def _drop_or_rename(remedy: remedies.DropOrRenameColumn) -> tuple[str, ...]:
    alter = f"{_table(remedy)}.alter"
    return f"{alter}.drop_column({remedy.column!r})", f"{alter}.rename_column({remedy.column!r}, to)"


def _decide(remedy: remedies.DecideApproval) -> tuple[str, ...]:
    return f"lake.rules.approve({remedy.approval_id!r})", f"lake.rules.reject({remedy.approval_id!r}, reason)"


def _task(remedy: remedies.RunMaintenance) -> str:
    return remedy.task if remedy.task in ("optimize", "vacuum") else f"maintenance.{remedy.task}"


def _rewrite(remedy: remedies.RewriteFiles) -> tuple[str, ...]:
    call = "maintenance.reorg()" if remedy.column is None else f"optimize(z_order_by={remedy.column!r})"
    return (f"{_table(remedy)}.{call}",)


WORDS: RemedyWords = {
    remedies.CheckTable: lambda remedy: (f"{_table(remedy)}.doctor()",),
    remedies.RepairTable: lambda remedy: (f"{_table(remedy)}.maintenance.repair()",),
    remedies.TakeBackCommit: lambda remedy: (f"{_table(remedy)}.maintenance.repair(take_back=[{remedy.version}])",),
    remedies.RecoverTable: _recover,
    remedies.ChooseHistory: _choose,
    remedies.RelocateTables: _relocate,
    remedies.RecoverWarehouse: _recover_warehouse,
    remedies.DecideApproval: _decide,
    remedies.ListHolds: lambda remedy: ("lake.rules.held()",),
    remedies.ListLeases: lambda remedy: ("lake.maintenance.list_leases()",),
    remedies.ListApplicationIds: lambda remedy: (f"lake.access.list_application_ids({_name(remedy)})",),
    remedies.ResetApplicationId: lambda remedy: (
        f"lake.access.reset_application_id({_name(remedy)}, {remedy.app_id!r})",
    ),
    remedies.OpenCatalog: lambda remedy: ("connect(url).tables()",),
    remedies.BackUpDatabase: lambda remedy: (f"connect(url).recovery.backup({remedy.file!r})",),
    remedies.CreateCatalog: lambda remedy: ("connect(url).tables()",),
    remedies.ConnectWithWarehouse: lambda remedy: ("connect(url, warehouse=warehouse)",),
    remedies.RenameTable: lambda remedy: (f"lake.rename({_name(remedy)}, to)",),
    remedies.RepeatWithOption: lambda remedy: (f"{remedy.option}={remedy.value!r}",),
    remedies.SetTags: lambda remedy: ("connect(url, commit_properties=CommitProperties(tags={name: value}))",),
    remedies.SetUserMetadata: lambda remedy: ("connect(url, commit_properties=CommitProperties(user_metadata=text))",),
    remedies.ReadWithoutSpark: lambda remedy: (f"{_table(remedy)}.to_arrow()",),
    remedies.SetClusteringColumns: lambda remedy: (f"{_table(remedy)}.alter.cluster_by(columns)",),
    remedies.RemoveClusteringColumns: lambda remedy: (f"{_table(remedy)}.alter.cluster_by(())",),
    remedies.EnableTableFeature: lambda remedy: (f"{_table(remedy)}.alter.enable_feature({remedy.feature!r})",),
    remedies.DropTableFeature: lambda remedy: (f"{_table(remedy)}.alter.drop_feature({remedy.feature!r})",),
    remedies.SetTableProperty: _set_property,
    remedies.DropOrRenameColumn: _drop_or_rename,
    remedies.MergeOnCondition: lambda remedy: (f"{_table(remedy)}.merge(source, condition)",),
    remedies.OverwriteWithSchema: lambda remedy: (f"{_table(remedy)}.overwrite(rows, schema_mode='overwrite')",),
    remedies.PassUncheckedCondition: lambda remedy: ("raw_sql(text)",),
    remedies.AllowMaintenance: lambda remedy: (f"lake.maintenance.set_policy({remedy.scope!r}, {remedy.kind!r})",),
    remedies.AdoptTable: lambda remedy: (
        f"lake.onboarding.adopt({'path' if remedy.location is None else repr(remedy.location)}, name)",
    ),
    remedies.AdoptOrRegisterTable: lambda remedy: (
        f"lake.onboarding.adopt({remedy.location!r}, name)",
        f"lake.onboarding.register({remedy.location!r}, name)",
    ),
    remedies.GrantPrivilege: lambda remedy: (
        f"lake.access.grant({remedy.privilege!r}, {_text(remedy.scope, 'scope')}, {_text(remedy.principal, 'to')})",
    ),
    remedies.RevokePrivilege: lambda remedy: (
        f"lake.access.revoke({remedy.privilege!r}, {_text(remedy.scope, 'scope')}, {_text(remedy.principal, 'principal')})",
    ),
    remedies.ListGrants: lambda remedy: (f"lake.access.list_grants({remedy.scope!r})",),
    remedies.IgnoreRetention: lambda remedy: (f"{_table(remedy)}.vacuum(retention, force=True)",),
    remedies.RunMaintenance: lambda remedy: (f"{_table(remedy)}.{_task(remedy)}()",),
    remedies.AddConstraint: lambda remedy: (f"{_table(remedy)}.alter.add_constraint(name, condition)",),
    remedies.ReplaceByOwnRows: lambda remedy: (f"lake.create_table_as({_name(remedy)}, rows, mode='replace')",),
    remedies.RewriteFiles: _rewrite,
    remedies.StreamWithoutSpark: lambda remedy: (f"{_table(remedy)}.stream().to_batches()",),
    remedies.ResumeArrowStream: lambda remedy: (f"{_table(remedy)}.stream({remedy.offset!r}).to_batches()",),
}
"""The calls for each kind of remedy."""
