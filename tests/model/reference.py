"""The commit protocol of catalog-managed tables in a few dozen lines: what may happen, and what must hold when it does.

Immutable: every event answers with the next model, or raises :class:`Violation`. It shares no code with the package; what a
commit contains it reads from the bytes. ``tests.model.observation`` reports to it what clients, storage and catalog did.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache


class Violation(AssertionError):
    """The protocol does not allow what was just observed."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Violation(message)


@dataclass(frozen=True)
class Content:
    """What one commit says: its ``commitInfo`` and the paths that it adds and removes."""

    txn_id: str
    timestamp: int
    added: frozenset[str]
    removed: frozenset[str]


@cache
def parse(data: bytes) -> Content:
    actions = [json.loads(line) for line in data.splitlines()]
    info = actions[0].get("commitInfo", {})
    paths = {kind: frozenset(a[kind]["path"] for a in actions if kind in a) for kind in ("add", "remove")}
    return Content(info.get("txnId", ""), info.get("inCommitTimestamp", -1), paths["add"], paths["remove"])


@dataclass(frozen=True)
class Ratified:
    """One version: the name it was proposed under and the bytes that it is, for ever."""

    name: str
    data: bytes


@dataclass(frozen=True)
class TableModel:
    """One table. Versions are positions in ``ratified``, so they are contiguous and have one content each.

    ``published`` is how far ``_delta_log`` reaches, ``announced`` what was reported of it. With ``creates``
    the creation of the next published file is its ratification; of ``unrecorded`` such versions the catalog does not know yet.
    The published files of ``cleaned`` versions were deleted: a file that is created under such a name means nothing.
    """

    location: str
    ratified: tuple[Ratified, ...] = ()
    staged: frozenset[tuple[str, bytes]] = frozenset()
    published: int = -1
    announced: int = -1
    creates: bool = False
    unrecorded: int = 0
    cleaned: frozenset[int] = frozenset()

    @property
    def latest(self) -> int:
        return len(self.ratified) - 1

    @property
    def recorded(self) -> int:
        """The latest version that the catalog knows of."""
        return self.latest - self.unrecorded

    def create(self, version: int, name: str, data: bytes) -> "TableModel":
        """Ratified and published in one, by the file ``name``."""
        require(self.creates, f"version {version} was published but not ratified")
        require(self.published == self.latest, f"version {version} was created before {self.latest} was published")
        content = parse(data)
        ratified = self.ratify(version, name, data, txn_id=content.txn_id, timestamp=content.timestamp)
        return replace(ratified, published=version, unrecorded=self.unrecorded + 1)

    def clean(self, version: int) -> "TableModel":
        return replace(self, cleaned=self.cleaned | {version})

    def refuse(self, version: int, txn_id: str) -> "TableModel":
        """The catalog does not take note of a created file, since that version is another commit."""
        require(version in self.cleaned, f"version {version} was created, the catalog knows another commit")
        require(
            parse(self.ratified[version].data).txn_id != txn_id, f"version {version} is txn {txn_id}, but was refused"
        )
        return self

    def record(self, version: int, txn_id: str, *, repeated: bool) -> "TableModel":
        require(version <= self.latest, f"version {version} was recorded but never created")
        require(parse(self.ratified[version].data).txn_id == txn_id, f"version {version} was recorded as txn {txn_id}")
        require(repeated is (version <= self.recorded), f"version {version} was recorded, known was {self.recorded}")
        if repeated:
            return self
        require(version == self.recorded + 1, f"version {version} was recorded after {self.recorded}")
        return replace(self, unrecorded=self.unrecorded - 1, announced=version)

    def choose(self, *, creates: bool) -> "TableModel":
        require(
            creates or not self.unrecorded, "the commit policy changed while the catalog did not know of every commit"
        )
        require(not creates or self.published == self.latest, "put-if-absent began before everything was published")
        return replace(self, creates=creates)

    def stage(self, name: str, data: bytes) -> "TableModel":
        require(name not in dict(self.staged), f"the staged file {name} was written a second time")
        return replace(self, staged=self.staged | {(name, data)})

    def delete_staged(self, name: str) -> "TableModel":
        needed = {commit.name for commit in self.ratified[self.announced + 1 :]}
        require(name not in needed, f"{name} was deleted, which the catalog still serves as a ratified commit")
        return replace(self, staged=frozenset(item for item in self.staged if item[0] != name))

    def delete_data(self, path: str) -> "TableModel":
        require(path not in self.rows(self.latest), f"{path} was deleted, which the latest version reads")
        return self

    def ratify(self, version: int, name: str, data: bytes | None, *, txn_id: str, timestamp: int) -> "TableModel":
        """``data`` is what the proposal carries itself; None for the content of the staged file ``name``."""
        require(version == self.latest + 1, f"version {version} was ratified after version {self.latest}")
        data = dict(self.staged).get(name) if data is None else data
        if data is None:
            raise Violation(f"version {version} was ratified as {name}, a file that does not exist")
        content = parse(data)
        require(content.txn_id == txn_id, f"version {version} was ratified for txn {txn_id} but says {content.txn_id}")
        require(content.timestamp == timestamp, f"version {version} says {content.timestamp}, the catalog {timestamp}")
        if self.ratified:
            before = parse(self.ratified[-1].data).timestamp
            require(
                content.timestamp > before, f"version {version} is of {content.timestamp}, the one before of {before}"
            )
        for number, commit in enumerate(self.ratified):
            again = content.added & parse(commit.data).added
            require(not again, f"{sorted(again)} of version {number} are there a second time in version {version}")
        return replace(self, ratified=(*self.ratified, Ratified(name, data)))

    def publish(self, version: int, data: bytes) -> "TableModel":
        require(version <= self.latest, f"version {version} was published but not ratified")
        if self.creates and version in self.cleaned:
            return self
        require(data == self.ratified[version].data, f"the published bytes of version {version} are not the ratified")
        require(version <= self.published + 1, f"version {version} was published after version {self.published}")
        return replace(self, published=max(self.published, version))

    def announce(self, version: int) -> "TableModel":
        require(version <= self.published, f"version {version} was reported as published, {self.published} is")
        return replace(self, announced=max(self.announced, version))

    def rows(self, version: int) -> frozenset[str]:
        """Paths that are live at ``version``: the replay of the ratified commits 0 to ``version``."""
        live: frozenset[str] = frozenset()
        for commit in self.ratified[: version + 1]:
            content = parse(commit.data)
            live = (live - content.removed) | content.added
        return live

    def check_served(
        self, latest: int, published: int, served: Iterable[tuple[int, str]], *, start: int = 0, end: int | None = None
    ) -> None:
        """An answer of the catalog: its latest version, its published mark, and versions with names within the range."""
        require(latest == self.recorded, f"the catalog answers latest version {latest}, it is {self.recorded}")
        require(published <= self.published, f"the catalog answers published {published}, it is {self.published}")
        named = list(served)
        for version, name in named:
            right = version <= self.recorded and name == self.ratified[version].name
            require(right, f"the catalog names {name} for version {version}, which is not what was ratified")
        last = self.recorded if end is None else min(end, self.recorded)
        wanted = range(max(start, published + 1), last + 1)
        missing = set(wanted) - {version for version, _ in named}
        require(not missing, f"the catalog serves no commit for the unpublished versions {sorted(missing)}")

    def check_read(self, version: int, rows: frozenset[str], timestamp: int) -> None:
        require(0 <= version <= self.latest, f"version {version} was read, the latest is {self.latest}")
        expected = self.rows(version)
        require(rows == expected, f"version {version} was read as {sorted(rows)}, it is {sorted(expected)}")
        right = parse(self.ratified[version].data).timestamp
        require(timestamp == right, f"version {version} was read as of {timestamp}, it is of {right}")

    def check_acknowledged(self, version: int, txn_id: str, rows: frozenset[str]) -> None:
        require(version <= self.latest, f"version {version} was acknowledged, the latest is {self.latest}")
        content = parse(self.ratified[version].data)
        require(
            content.txn_id == txn_id, f"txn {txn_id} was acknowledged as version {version}: that is {content.txn_id}"
        )
        require(rows <= content.added, f"{sorted(rows)} were acknowledged in version {version}, which lacks some")

    def check_absent(self, rows: frozenset[str]) -> None:
        for version, commit in enumerate(self.ratified):
            found = rows & parse(commit.data).added
            require(not found, f"{sorted(found)} were reported as not committed but are in version {version}")


