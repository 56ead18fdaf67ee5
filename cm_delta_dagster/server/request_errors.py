"""Errors of requests to the server that no call of this package raises."""

from cm_delta_dagster.errors import CmDeltaError, CommitConflictError, NamespaceNotFoundError


class RequirementConflictError(CommitConflictError):
    """A requirement of an update does not hold: the table has another id, or another etag. Nothing was changed."""


class TooManyRequestsError(CmDeltaError):
    """A caller has made as many requests in a minute as it may. Nothing was changed."""


class NotServedError(CmDeltaError):
    """The request needs what this server does not do. Nothing was changed."""


class NoSuchCatalogError(NamespaceNotFoundError):
    """The request is for a catalog of names that does not exist, or for a schema of it."""
