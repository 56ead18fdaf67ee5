"""``docs/disasters.md``, made from the table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.disasters.harms import FORMS
from tests.disasters.selection import DIFFERENT
from tests.disasters.table import expectations
from tests.disasters.vocabulary import Act, Cell, Expected, Harm, Mode, Object, Outcome

PAGE = Path(__file__).parents[2] / "docs" / "disasters.md"

_WORDS: dict[Outcome, str] = {
    Outcome.RIGHT: "The act does what it always does, and what is read is what was written.",
    Outcome.WARNED: "The same, and the log of the process says what is wrong and what to do.",
    Outcome.OLDER: "The read gives the rows that the catalog still knows, and the log says that storage holds more.",
    Outcome.REFUSED: (
        "An error of the named class. Nothing was written and nothing deleted; the message says what to do."
    ),
    Outcome.FINDING: (
        "`cm-delta doctor` names it. With `--repair` it stays, because nothing that is left proves what belongs there."
    ),
    Outcome.REPAIRED: "`cm-delta doctor --repair` put it right, and nothing is left to find.",
    Outcome.RECOVERED: "`cm-delta recover` took in what the catalog did not know.",
    Outcome.UNKNOWABLE: (
        "Nothing that is kept tells the changed bytes from the right ones; the reason stands in the table."
    ),
    Outcome.INAPPLICABLE: "There is no such case; the reason stands in the table.",
}

_ABOUT: dict[Object, tuple[str, str]] = {
    Object.PUBLISHED_COMMIT: (
        "A file `_delta_log/<version>.json`. Here it is the newest one above the checkpoint.",
        "Run `cm-delta doctor NAME --repair`: it puts the file back from the staged file or from the "
        "catalog. Where no copy is left, "
        "restore that one file from a backup; commits are never rewritten, so a backup of any later day "
        "has the right one.",
    ),
    Object.STAGED_COMMIT: (
        "A file in `_delta_log/_staged_commits` whose commit is ratified and not published yet, so that "
        "it is the only copy.",
        "Restore that one file from a backup. Until then older versions can be read, and nobody builds "
        "on them. Inline commits and "
        "`copied_content_bytes` keep small commits in the catalog as well.",
    ),
    Object.CHECKPOINT: (
        "The newest `_delta_log/<version>.checkpoint...parquet`.",
        "Nothing has to be done: the commits are read instead, which takes longer. "
        "`table.checkpoint()` writes a new one. Where log "
        "cleanup has removed the commits below the only checkpoint, restore the file from a backup.",
    ),
    Object.SIDECAR: (
        "A file of `_delta_log/_sidecars` that holds the file actions of a checkpoint.",
        "As for a checkpoint.",
    ),
    Object.CHECKSUM: (
        "A file `_delta_log/<version>.crc`, here that of the checkpoint's version.",
        "Nothing has to be done; `cm-delta doctor NAME --repair` writes it again.",
    ),
    Object.HINT: (
        "`_delta_log/_last_checkpoint`, which saves readers a long listing.",
        "Nothing has to be done; the next checkpoint writes it again.",
    ),
    Object.DATA_FILE: (
        "A Parquet file with rows of the latest version.",
        "Restore the file from a backup: its name is in the message, and it is never rewritten. Spark stores a "
        "checksum of each page, by which readers notice changed bytes; files of writers that store none give "
        "other values then.",
    ),
    Object.VECTOR_FILE: (
        "A file `deletion_vector_<uuid>.bin` that says which rows of a data file are deleted.",
        "Restore the file from a backup; without it deleted rows would come back, so its data file is not read.",
    ),
    Object.TABLE_DIRECTORY: (
        "The directory of one table, with its data files and `_delta_log`.",
        "Mount the volume, or restore the directory. A backup of storage that is older than that of the "
        "catalog lacks commits: restore "
        "the newer files, or restore the catalog to the same moment.",
    ),
    Object.WAREHOUSE: (
        "The directory under which all tables lie.",
        "Mount the right volume. Where the warehouse has moved, tell the catalog with `cm-delta relocate`.",
    ),
    Object.CATALOG_DATABASE: (
        "The SQLite file or the PostgreSQL database with the catalog. Damage to its file is done to "
        "SQLite only; PostgreSQL checks its own files.",
        "Restore the newest backup, then run `cm-delta recover --all`: it shows which commits of storage "
        "the backup does not know, and takes "
        "them in with `--apply`. Without a backup `cm-delta recover --warehouse DIR` rebuilds the "
        "entries from the tables' logs.",
    ),
    Object.CATALOG_ROW: (
        "The catalog's record of the newest commit, or of one table.",
        "Restore the catalog's database as it was before somebody changed it by hand, then run `cm-delta "
        "recover NAME`.",
    ),
}


def page() -> str:
    """The whole page."""
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
not mounted. This page says what the next process meets that knows nothing of it. It is made from the table in
[`tests/disasters/table.py`](../tests/disasters/table.py) by `python -m tests.disasters --write-docs`. The tests carry
out its lines on real files and databases: `pytest tests/disasters` those of SQLite with staged commits and a sample of
the others, and with `-m exhaustive` all of them, on PostgreSQL too. What happens when processes die and calls fail is
on the page [What happens when something breaks](failures.md); how to make backups and use them is on [Backup and
restore](backup-and-restore.md).

For every line, whatever it says, the tests show that

- no acknowledged row is lost for good while an intact copy of it exists: once the harmed object is put back, every row
  can be read, and no act removes the last intact copy of a commit or a file that the table needs;
- rows that differ from what was acknowledged come with an error or a warning, except where the line says *cannot be
  known*;
- a process that is refused has changed no file, and every error is one of this package;
- after an act no reader is worse off than before it.

The table has {len(table)} lines, of which {applied} apply: {len(Object)} objects, {len(Harm)} harms, {len(Act)} acts,
{len(Mode)} commit modes. {_differences()}

| outcome | lines | what it means |
|---|---|---|
{rows}
"""


def _differences() -> str:
    if not DIFFERENT:
        return "Every one of them comes out as it stands here."
    return f"{len(DIFFERENT)} of them do not come out as they stand here yet; they are listed as `KNOWN_DIFFERENCES` in the table."


def _lines(table: dict[Cell, Expected], object_: Object) -> str:
    """Forms of the harms, and one row for all harms, acts and modes of which the same comes for the same reason."""
    harms_of: dict[tuple[tuple[Mode, ...], tuple[Act, ...], Expected], list[Harm]] = {}
    for harm in Harm:
        for modes, by_act in _by_modes(table, object_, harm):
            for expected, acts in by_act:
                harms_of.setdefault((tuple(modes), tuple(acts), expected), []).append(harm)
    rows = ["| commit mode | what happened | what is done then | what comes of it |", "|---|---|---|---|"]
    for (modes, acts, expected), harms in sorted(harms_of.items(), key=lambda row: list(Mode).index(row[0][0][0])):
        rows.append(f"| {_modes(modes)} | {_harms(harms)} | {_acts(acts)} | {_outcome(expected)} |")
    forms = [f"- *{harm.value}*: {FORMS[object_, harm]}" for harm in Harm if (object_, harm) in FORMS]
    return "\n".join([*forms, *([""] if forms else []), *rows]) + "\n"


def _by_modes(
    table: dict[Cell, Expected], object_: Object, harm: Harm
) -> list[tuple[list[Mode], list[tuple[Expected, list[Act]]]]]:
    """Acts grouped by what comes of them, for each group of modes in which that is the same."""
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
