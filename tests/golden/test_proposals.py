"""The commits of other writers pass the checks of proposals; only those of tables that are broken on purpose do not."""

import contextlib
from pathlib import Path

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from cm_delta_dagster.protocol.commits.commit_validation import FlawFoundError
from cm_delta_dagster.protocol.commits.proposal_checks.changed_types import flaw_of_changed_types
from cm_delta_dagster.protocol.commits.proposal_checks.content import CheckedContent, checked
from cm_delta_dagster.protocol.commits.proposal_checks.partitions import partition_types
from tests.support.foreign_commits import as_proposal, commits_below, refused_below

REFUSED = {
    "delta-rs/data_err_logs__table_e": "uses the features catalogOwned",
    "delta-rs/data_err_logs__table_h": "uses the features catalogOwned",
    "delta-rs/data_err_logs__table_i": "uses the features catalogOwned",
    "delta-rs/simple_table_features": "uses the features blahabl",
    "krs-golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata": "schemaString of the action metaData is missing",
    "krs-golden/update-deleted-directory": "schemaString of the action metaData is missing",
    "krs-golden/versions-not-contiguous": "schemaString of the action metaData is missing",
    "spark44/iceberg_v3": "uses the features icebergCompatV3",
    "spark-golden/corrupted-last-checkpoint": "schemaString of the action metaData is missing",
}
"""Part of the message by table; the tables without a schema have no rows.

``icebergCompatV3`` is a feature of writers that this package does not know, so that none of its clients could write the table.
"""


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


def test_no_commit_of_a_golden_table_contradicts_its_types(golden_root: Path) -> None:
    number = 0
    flaws: dict[str, str] = {}
    by_table: dict[Path, list[CheckedContent]] = {}
    for file, data in commits_below(golden_root):
        with contextlib.suppress(FlawFoundError):
            by_table.setdefault(file.parent, []).append(checked(as_proposal(data)))
    for log, contents in by_table.items():
        metadata: Metadata | None = None
        protocol: Protocol | None = None
        for content in contents:
            before, protocol = (metadata, protocol or content.protocol), content.protocol or protocol
            metadata = content.metadata or metadata
            if metadata is None or protocol is None:
                continue
            number += 1
            flaw = content.partitions.flaw_for(partition_types(metadata, protocol))
            if before[0] is not None and before[1] is not None and not content.marks.num_removed:
                flaw = flaw or flaw_of_changed_types(
                    (before[0], before[1]), (metadata, protocol), operation=content.operation
                )
            if flaw is not None:
                flaws[str(log.parent.relative_to(golden_root))] = str(flaw)
    assert number > 900
    assert flaws == {}
