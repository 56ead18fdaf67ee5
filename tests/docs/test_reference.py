"""The page with the API reference: it has every name that the two packages export, and no other."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import cm_delta_dagster
from cm_delta_dagster import orchestration

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
_ENTRY = re.compile(r"^::: (?P<path>\S+)\n {4}options: \{members: (?:\[(?P<names>[^]]*)\]|false)", re.M)


def _documented() -> Iterator[tuple[str, object]]:
    """Name and object of each entry of the page."""
    for entry in _ENTRY.finditer(PAGE.read_text()):
        module, names = entry["path"], entry["names"]
        if names is None:
            module, _, names = module.rpartition(".")
        for name in re.split(r",\s+", names):
            yield name, getattr(importlib.import_module(module), name)


def test_each_entry_of_the_page_selects_its_members() -> None:
    text = PAGE.read_text()
    assert len(_ENTRY.findall(text)) == text.count(":::")


def test_the_page_has_the_names_that_the_packages_export() -> None:
    names = [name for name, _ in _documented()]
    exported = {*cm_delta_dagster.__all__, *orchestration.__all__} - {"__version__"}
    assert sorted(names) == sorted(exported)


def test_the_page_documents_the_objects_that_the_packages_export() -> None:
    for name, documented in _documented():
        package = cm_delta_dagster if name in cm_delta_dagster.__all__ else orchestration
        assert getattr(package, name) is documented