@dataclass(frozen=True)
class Model:
    """Every table by its id, and which id each name belongs to. A table without a name is not there for anybody."""

    tables: tuple[tuple[str, TableModel], ...] = ()
    names: tuple[tuple[str, str], ...] = ()

    def table(self, table_id: str) -> TableModel:
        found = dict(self.tables).get(table_id)
        if found is None:
            raise Violation(f"table {table_id} was used but never reserved")
        return found

    def with_table(self, table_id: str, table: TableModel) -> "Model":
        return replace(self, tables=tuple(sorted({**dict(self.tables), table_id: table}.items())))

    def reserve(self, table_id: str, location: str) -> "Model":
        used = {table.location for _, table in self.tables}
        require(table_id not in dict(self.tables) and location not in used, f"{location} was reserved a second time")
        return self.with_table(table_id, TableModel(location))

    def register(self, table_id: str, name: str, first: bytes | None) -> "Model":
        """``first`` is the published version 0 as it lies on storage when the name is given."""
        holder = dict(self.names).get(name)
        if holder == table_id:
            return self
        require(holder is None, f"the name {name} was given to {table_id} but belongs to {holder}")
        if first is None:
            raise Violation(f"{name} was registered before version 0 was written")
        table = replace(self.table(table_id), ratified=(Ratified("", first),), published=0, announced=0)
        return replace(
            self.with_table(table_id, table), names=tuple(sorted({**dict(self.names), name: table_id}.items()))
        )
