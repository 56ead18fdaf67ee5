"""Checks row ids and their high-water mark (protocol heading "Row Tracking") for ``doctor``. Changes nothing."""

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.doctor.check_commits import CheckedCommit, add_unusable
from cm_delta_dagster.operations.doctor.findings import Findings, Problem, Severity
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.statistics.statistics import num_records


def check_row_ids(table: Table, state: TableState, findings: Findings, *, marked_by: CheckedCommit | None) -> None:
    """Report a high-water mark that is damaged or below the ids of live files, and files that share ids.

    Args:
        marked_by: the commit that wrote that number; None if it is not known.
    """
    if not row_tracking.is_supported(state.protocol):
        return
    adds = state.files.adds
    domain = state.domains.get(row_tracking.DOMAIN)
    flaw = None if domain is None else row_tracking.flaw_of_mark(domain)
    if flaw is not None:
        _add_damaged(table, state, findings, flaw, marked_by)
        return
    mark = row_tracking.high_water_mark(state.domains)
    records = num_records(adds["stats"])
    highest = row_tracking.highest_row_id(adds["baseRowId"], records)
    if highest > mark:
        findings.add(
            Severity.WARNING,
            Problem.ROW_IDS,
            row_tracking.DOMAIN,
            f"the high-water mark is {mark}, and live rows have ids up to {highest}: a writer has lowered it. This package gives "
            "no id of a live row again, and its next write that adds rows raises it. Other writers may give such ids before: "
            "stop them until then.",
            state.version,
        )
    shared = _num_sharing(adds["baseRowId"].combine_chunks(), records)
    if shared:
        findings.add(
            Severity.ERROR,
            Problem.ROW_IDS,
            row_tracking.DOMAIN,
            f"{counted(shared, 'file')} of version {state.version} with row ids that another live file has too, so that an id does "
            "not identify a row. Restore a version before, or copy the table to a new one.",
            state.version,
        )


def _add_damaged(
    table: Table, state: TableState, findings: Findings, flaw: str, marked_by: CheckedCommit | None
) -> None:
    if row_tracking.known_high_water_mark(state.domains) < 0:
        flaw += " The next write of this package that adds rows replaces it by a mark above the ids of all live rows."
    if marked_by is None or marked_by.record is None or not marked_by.version:
        findings.add(Severity.ERROR, Problem.ROW_IDS, row_tracking.DOMAIN, flaw, state.version)
    else:
        add_unusable(findings, table, marked_by, f"Version {marked_by.version}: {flaw}", Problem.ROW_IDS)


def _num_sharing(ids: pa.Array, records: pa.Array) -> int:
    """The number of files whose ids begin within those of another file. Files of unknown length are left out."""
    known = pc.and_(pc.is_valid(ids), pc.greater(pc.fill_null(records, 0), 0))
    first, count = ids.filter(known), records.filter(known)
    order = pc.sort_indices(first)
    first, ends = first.take(order), pc.add(first, count).take(order)
    if len(first) < 2:
        return 0
    before = pc.cumulative_max(ends).slice(0, len(ends) - 1)
    return int(pc.sum(pc.less(first.slice(1), before)).as_py())
