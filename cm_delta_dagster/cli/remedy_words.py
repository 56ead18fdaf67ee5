"""The commands of ``cm-delta`` for remedies. A remedy that is absent here has none, and is said in the words of Python."""

import shlex

from cm_delta_dagster import remedies
from cm_delta_dagster.advice import EntryPoint, RemedyWords, calls
from cm_delta_dagster.remedies import Remedy, TableRemedy

_PLACEHOLDER = "catalog.schema.table"
"""For a table whose name is not known."""
_WITHOUT_OPTION = frozenset({"fail_on_data_loss"})
"""Arguments of Python for which no command has an option."""


def _command(*words: str) -> str:
    return shlex.join(["cm-delta", *words])


def _name(remedy: TableRemedy) -> str:
    return remedy.table or _PLACEHOLDER


def _recover(remedy: TableRemedy) -> tuple[str, ...]:
    return _command("recovery", "recover", _name(remedy)), _command("recovery", "recover", _name(remedy), "--apply")


def _choose(remedy: TableRemedy) -> tuple[str, ...]:
    return tuple(_command("recovery", "recover", _name(remedy), "--keep", kept) for kept in ("catalog", "storage"))


def _relocate(remedy: remedies.RelocateTables) -> tuple[str, ...]:
    command = _command("recovery", "relocate", "--from", remedy.moved_from or "OLD", "--to", remedy.moved_to or "NEW")
    return command, f"{command} --apply"


def _recover_warehouse(remedy: remedies.RecoverWarehouse) -> tuple[str, ...]:
    command = _command("recovery", "recover", "--warehouse", remedy.warehouse or "WAREHOUSE")
    return command, f"{command} --apply"


def _alter(remedy: TableRemedy, command: str, *words: str) -> str:
    return _command("alter", command, _name(remedy), *words)


def _by_spark(remedy: Remedy) -> tuple[str, ...]:
    """The statements of a change that only Spark can make."""
    return tuple(_command("sql", statement) for statement in calls(remedy, EntryPoint.SQL))


def _set_property(remedy: remedies.SetTableProperty) -> tuple[str, ...]:
    return (_alter(remedy, "set-property", f"{remedy.key}={remedy.value}"),)


def _drop_or_rename(remedy: remedies.DropOrRenameColumn) -> tuple[str, ...]:
    return _alter(remedy, "drop-column", remedy.column), _alter(remedy, "rename-column", remedy.column, "NEW_NAME")


def _option(remedy: remedies.RepeatWithOption) -> tuple[str, ...]:
    if remedy.option in _WITHOUT_OPTION:
        return ()
    option = f"--{remedy.option.replace('_', '-')}"
    return (option if isinstance(remedy.value, bool) else shlex.join([option, remedy.value]),)


def _decide(remedy: remedies.DecideApproval) -> tuple[str, ...]:
    return _command("rules", "approve", remedy.approval_id), _command(
        "rules", "reject", remedy.approval_id, "--reason", "TEXT"
    )


WORDS: RemedyWords = {
    remedies.CheckTable: lambda remedy: (_command("doctor", _name(remedy)),),
    remedies.RepairTable: lambda remedy: (_command("doctor", _name(remedy), "--repair"),),
    remedies.TakeBackCommit: lambda remedy: (
        _command("doctor", _name(remedy), "--repair", "--take-back", str(remedy.version)),
    ),
    remedies.RecoverTable: _recover,
    remedies.ChooseHistory: _choose,
    remedies.RelocateTables: _relocate,
    remedies.RecoverWarehouse: _recover_warehouse,
    remedies.DecideApproval: _decide,
    remedies.ListHolds: lambda remedy: (_command("rules", "held"),),
    remedies.ListLeases: lambda remedy: (_command("maintenance", "leases"),),
    remedies.ListApplicationIds: lambda remedy: (_command("access", "list-application-ids", _name(remedy)),),
    remedies.ResetApplicationId: lambda remedy: (
        _command("access", "reset-application-id", "--", _name(remedy), remedy.app_id)
        if remedy.app_id.startswith("-")
        else _command("access", "reset-application-id", _name(remedy), remedy.app_id),
    ),
    remedies.BackUpDatabase: lambda remedy: (_command("--catalog", "URL", "recovery", "backup", remedy.file),),
    remedies.OpenCatalog: lambda remedy: (_command("tables"),),
    remedies.RenameTable: lambda remedy: (_command("rename", _name(remedy), "catalog.schema.new_name"),),
    remedies.SetTags: lambda remedy: (_command("--tag", "NAME=VALUE", "sql", "STATEMENT"),),
    remedies.SetUserMetadata: lambda remedy: (_command("--user-metadata", "TEXT", "sql", "STATEMENT"),),
    remedies.RepeatWithOption: _option,
    remedies.ReadWithoutSpark: lambda remedy: (_command("head", _name(remedy)),),
    remedies.SetClusteringColumns: _by_spark,
    remedies.RemoveClusteringColumns: _by_spark,
    remedies.EnableTableFeature: lambda remedy: (_alter(remedy, "enable-feature", remedy.feature),),
    remedies.DropTableFeature: lambda remedy: (_alter(remedy, "drop-feature", remedy.feature),),
    remedies.SetTableProperty: _set_property,
    remedies.DropOrRenameColumn: _drop_or_rename,
    remedies.AllowMaintenance: lambda remedy: (
        _command("maintenance", "set-policy", remedy.scope, remedy.kind, "--reason", "TEXT"),
    ),
    remedies.AdoptTable: lambda remedy: (_command("onboarding", "adopt", remedy.location or "PATH", _PLACEHOLDER),),
    remedies.AdoptOrRegisterTable: lambda remedy: (
        _command("onboarding", "adopt", remedy.location, _PLACEHOLDER),
        _command("onboarding", "register", remedy.location, _PLACEHOLDER),
    ),
    remedies.GrantPrivilege: lambda remedy: (
        _command("access", "grant", remedy.privilege, remedy.scope or "SCOPE", remedy.principal or "PRINCIPAL"),
    ),
    remedies.RevokePrivilege: lambda remedy: (
        _command("access", "revoke", remedy.privilege, remedy.scope or "SCOPE", remedy.principal or "PRINCIPAL"),
    ),
    remedies.ListGrants: lambda remedy: (
        _command("access", "list-grants", *(["--scope", remedy.scope] if remedy.scope else [])),
    ),
    remedies.RunMaintenance: _by_spark,
    remedies.AddConstraint: _by_spark,
    remedies.ReplaceByOwnRows: _by_spark,
    remedies.RewriteFiles: _by_spark,
}
"""The commands for each kind of remedy."""
