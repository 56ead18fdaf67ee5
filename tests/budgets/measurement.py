"""Which requests an operation sends to the object store, and how many may be sent: ``requests.tsv``."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cm_delta_dagster import Connection
from tests.support.recording_proxy import Caller, RecordedRequest, RecordingProxy

BUDGETS = Path(__file__).with_name("requests.tsv")
COLUMNS = ("operation", "client", "kind", "budget")
NONE = "-"
"""Client and kind of an operation that sends no request."""

Counts = Mapping[str, Counter[tuple[str, str]]]
"""Number of requests by operation, and by client and kind."""


class Measurement:
    """Runs operations one after the other and keeps their requests.

    Attributes:
        all: the requests of each operation, its background work included.
        foreground: those that arrived before the operation returned.
    """

    def __init__(self, proxy: RecordingProxy) -> None:
        self._proxy = proxy
        self.all: dict[str, tuple[RecordedRequest, ...]] = {}
        self.foreground: dict[str, tuple[RecordedRequest, ...]] = {}

    def run(self, operation: str, lake: Connection, work: Callable[[], Any]) -> Any:
        """Run ``work`` while nothing else uses ``lake``."""
        lake.client.wait_for_background()
        self._proxy.clear()
        result = work()
        self.foreground[operation] = self._proxy.requests()
        lake.client.wait_for_background()
        self.all[operation] = self._proxy.requests()
        return result

    def run_alone(self, operation: str, work: Callable[[], Any]) -> None:
        """Run ``work``, leaving background work to a later time."""
        self._proxy.clear()
        work()
        self.foreground[operation] = self.all[operation] = self._proxy.requests()

    def counts(self) -> Counts:
        return {operation: count(requests) for operation, requests in self.all.items()}


def count(requests: Iterable[RecordedRequest]) -> Counter[tuple[str, str]]:
    return Counter((request.caller.value, request.kind.value) for request in requests)


def budgets() -> dict[str, Counter[tuple[str, str]]]:
    """The table of budgets."""
    with BUDGETS.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found: dict[str, Counter[tuple[str, str]]] = {}
    for row in rows:
        of_operation = found.setdefault(row["operation"], Counter())
        if row["client"] != NONE:
            of_operation[row["client"], row["kind"]] = int(row["budget"])
    return found


def write_budgets(counts: Counts) -> None:
    """Replace the budgets of the operations in ``counts``; those of other operations stay."""
    merged = {**(budgets() if BUDGETS.exists() else {}), **counts}
    with BUDGETS.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        for operation, of_operation in merged.items():
            for (client, kind), number in sorted(of_operation.items()) or [((NONE, NONE), 0)]:
                writer.writerow((operation, client, kind, number))


def deviations(counts: Counts, allowed: Counts) -> list[str]:
    """What is wrong, one line for each operation, client and kind; empty if ``counts`` are the budgets."""
    lines = []
    for operation, found in counts.items():
        if operation not in allowed:
            lines.append(f"{operation}: has no budget")
            continue
        budget = allowed[operation]
        for client, kind in sorted(found.keys() | budget.keys()):
            number, limit = found[client, kind], budget[client, kind]
            if number > limit:
                lines.append(f"{operation}: {number} {kind} requests of {client}, and its budget is {limit}")
            elif number < limit and client != Caller.S3A.value:  # Spark may hold what it has read.
                lines.append(f"{operation}: only {number} {kind} requests of {client}: lower its budget of {limit}")
    return lines
