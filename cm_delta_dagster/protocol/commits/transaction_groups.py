"""The commits of one transaction over several tables (protocol heading "The transactionGroup Action").

Each of them names all of them, so that every staged commit shows which others were proposed with it. A catalog ratifies such
commits only together, and only all of them.
"""

from collections.abc import Mapping
from typing import Any

from cm_delta_dagster.protocol.actions.actions import TRANSACTION_TAG, TransactionGroup
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw

_ACTION = "transactionGroup"


def flaw_of_tag(group: TransactionGroup, commit_info: Mapping[str, Any]) -> CommitFlaw | None:
    """The flaw of a commit whose ``commitInfo`` does not have the id of its group as a tag."""
    if (commit_info.get("tags") or {}).get(TRANSACTION_TAG) == group.transaction_id:
        return None
    why = f"is not the tag {TRANSACTION_TAG} of commitInfo, which every commit of the transaction has"
    return CommitFlaw(action=_ACTION, field="transactionId", why=why)


def flaw_of_groups(
    versions: Mapping[str, int], groups: Mapping[str, TransactionGroup | None]
) -> tuple[str, CommitFlaw] | None:
    """The first flaw of commits that are proposed together, with the id of its table; None if there is none.

    Commits without the action may be proposed together: of those it is not known which others belong to them.

    Args:
        versions: the proposed versions by table id.
        groups: what the commits say, by table id; without the commits whose content is not known.
    """
    first = next((group for group in groups.values() if group is not None), None)
    if first is None:
        return None
    for table_id, group in groups.items():
        if group is None:
            why = "is missing, and a commit that is proposed with it has one"
            return table_id, CommitFlaw(action=_ACTION, field="", why=why)
        participants = {part.table_id: part.proposed_version for part in group.participants}
        if participants != versions:
            why = _difference(participants, versions)
            return table_id, CommitFlaw(action=_ACTION, field="participants", why=why)
        if (group.transaction_id, group.coordinating_catalog) != (first.transaction_id, first.coordinating_catalog):
            why = "is another one than that of a commit that is proposed with it"
            return table_id, CommitFlaw(action=_ACTION, field="", why=why)
    return None


def _difference(participants: Mapping[str, int], versions: Mapping[str, int]) -> str:
    """What the participants have that the proposals have not, or the other way round."""
    for table_id, version in participants.items():
        if table_id not in versions:
            return f"names version {version} of table {table_id}, which is not proposed with it"
        if version != versions[table_id]:
            return f"names version {version} of table {table_id}, and version {versions[table_id]} is proposed"
    absent = next(table_id for table_id in versions if table_id not in participants)
    return f"lacks table {absent}, which is proposed with it"
