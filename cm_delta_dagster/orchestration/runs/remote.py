"""Commits of processes that a Dagster run starts: a script with ``DAGSTER_RUN_ID``, Dagster Pipes, a job on another cluster.

Such a commit names the run in its tags. The commit sensor then waits for the end of the run, and reports the commit only if the
run has stored no event of it. An event names its commit by the metadata of :func:`commit_metadata`.
"""

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg

from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.runs.runs import ASSET_KEY_TAG, RUN_ID_TAG

_RUN_ID_VARIABLE = "DAGSTER_RUN_ID"


def run_context(
    environment: Mapping[str, str] | None = None,
    *,
    run_id: str | None = None,
    asset_key: dg.AssetKey | str | None = None,
) -> CommitProperties:
    """The provenance of commits that belong to a run, for the argument ``context`` of a write.

    Args:
        environment: where ``DAGSTER_RUN_ID`` is looked up; the environment of the process by default.
        run_id: of the run, e.g. ``PipesContext.get().run_id``; None to take it from the environment.
        asset_key: the asset that the commit materializes; None if it is not known.

    Returns:
        A context without tags if there is no run.
    """
    known = run_id or (os.environ if environment is None else environment).get(_RUN_ID_VARIABLE)
    if not known:
        return CommitProperties()
    tags = {RUN_ID_TAG: known}
    if asset_key is not None:
        tags[ASSET_KEY_TAG] = asset_key.to_user_string() if isinstance(asset_key, dg.AssetKey) else asset_key
    return CommitProperties(tags=tags)


def commit_metadata(*, table_id: str, version: int) -> dict[str, Any]:
    """Metadata by which the commit sensor recognizes the event of a commit.

    Add it to what the process or the asset reports, e.g. ``pipes.report_asset_materialization(metadata=...)``.
    """
    return {facts.TABLE_ID: table_id, facts.COMMIT_VERSION: version}
