"""The map of the code names modules that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.repository.requirements import ROOT

_PAGES = (
    ROOT / "docs" / "architecture.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
)
_MODULE = re.compile(r"`([\w/.]+\.py)`")


def _modules() -> set[str]:
    return {
        f"/{file.relative_to(ROOT)}"
        for folder in ("cm_delta_dagster", "tests")
        for file in (ROOT / folder).rglob("*.py")
    }


def _named(page: Path) -> Iterator[tuple[str, str]]:
    return ((page.name, name) for name in _MODULE.findall(page.read_text()))


def test_modules_named_in_the_pages_for_contributors_exist() -> None:
    modules = _modules()
    named = [item for page in _PAGES for item in _named(page)]
    missing = [f"{page}: {name}" for page, name in named if not any(module.endswith(f"/{name}") for module in modules)]
    assert not missing, "\n".join(missing)
    assert len(named) > 20
