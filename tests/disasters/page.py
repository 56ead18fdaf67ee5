"""Generates ``docs/disasters.md`` from the table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.disasters.harms import FORMS
from tests.disasters.selection import DIFFERENT
from tests.disasters.table import expectations
from tests.disasters.vocabulary import Act, Cell, Expected, Harm, Mode, Object, Outcome

PAGE = Path(__file__).parents[2] / "docs" / "disasters.md"

_WORDS: dict[Outcome, str] = {
    Outcome.RIGHT: "The act succeeds, and reads give the rows that were written.",
    Outcome.WARNED: "The same, and the process logs what is wrong and what to do.",
    Outcome.OLDER: "The read gives the latest version in the catalog, and the process logs that storage holds newer versions.",
    Outcome.REFUSED: ("An error of the named class. No file was written or deleted; the message says what to do."),
    Outcome.FINDING: (
        "`cm-delta doctor` reports it. `--repair` does not change it, because no copy proves the right content."
    ),
    Outcome.REPAIRED: "`cm-delta doctor --repair` repairs it, and `cm-delta doctor` has no findings afterwards.",
    Outcome.RECOVERED: "`cm-delta recovery recover` records the commits that the catalog does not know.",
    Outcome.UNKNOWABLE: (
        "No stored digest distinguishes the changed bytes from the right ones; the table gives the reason."
    ),
    Outcome.INAPPLICABLE: "There is no such case; the table gives the reason.",
}

_ABOUT: dict[Object, tuple[str, str]] = {
    Object.PUBLISHED_COMMIT: (
        "A file `_delta_log/<version>.json`. Here it is the newest one above the checkpoint.",
        "Run `cm-delta doctor NAME --repair`: it restores the file from the staged file or from the catalog. If no copy "
        "exists, restore that file from a backup; commits are never rewritten, so any later backup has the right file.",
    ),
    Object.STAGED_COMMIT: (
        "A file in `_delta_log/_staged_commits` whose commit is ratified and not yet published, so that it is the only copy.",
        "Restore that file from a backup. Until then older versions can be read, and no commit is based on them. Inline "
        "commits and `copied_content_bytes` keep small commits in the catalog as well.",
    ),
    Object.CHECKPOINT: (
        "The newest `_delta_log/<version>.checkpoint...parquet`.",
        "No action is needed: readers read the commits instead, which takes longer. `table.maintenance.checkpoint()` writes a new "
        "one. If log cleanup has removed the commits below the only checkpoint, restore the file from a backup.",
    ),
    Object.SIDECAR: (
        "A file of `_delta_log/_sidecars` that holds the file actions of a checkpoint.",
        "As for a checkpoint.",
    ),
    Object.CHECKSUM: (
        "A file `_delta_log/<version>.crc`, here that of the checkpoint's version.",
        "No action is needed; `cm-delta doctor NAME --repair` writes it again.",
    ),
    Object.HINT: (
        "`_delta_log/_last_checkpoint`, which saves readers a long listing.",
        "No action is needed; the next checkpoint writes it again.",
    ),
    Object.DATA_FILE: (
        "A Parquet file with rows of the latest version.",
        "Restore the file from a backup: the message names it, and data files are never rewritten. Spark and Arrow store a "
        "checksum of each page, with which readers detect changed bytes; in files without page checksums they read wrong values.",
    ),
    Object.VECTOR_FILE: (
        "A file `deletion_vector_<uuid>.bin` that says which rows of a data file are deleted.",
        "Restore the file from a backup; without it deleted rows would reappear, so its data file is not read.",
    ),
    Object.TABLE_DIRECTORY: (
        "The directory of one table, with its data files and `_delta_log`.",
        "Mount the volume, or restore the directory. A backup of storage that is older than that of the catalog lacks "
        "commits: restore the newer files, or restore the catalog to the same time.",
    ),
    Object.WAREHOUSE: (
        "The directory of all tables.",
        "Mount the right volume. If the warehouse has moved, change its location in the catalog with `cm-delta recovery relocate`.",
    ),
    Object.CATALOG_DATABASE: (
        "The SQLite file or the PostgreSQL database with the catalog. The tests damage only the file of SQLite; PostgreSQL "
        "checks its own files.",
        "Restore the newest backup, then run `cm-delta recovery recover --all`: it shows the commits in storage that the backup "
        "does not have, and records them with `--apply`. Without a backup, `cm-delta recovery recover --warehouse DIR` rebuilds "
        "the entries from the logs of the tables.",
    ),
    Object.CATALOG_ROW: (
        "The catalog's record of the newest commit, or of one table.",
        "Restore the catalog's database as it was before it was changed by hand, then run `cm-delta recovery recover NAME`.",
    ),
}


def page() -> str:
    """The text of the page."""
    table = expectations()
    parts = [_head(table)]
    for object_ in Object:
        about, advice = _ABOUT[object_]
        parts.append(
            f"## {object_.value.capitalize()}\n\n{about}\n\n**What to do.** {advice}\n\n{_lines(table, object_)}"
        )
    return "\n".join(parts)


def _head(table: dict[Cell, Expected]) -> str:
    counts = Counter(expected.outcome for expected in table.values())
    rows = "\n".join(f"| {outcome.value} | {counts[outcome]} | {_WORDS[outcome]} |" for outcome in Outcome)
    applied = len(table) - counts[Outcome.INAPPLICABLE]
    return f"""# What happens after a disaster

