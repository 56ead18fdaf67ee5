"""The table of operations names what the interfaces of the catalog have."""

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.rest.operations import NOT_ON_THE_WIRE, interfaces, operations
from cm_delta_dagster.catalog.rest.repetition import READS, REPEATABLE


def test_the_catalog_over_http_has_each_method_of_each_interface() -> None:
    with HttpCatalog("http://127.0.0.1:1") as http:
        catalog: Catalog = http
        for part, interface in interfaces().items():
            methods = {name for name, member in vars(interface).items() if callable(member) and name[0] != "_"}
            assert methods and methods <= set(dir(getattr(catalog, part)))


def test_only_what_the_issue_names_is_not_on_the_wire() -> None:
    assert {"coordinator.commit_lock", "coordinator.now_ms", "recovery.back_up"} == NOT_ON_THE_WIRE
    assert {"commit", "commit_together", "get_ratified_commits"} <= set(operations()["coordinator"])


def test_each_operation_that_may_be_repeated_exists() -> None:
    for listed in (READS, REPEATABLE):
        for part, names in listed.items():
            assert names <= set(operations()[part]) and not names & (READS[part] & REPEATABLE.get(part, frozenset()))
