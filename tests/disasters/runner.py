"""Runs one cell of the table on real files, and checks the invariants of all cells.

For every cell: every acknowledged row can be read after the act once the harm is undone; no act removes the last intact copy of a
commit or a live file; rows that differ from the acknowledged rows come with an error or a warning; only errors of the package are
raised; and an act that is refused has written nothing.
"""

import hashlib
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.commit_policy import CommitPolicyKind
from cm_delta_dagster.client.snapshots import commit_reader, storage_check
from cm_delta_dagster.errors import CmDeltaError
from tests.disasters import harms
from tests.disasters.acts import NEW_IDS, Answer, perform, read_ids
from tests.disasters.place import LATEST, OLD_VERSION, PUBLISHED, Place
from tests.disasters.vocabulary import Act, Cell, Expected, Harm, Object, Outcome

_DELETES_VERSIONS = (Act.CLEAN_LOG,)
_READS = (Act.READ_LATEST, Act.READ_OLD)


@dataclass(kw_only=True)
class Result:
    """The outcome of a cell, and the violated invariants."""

    cell: Cell
    outcome: Outcome
    error: str = ""
    detail: str = ""
    broken: list[str] = field(default_factory=list)

    def differences(self, expected: Expected) -> list[str]:
        """Differences from ``expected``, and the violated invariants."""
        found = list(self.broken)
        if self.outcome is not expected.outcome or self.error != expected.error:
            got = f"{self.outcome.value}: {self.error}" if self.error else self.outcome.value
            found.insert(0, f"expected {expected}, got {got} ({self.detail})")
        return found


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def warnings_of_package() -> Iterator[list[str]]:
    """The warnings of the package, as in a new process: warnings that are logged once per process are logged again."""
    storage_check._WARNED.clear()
    commit_reader._WARNED.clear()
    handler, logger = _Warnings(), logging.getLogger("cm_delta_dagster")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield handler.messages
    finally:
        logger.propagate = propagates
        logger.removeHandler(handler)


def run(
    place: Place, cell: Cell, expected: Expected, *, healthy: frozenset[str], spark: SparkSession | None = None
) -> Result:
    """Harm a new copy, run the act, and check outcome and invariants.

    Args:
        expected: if UNKNOWABLE, OPTIMIZE may have rewritten changed rows, and the version before has the right rows.
        healthy: findings of doctor in a place without harm.
    """
    earlier = _read_after_harm(place, cell)
    place.reset()
    harms.harm(place, cell)
    before = _Copies.of(place, cell)
    with warnings_of_package() as messages:
        answer, error, raw = _perform(place, cell, spark)
    result = _judged(place, cell, answer, error, messages, healthy)
    if raw is not None:
        result.broken.append(f"raw exception: {raw}")
    after = _Copies.of(place, cell)
    result.broken += before.lost(after, cleaned=cell.act in _DELETES_VERSIONS)
    if error is not None and (changed := before.changed(after)):
        result.broken.append(f"refused, but changed: {', '.join(changed)}")
    appended = NEW_IDS if cell.act is Act.APPEND and error is None else frozenset()
    if error is None and cell.act not in _READS:
        later = _read_latest(place, _recoverable(place, answer) | appended)
        if later.rank < earlier.rank:
            result.broken.append(
                f"after the act a reader gets {later.detail}; before it: {earlier.detail or 'the right rows'}"
            )
    if result.outcome is Outcome.RECOVERED:
        return result
    harms.undo(place, cell)
    before_it = LATEST if expected.outcome is Outcome.UNKNOWABLE and cell.act is Act.OPTIMIZE else None
    back = _read_latest(place, place.facts.ids[LATEST] | appended, version=before_it)
    if back.ids != tuple(sorted(place.facts.ids[LATEST] | appended)):
        result.broken.append(f"after the harm is undone a reader gets {back.detail}")
    return result


def findings_of_a_healthy_place(place: Place) -> frozenset[str]:
    """Findings of doctor without harm: the commit that is not published."""
    place.reset()
    with place.client() as client:
        return perform(Act.DOCTOR, client, warehouse=place.warehouse_location).problems or frozenset()


def _perform(place: Place, cell: Cell, spark: SparkSession | None) -> tuple[Answer, CmDeltaError | None, str | None]:
    try:
        with place.client() as client:
            answer = perform(cell.act, client, warehouse=place.warehouse_location, spark=spark)
            client.wait_for_background()
            return answer, None, None
    except CmDeltaError as error:
        return Answer(), error, None
    except Exception as error:
        return Answer(), CmDeltaError(str(error)), "".join(traceback.format_exception(error)[-3:])


