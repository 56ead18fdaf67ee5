"""The pages of the API reference: they have every name that the two packages export, and what their methods return."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import cm_delta_dagster
from cm_delta_dagster import orchestration
from tests.support.public_classes import NAMESPACES

PAGES = Path(__file__).parents[2] / "docs" / "reference"
_ENTRY = re.compile(r"^::: (?P<module>\S+)\.(?P<name>\w+)$", re.M)


def _texts() -> list[str]:
    return [page.read_text() for page in sorted(PAGES.glob("*.md"))]


def _documented() -> Iterator[tuple[str, object]]:
    """Name and object of each entry of the pages."""
    for text in _texts():
        for entry in _ENTRY.finditer(text):
            yield entry["name"], getattr(importlib.import_module(entry["module"]), entry["name"])


def test_each_entry_of_the_pages_is_one_object() -> None:
    for text in _texts():
        assert len(_ENTRY.findall(text)) == text.count(":::")


def test_the_index_names_each_page() -> None:
    index = (PAGES / "index.md").read_text()
    assert {page.name for page in PAGES.glob("*.md")} - {"index.md"} == set(re.findall(r"\]\((\w+\.md)\)", index))


def test_the_pages_have_the_names_that_the_packages_export() -> None:
    names = [name for name, _ in _documented()]
    exported = {*cm_delta_dagster.__all__, *orchestration.__all__} - {"__version__"}
    assert len(names) == len(set(names))
    assert {*exported, *(kind.__name__ for kind in NAMESPACES.values())} - set(names) == set()


def test_the_pages_document_the_objects_that_the_packages_export() -> None:
    for name, documented in _documented():
        for package in (cm_delta_dagster, orchestration):
            assert name not in package.__all__ or getattr(package, name) is documented
