"""The commits of other writers pass the checks of proposals; only those of tables that are broken on purpose do not."""

from pathlib import Path

from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from cm_delta_dagster.protocol.commits.commit_validation import FlawFoundError
from cm_delta_dagster.protocol.commits.proposal_checks.content import checked
from tests.support.foreign_commits import as_proposal, commits_below, refused_below

REFUSED = {
    "delta-rs/data_err_logs__table_e": "uses the features catalogOwned",
    "delta-rs/data_err_logs__table_h": "uses the features catalogOwned",
    "delta-rs/data_err_logs__table_i": "uses the features catalogOwned",
    "delta-rs/simple_table_features": "uses the features blahabl",
    "krs-golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata": "schemaString of the action metaData is missing",
    "krs-golden/update-deleted-directory": "schemaString of the action metaData is missing",
    "krs-golden/versions-not-contiguous": "schemaString of the action metaData is missing",
    "spark-golden/corrupted-last-checkpoint": "schemaString of the action metaData is missing",
}
"""Part of the message by table; the tables without a schema have no rows."""


def test_every_commit_of_a_golden_table_passes_unless_the_table_is_broken(golden_root: Path) -> None:
    number, refused = refused_below(golden_root)
    assert number > 1000
    by_table = {path.partition("/delta/")[0]: why for path, why in refused.items()}
    assert {table: REFUSED.get(table, "") in why for table, why in by_table.items()} == dict.fromkeys(REFUSED, True), (
        by_table
    )


def test_checked_content_has_the_actions_that_readers_decode(golden_root: Path) -> None:
    number = 0
    for _, data in commits_below(golden_root):
        proposal = as_proposal(data)
        try:
            content = checked(proposal)
        except FlawFoundError:
            continue
        assert content.actions(version=7) == decode_commit(proposal, version=7)
        number += 1
    assert number > 1000