def _judged(
    place: Place, cell: Cell, answer: Answer, error: CmDeltaError | None, messages: list[str], healthy: frozenset[str]
) -> Result:
    if error is not None:
        return Result(cell=cell, outcome=Outcome.REFUSED, error=type(error).__name__, detail=str(error))
    detail = "; ".join(messages)
    if cell.act in _READS:
        version = OLD_VERSION if cell.act is Act.READ_OLD else LATEST
        if answer.ids == tuple(sorted(place.facts.ids[version])):
            return Result(cell=cell, outcome=Outcome.WARNED if messages else Outcome.RIGHT, detail=detail)
        if messages:
            return Result(cell=cell, outcome=Outcome.OLDER, detail=detail)
        return Result(cell=cell, outcome=Outcome.UNKNOWABLE, detail=f"{answer.ids} without an error or a warning")
    if cell.act in (Act.DOCTOR, Act.REPAIR):
        left = (answer.problems or frozenset()) - healthy
        if left:
            return Result(cell=cell, outcome=Outcome.FINDING, detail=", ".join(sorted(left)))
        wrong = _read_latest(place, place.facts.ids[LATEST])
        if wrong.detail:
            return Result(cell=cell, outcome=Outcome.UNKNOWABLE, detail=f"no finding; a reader gets {wrong.detail}")
        return Result(
            cell=cell, outcome=Outcome.REPAIRED if answer.repaired - healthy else Outcome.RIGHT, detail=detail
        )
    if cell.act is Act.OPTIMIZE and _read_latest(place, place.facts.ids[LATEST]).rank == 0:
        return Result(
            cell=cell, outcome=Outcome.UNKNOWABLE, detail="other rows, as before, without an error or a warning"
        )
    if cell.act is Act.RECOVER and answer.recovered:
        seen = _read_latest(place, _recoverable(place, answer))
        return Result(cell=cell, outcome=Outcome.UNKNOWABLE if seen.detail else Outcome.RECOVERED, detail=seen.detail)
    return Result(cell=cell, outcome=Outcome.WARNED if messages else Outcome.RIGHT, detail=detail)


@dataclass(frozen=True, kw_only=True)
class _ReadResult:
    """Result of reading the latest version in a new process. ``detail`` is empty for the right rows without a warning."""

    ids: tuple[int, ...] | None
    detail: str
    rank: int


def _read_latest(place: Place, wanted: frozenset[int], *, version: int | None = None) -> _ReadResult:
    """Rank 4: right rows, 3: right with a warning, 2: other rows with a warning, 1: an error, 0: other rows without a warning."""
    with warnings_of_package() as messages:
        try:
            with place.client() as client:
                ids = read_ids(client, version)
        except CmDeltaError as error:
            return _ReadResult(ids=None, detail=f"{type(error).__name__}: {error}", rank=1)
        except Exception as error:
            return _ReadResult(ids=None, detail=f"raw exception {error!r}", rank=0)
    if ids == tuple(sorted(wanted)):
        return _ReadResult(ids=ids, detail=messages[0] if messages else "", rank=3 if messages else 4)
    return _ReadResult(ids=ids, detail=_difference(ids, wanted), rank=2 if messages else 0)


_EARLIER: dict[tuple[str, Object, Harm], _ReadResult] = {}


def _read_after_harm(place: Place, cell: Cell) -> _ReadResult:
    """Result of a read after the harm and before any act."""
    key = str(place.root), cell.object, cell.harm
    if key not in _EARLIER:
        place.reset()
        harms.harm(place, cell)
        _EARLIER[key] = _read_latest(place, place.facts.ids[LATEST])
    return _EARLIER[key]


def _recoverable(place: Place, answer: Answer) -> frozenset[int]:
    """All rows; without those of the newest commit if recovery reports it as lost: inline content was only in the catalog."""
    is_lost = answer.lost == {LATEST} and place.mode is CommitPolicyKind.INLINE
    return place.facts.ids[PUBLISHED if is_lost else LATEST]


def _difference(ids: tuple[int, ...], wanted: frozenset[int]) -> str:
    lost, extra = sorted(wanted - set(ids)), sorted(set(ids) - wanted)
    return f"missing rows {lost}, other rows {extra}, {len(ids) - len(set(ids))} duplicate rows"


@dataclass(frozen=True, kw_only=True)
class _Copies:
    """Every file of the warehouse by digest, and the number of intact copies of each commit."""

    files: dict[str, str]
    commits: dict[int, int]
    live: frozenset[str]

    @classmethod
    def of(cls, place: Place, cell: Cell) -> "_Copies":
        files = {}
        for path in place.warehouse.rglob("*"):
            if path.is_file():
                files[str(path.relative_to(place.warehouse))] = hashlib.sha256(path.read_bytes()).hexdigest()
        commits = {}
        held = _catalog_content(place, cell)
        digests = list(files.values())
        for version, data in place.facts.commits.items():
            commits[version] = digests.count(hashlib.sha256(data).hexdigest()) + int(held.get(version) == data)
        table = place.table_directory.relative_to(place.warehouse)
        names = [*(place.facts.files[name] for name in "abdefg"), place.facts.vector]
        return cls(files=files, commits=commits, live=frozenset(str(table / name) for name in names))

    def lost(self, after: "_Copies", *, cleaned: bool) -> list[str]:
        """Commits whose last copy was removed, and live files that were removed or changed."""
        found = []
        for version, count in self.commits.items():
            # Log cleanup removes only commits below the checkpoint, which holds their state.
            if count and not after.commits[version] and not (cleaned and version < 5):
                found.append(f"the last intact copy of commit {version} was removed")
        found += [
            f"the live file {path} was changed or removed"
            for path in sorted(self.live & set(self.files))
            if after.files.get(path) != self.files[path]
        ]
        return found

    def changed(self, after: "_Copies") -> list[str]:
        paths = {*self.files, *after.files}
        return sorted(path for path in paths if self.files.get(path) != after.files.get(path))


def _catalog_content(place: Place, cell: Cell) -> dict[int, bytes]:
    if cell.object is Object.CATALOG_DATABASE:
        return {}
    rows = place.database.execute(
        "SELECT version, content FROM cm_delta_commits WHERE table_id = :table_id AND content IS NOT NULL",
        table_id=place.facts.table_id,
    )
    return {int(version): bytes(content) for version, content in rows}
