"""Words that the code, its messages and the pages do not use, and what they use in their place."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

WORDS = {
    r"rooms?": "package",
    r"(?:top|lower|upper|middle|ground) floors?|floors": "layer",
    r"seams?": "interface",
    r"front[ _]doors?": "public API",
    r"(?:one'?s|its|whose) turn|ones_turn|takes? turns|turn_seconds": "commit lock",
    r"in a crowd|crowd(?:ed)?": "under contention",
    r"(?:have|has|had) met|met others": "contended",
    r"told|untold\w*": "reported, unreported",
    r"learn(?:ed|s)?": "read, noticed; winners",
    r"the mark|marks? of publication": "published version",
    r"(?-i:Race)|lost races?": "rebase, conflict",
    r"AfterCommit|after_commit": "post-commit hooks",
    r"nobody waits for": "asynchronous",
    r"hurry|begin_anew|unhurried": "flush, reset_after_fork",
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
    "CHANGELOG.md": ("turn_seconds", "cm-delta unclaimed", "claim_maintenance", "longest_pause_seconds"),  # Former names.
    "cm_delta_dagster/catalog/sql/schema.py": ("cm_delta_maintenance_claims",),  # Only a migration can change it.
    "tests/orchestration/test_resources.py": ("turn_seconds",),  # A setting that is not known any more.
}
"""Text that may stay in a file."""

_PATTERN = re.compile(
    "|".join(rf"(?P<w{number}>(?<![A-Za-z])(?:{word})(?![A-Za-z]))" for number, word in enumerate(WORDS)), re.I
)


def _files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    for package in ("cm_delta_dagster", "definitions", "resources", "tests", "benchmarks"):
        for file in sorted((ROOT / package).rglob("*.py")):
            # Migrations stay as they were run. This file holds the list, and check.py is copied unchanged.
            if "versions" not in file.parts and file != Path(__file__) and file.name != "check.py":
                yield file


def words_of(text: str) -> list[tuple[int, str, str]]:
    """Line number, word, and what to write in its place, of each word of the list in ``text``."""
    replacements = list(WORDS.values())
    return [
        (text.count("\n", 0, match.start()) + 1, match[0], replacements[int(str(match.lastgroup)[1:])])
        for match in _PATTERN.finditer(text)
    ]


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
    assert words_of("A room.\nTold twice, retold") == [(1, "room", "package"), (2, "Told", "reported, unreported")]
