"""Where the commands of earlier releases are now: the only list, for one release. ``moved_names`` of the Python API is its like."""

from collections.abc import Mapping, Sequence

MOVED_COMMANDS: Mapping[str, str] = {
    "whoami": "access whoami",
    "grant": "access grant",
    "revoke": "access revoke",
    "grants": "access list-grants",
    "grants enable": "access enable-grants",
    "grants disable": "access disable-grants",
    "roles": "access list-roles",
    "roles add": "access add-to-role",
    "roles remove": "access remove-from-role",
    "roles drop": "access drop-role",
    "owner": "access owner",
    "application-ids": "access list-application-ids",
    "reset-application-id": "access reset-application-id",
    "audit": "access audit",
    "rules add": "rules set",
    "approvals": "rules approvals",
    "approve": "rules approve",
    "reject": "rules reject",
    "policy": "maintenance list-policies",
    "policy show": "maintenance list-policies",
    "policy allow": "maintenance set-policy",
    "policy deny": "maintenance set-policy --deny",
    "policy reset": "maintenance remove-policy",
    "leases": "maintenance leases",
    "expire-lease": "maintenance expire-lease",
    "purge": "maintenance purge",
    "orphan-files": "maintenance orphan-files",
    "commit-mode": "settings list-commit-modes",
    "commit-mode show": "settings list-commit-modes",
    "commit-mode set": "settings set-commit-mode",
    "commit-mode reset": "settings remove-commit-mode",
    "catalogs": "settings list-catalogs",
    "catalogs create": "settings create-catalog",
    "catalogs drop": "settings drop-catalog",
    "feed": "events feed",
    "clean-feed": "events clean-feed",
    "recover": "recovery recover",
    "relocate": "recovery relocate",
    "backup": "recovery backup",
    "adopt": "onboarding adopt",
    "release": "onboarding release",
    "export": "onboarding export",
    "register": "onboarding register",
    "unregister": "onboarding unregister",
}
"""New words by old words."""


def moved_command(words: Sequence[str]) -> tuple[str, str] | None:
    """The longest beginning of a command line that was a command, and its new words; None if there is none."""
    beginnings = (" ".join(words[:length]) for length in (2, 1))
    return next(((old, MOVED_COMMANDS[old]) for old in beginnings if old in MOVED_COMMANDS), None)