Something outside of this package lost or changed an object: a disk, an operator, a restored backup, a volume that is
not mounted. This page says what the next process does, which has no information about it. It is generated from the
table in [`tests/disasters/table.py`](../tests/disasters/table.py) by `python -m tests.disasters --write-docs`. The tests
run its lines on real files and databases: `pytest tests/disasters` those of SQLite with staged commits and a sample of
the others, and with `-m exhaustive` all of them, also on PostgreSQL. What happens when processes die and calls fail is
on the page [What happens when something breaks](failures.md); how to make backups and use them is on [Backup and
restore](backup-and-restore.md).

For every line the tests show that

- no acknowledged row is lost while an intact copy of it exists: once the harmed object is restored, every row can be
  read, and no act removes the last intact copy of a commit or a file that the table needs;
- rows that differ from the acknowledged rows come with an error or a warning, except where the line says *cannot be
  known*;
- an act that is refused has changed no file, and every error is an error of this package;
- an act makes no read fail that succeeded before it.

The table has {len(table)} lines, of which {applied} apply: {len(Object)} objects, {len(Harm)} harms, {len(Act)} acts,
{len(Mode)} commit modes. {_differences()}

| outcome | lines | what it means |
|---|---|---|
{rows}
"""


def _differences() -> str:
    if not DIFFERENT:
        return "Each has the outcome that this page states."
    return f"{len(DIFFERENT)} of them have another outcome than this page states; `KNOWN_DIFFERENCES` in the table lists them."


def _lines(table: dict[Cell, Expected], object_: Object) -> str:
    """Forms of the harms, and one row for all harms, acts and modes with the same outcome and reason."""
    harms_of: dict[tuple[tuple[Mode, ...], tuple[Act, ...], Expected], list[Harm]] = {}
    for harm in Harm:
        for modes, by_act in _by_modes(table, object_, harm):
            for expected, acts in by_act:
                harms_of.setdefault((tuple(modes), tuple(acts), expected), []).append(harm)
    rows = ["| commit mode | harm | act | outcome |", "|---|---|---|---|"]
    for (modes, acts, expected), harms in sorted(harms_of.items(), key=lambda row: list(Mode).index(row[0][0][0])):
        rows.append(f"| {_modes(modes)} | {_harms(harms)} | {_acts(acts)} | {_outcome(expected)} |")
    forms = [f"- *{harm.value}*: {FORMS[object_, harm]}" for harm in Harm if (object_, harm) in FORMS]
    return "\n".join([*forms, *([""] if forms else []), *rows]) + "\n"


def _by_modes(
    table: dict[Cell, Expected], object_: Object, harm: Harm
) -> list[tuple[list[Mode], list[tuple[Expected, list[Act]]]]]:
    """Acts grouped by their outcome, for each group of modes in which the outcomes are the same."""
    groups: list[tuple[list[Mode], list[tuple[Expected, list[Act]]]]] = []
    for mode in Mode:
        by_act: list[tuple[Expected, list[Act]]] = []
        for act in Act:
            expected = table[Cell(object=object_, harm=harm, act=act, mode=mode)]
            known = next((acts for other, acts in by_act if other == expected), None)
            if known is None:
                by_act.append((expected, [act]))
            else:
                known.append(act)
        same = next((modes for modes, other in groups if other == by_act), None)
        if same is None:
            groups.append(([mode], by_act))
        else:
            same.append(mode)
    return groups


def _harms(harms: Sequence[Harm]) -> str:
    return "anything" if len(harms) == len(Harm) else ", ".join(harm.value for harm in harms)


def _acts(acts: Sequence[Act]) -> str:
    return "anything" if len(acts) == len(Act) else ", ".join(act.value for act in acts)


def _modes(modes: Sequence[Mode]) -> str:
    return "every" if len(modes) == len(Mode) else ", ".join(mode.value for mode in modes)


def _outcome(expected: Expected) -> str:
    name = f"{expected.outcome.value}: `{expected.error}`" if expected.error else expected.outcome.value
    return f"**{name}**" + (f" - {expected.reason}" if expected.reason else "")
