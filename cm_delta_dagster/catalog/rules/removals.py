"""What a commit removes from its table: rows and files, from its actions alone."""

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.catalog.rules.rule_kind import GuardedCommit, RuleArguments
from cm_delta_dagster.protocol.actions.file_columns import dv_ids
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count


def _changing(files: pa.Table) -> pa.Table:
    """Those of ``files`` whose ``dataChange`` is not false."""
    return files.filter(pc.fill_null(files["dataChange"], True)) if files.num_rows else files


def removes_data(commit: GuardedCommit) -> bool:
    """Whether the commit removes rows: a file with ``dataChange``, or more rows than it adds again."""
    actions = commit.actions
    if not actions.removes.num_rows:
        return False
    if _changing(actions.removes).num_rows:
        return True
    lost = removed_rows(commit)
    return lost is None or lost > 0


def removed_rows(commit: GuardedCommit) -> int | None:
    """Rows that the commit removes minus the rows that it adds, at least 0; None if they are not known.

    An update that writes rows again removes none. Readers disagree whether a file that one commit removes and adds is there
    afterwards: its rows count as removed. Actions that remove files need not state their rows. Then the numbers of rows
    that the writers state before and after the commit count, if their numbers of files are those of the actions.
    """
    actions = commit.actions
    if not actions.removes.num_rows:
        return 0
    gone, added = (
        logical_row_count(actions.removes),
        logical_row_count(actions.adds.filter(pc.invert(_in_both(commit)))),
    )
    if gone is not None:
        return max(0, gone - (added or 0))
    before, after = commit.counts, commit.counts_after
    if before is None or after is None or before.num_rows is None or after.num_rows is None:
        return None
    if after.num_files != before.num_files - actions.removes.num_rows + actions.adds.num_rows:
        return None
    return max(0, before.num_rows - after.num_rows)


def removed_files(commit: GuardedCommit) -> int:
    """Files that the commit removes and does not add again with another deletion vector.

    A commit that only rearranges files removes none.
    """
    actions = commit.actions
    gone = actions.removes
    if not gone.num_rows or not actions.has_data_change:
        return 0
    others = actions.adds.filter(pc.invert(_in_both(commit)))
    again = pc.is_in(gone["path"], value_set=others["path"].combine_chunks())
    return int(pc.sum(pc.invert(again)).as_py() or 0)


def _in_both(commit: GuardedCommit) -> pa.ChunkedArray:
    """For each file that the commit adds, whether it also removes it with the same deletion vector."""
    return pc.is_in(_keys(commit.actions.adds), value_set=_keys(commit.actions.removes).combine_chunks())


def _keys(files: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(files["path"], pc.fill_null(dv_ids(files), ""), "\n")


def over_limit(arguments: RuleArguments, key: str, removed: int | None, commit: GuardedCommit) -> str | None:
    """What a commit that removes ``removed`` rows or files does against a limit; None if it is within the limit.

    Args:
        key: ``rows`` or ``files``: the argument that is the limit, unless ``fraction`` is.
        removed: None if it is not known; that is a violation, since the limit may be exceeded.
    """
    if removed == 0:
        return None
    if removed is None:
        return f"removes files whose number of {key} the log does not have"
    limit = arguments.get(key)
    if limit is None:
        total = _total(commit.counts, key)
        if total is None:
            return f"removes {removed} {key} of a table whose number of {key} the catalog does not have"
        fraction = float(str(arguments["fraction"]))
        if removed <= fraction * total:
            return None
        return f"removes {removed} of {total} {key}, more than the fraction {fraction:g}"
    return None if removed <= int(str(limit)) else f"removes {removed} {key}, more than {limit}"


def _total(counts: TableCounts | None, key: str) -> int | None:
    if counts is None:
        return None
    return counts.num_rows if key == "rows" else counts.num_files
