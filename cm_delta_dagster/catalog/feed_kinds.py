"""The kinds of entries of the catalog's feed."""

from enum import StrEnum


class FeedKind(StrEnum):
    """What an entry of the feed reports. A commit of version 0 that creates a table is TABLE_CREATED."""

    COMMIT = "COMMIT"
    TABLE_CREATED = "TABLE_CREATED"
    TABLE_ADOPTED = "TABLE_ADOPTED"
    TABLE_RELEASED = "TABLE_RELEASED"
    TABLE_RENAMED = "TABLE_RENAMED"
    TABLE_DROPPED = "TABLE_DROPPED"
    TABLE_RESTORED = "TABLE_RESTORED"
    TABLE_PURGED = "TABLE_PURGED"
    NAMESPACE_CHANGED = "NAMESPACE_CHANGED"
    POLICY_CHANGED = "POLICY_CHANGED"
    PROPOSAL_REFUSED = "PROPOSAL_REFUSED"
    LEASE_CHANGED = "LEASE_CHANGED"
