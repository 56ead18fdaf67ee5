"""Words that the code, its messages and the pages do not use, and what they use in their place."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

WORDS = {
    r"rooms?": "package",
    r"(?:an?|the|top|lower|upper|middle|ground) floors?|floors": "layer",
    r"seams?": "interface",
    r"front[ _]doors?": "public API",
    r"(?:an?|one|one'?s|its|their|whose) turns?|ones_turn|(?:takes?|took|taking|gives?)[ _]turns?|turn_seconds": "commit lock",
    r"in a crowd|crowd(?:ed)?": "under contention",
    r"(?:have|has|had) met|met others": "contended",
    r"tells?|telling|told|untold\w*": "report, record, show; reported, unreported",
    r"learn(?:ed|s)?": "read, noticed; winners",
    r"the mark|marks? of publication|late[ _]marks?": "published version, late report",
    r"rac(?:e|es|ed|ing)": "rebase, conflict, concurrent",
    r"after_commit": "post-commit hooks",
    r"nobody waits for": "asynchronous",
    r"hurry|begin_anew|unhurried|settle[sd]?|settling": "flush, reset_after_fork",
    r"soon": "schedule, once",
    r"at_once": "concurrent, immediately",
    r"accepted_(?!commits)\w+": "committed_files",
    r"plan_batch": "build_stream_plan",
    r"anew": "again",
    r"kept_from|kept contents?": "content_from_version, cached commits",
    r"WORN_RATIO|worn": "deleted rows ratio",
    r"legality": "validation",
    r"examinations?": "check",
    r"claims?|claimed|unclaimed": "lease; orphan files",
    r"lost answers?": "unknown commit outcome",
    r"pauses?|draws": "backoff, jitter",
    r"off the net": "unreachable",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"in vain": "without effect",
    r"who(?:ever|soever)": "the client, the writer, the user that",
    r"somebody|nobody": "another client, no client",
}
"""Regular expressions, matched as whole words in any case, with the words to use."""

ALLOWED = {
    "CHANGELOG.md": (  # Former names.
        "turn_seconds",
        "cm-delta unclaimed",
        "claim_maintenance",
        "longest_pause_seconds",
        "tell_definition",
    ),
    "cm_delta_dagster/arrow/data_files.py": ("def tell(",),  # A method of Python's files.
    "cm_delta_dagster/arrow/write/data_file_writer.py": (".tell()",),
    "cm_delta_dagster/catalog/sql/database/schema.py": (
        "cm_delta_maintenance_claims",
    ),  # Only a migration can change it.
    "tests/catalog/sql/database/pooler.py": ("loop.call_soon_threadsafe",),
    "tests/faults/chaos_worker.py": ("buffer.tell()",),
    "tests/orchestration/runs/test_resources.py": ("turn_seconds",),  # A setting that is not known any more.
}
"""Text that may stay in a file."""

_PATTERN = re.compile(rf"(?<![a-z])(?:{'|'.join(WORDS).lower()})(?![a-z])")
"""Searched in lower-cased text: without groups and without regard to case it is several times faster."""


_SUFFIXES = (".md", ".mako", ".py", ".toml", ".tsv", ".yaml", ".yml")
_FOLDERS = (
    ".ci",
    ".github",
    "benchmarks",
    "cm_delta_dagster",
    "definitions",
    "deployment",
    "docs",
    "resources",
    "tests",
)


def _files() -> Iterator[Path]:
    yield from sorted(file for file in ROOT.iterdir() if file.suffix in _SUFFIXES)
    for folder in _FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            # This file holds the list, and two checkers are copied unchanged.
            ours = file != Path(__file__) and file.name not in ("check.py", "check_dml.py")
            if ours and (file.suffix in _SUFFIXES or folder == ".ci"):
                yield file


_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word in CamelCase begins."""


def words_of(text: str) -> list[tuple[int, str, str]]:
    """Line number, word, and what to write in its place, of each word of the list in ``text``, also inside of CamelCase."""
    text = _CAPITAL.sub("_", text)
    return [
        (text.count("\n", 0, match.start()) + 1, text[match.start() : match.end()], _instead(match[0]))
        for match in _PATTERN.finditer(text.lower())
    ]


def _instead(word: str) -> str:
    return next(instead for pattern, instead in WORDS.items() if re.fullmatch(pattern.lower(), word))


def test_the_words_of_the_list_are_not_used() -> None:
    found = []
    for file in _files():
        name = str(file.relative_to(ROOT))
        text = file.read_text()
        for allowed in (*ALLOWED.get(name, ()), "signal.pause"):
            text = text.replace(allowed, "")
        found += [f"{name}:{line}: {word!r}: write {instead}" for line, word, instead in words_of(text)]
    assert not found, "\n".join(found)


def test_commands_in_messages_have_no_placeholder() -> None:
    """A message has the identifier of the table, or is worded without one."""
    package = sorted((ROOT / "cm_delta_dagster").rglob("*.py"))
    found = [str(file.relative_to(ROOT)) for file in package if re.search(r"cm-delta \w+ NAME", file.read_text())]
    assert not found


def test_a_word_of_the_list_is_found_in_any_case() -> None:
    assert [(line, word) for line, word, _ in words_of("A room.\nTold twice, retold")] == [(1, "room"), (2, "Told")]


def test_a_word_of_the_list_is_found_in_names() -> None:
    names = "CommitRoom _ROWS_AT_ONCE lose_a_race AfterCommit PLAN_BATCH accepted_files"
    assert [word for _, word, _ in words_of(names)] == [
        "Room",
        "AT_ONCE",
        "race",
        "After_Commit",
        "PLAN_BATCH",
        "accepted_files",
    ]
    assert words_of("trace bedroom accepted_commits at once, in turn") == []


def test_pages_settings_and_templates_are_read() -> None:
    names = {str(file.relative_to(ROOT)) for file in _files()}
    assert names >= {
        "pyproject.toml",
        "mkdocs.yml",
        ".ci/run",
        ".github/ISSUE_TEMPLATE/bug.yml",
        "docs/links.py",
        "README.md",
    }
