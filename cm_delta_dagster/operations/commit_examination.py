"""The versions of a table, one by one: bytes, times, checkpoints and checksums, for ``doctor``. Room: operations.

The catalog's record of each commit is compared with every copy of it, and what the commits add up to with what checkpoints and
checksums say. Nothing is changed here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.client.commit_sources import is_ratified
from cm_delta_dagster.client.log_reader import read_checkpoint_file, read_checksum
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.operations.findings import Finding, Problem, Repair, Severity
from cm_delta_dagster.protocol import action_json, checksum, log_files
from cm_delta_dagster.protocol.action_json import CommitActions
from cm_delta_dagster.protocol.checksum import VersionChecksum
from cm_delta_dagster.protocol.log_files import (
    ChecksumFile,
    ClassicCheckpointFile,
    CommitFile,
    LogFile,
    MultiPartCheckpointFile,
    V2CheckpointFile,
    parse_log_file,
)
from cm_delta_dagster.protocol.path_encoding import file_keys
from cm_delta_dagster.protocol.reconciliation import TableState, replay, state_from_checkpoint


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The catalog's answers, and the log as listed between the first and the last of them."""

    ratified: RatifiedCommits
    accepted: Mapping[int, RatifiedCommit]
    log: Mapping[str, LogFile]
    staged: frozenset[str]
    latest_after: int

    @classmethod
    def of(cls, table: Table) -> "Seen":
        ratified = _known(table)
        log = table.store.list_from(log_files.log_directory(table.location))
        staged = table.store.list_from(log_files.staged_commits_directory(table.location))
        after = _known(table)
        records = table.catalog.accepted_commits(table.table_id, start=0, end=ratified.latest_version)
        return cls(
            ratified=ratified,
            accepted={record.version: record for record in records},
            log={status.name: file for status in log if (file := parse_log_file(status.name)) is not None},
            staged=frozenset(status.name for status in staged),
            latest_after=after.latest_version,
        )

    def versions(self, kind: type[CommitFile] | type[ChecksumFile]) -> frozenset[int]:
        return frozenset(file.version for file in self.log.values() if isinstance(file, kind))

    def checkpoints(self) -> Mapping[int, list[tuple[str, ...]]]:
        """Names of the files of each complete checkpoint, by version."""
        found: dict[int, list[tuple[str, ...]]] = {}
        parts: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for name, file in self.log.items():
            if isinstance(file, ClassicCheckpointFile | V2CheckpointFile):
                found.setdefault(file.version, []).append((name,))
            elif isinstance(file, MultiPartCheckpointFile):
                parts.setdefault((file.version, file.parts), []).append((file.part, name))
        for (version, count), members in parts.items():
            if len(members) == count:
                found.setdefault(version, []).append(tuple(name for _, name in sorted(members)))
        return found


def _known(table: Table) -> RatifiedCommits:
    """As a client knows it, or as the catalog does where a file in the log keeps clients from going on."""
    try:
        return table.ratified()
    except CorruptLogError:
        return table.catalog.get_ratified_commits(table.table_id)


class CommitExamination:
    """Goes through the versions once, oldest first: bytes, times, and the state that they add up to."""

    def __init__(self, table: Table, seen: Seen, findings: list[Finding]) -> None:
        self.compared = 0
        self.state: TableState | None = None
        self.checksums: dict[int, VersionChecksum] = {}
        self._table, self._seen, self._findings = table, seen, findings
        self._published = seen.versions(CommitFile)
        self._stored_checksums = seen.versions(ChecksumFile)
        self._checkpoints = seen.checkpoints()
        self._served = {commit.version: commit for commit in seen.ratified.commits}
        self._broken = False
        self._time: int | None = None

    def check(self) -> None:
        seen = self._seen
        latest, mark = seen.ratified.latest_version, seen.ratified.published_version
        self._set_strays_apart()
        oldest = min((v for v in (*self._published, *seen.checkpoints()) if v <= latest), default=0)
        for version in range(oldest, latest + 1):
            data = self._content(version)
            actions = None if data is None else self._decoded(version, data)
            self._advance(version, actions)
        if latest > mark and not self._broken:
            self._add(
                Severity.WARNING,
                Problem.UNPUBLISHED,
                f"versions {mark + 1} to {latest}",
                f"{latest - mark} ratified commits are not published; writers or `publish` do that.",
                repair=Repair.PUBLISH,
            )

    def _set_strays_apart(self) -> None:
        """Files under the names of commits that cleanup has removed: made too late, and read by nobody."""
        kept = min(
            (version for version in self._checkpoints if version <= self._seen.ratified.latest_version), default=0
        )
        if 0 in self._published:
            return
        directory = log_files.log_directory(self._table.location)
        for version in sorted(version for version in self._published if version < kept):
            name = log_files.commit_file_name(version)
            record, data = self._seen.accepted.get(version), self._read(directory, name)
            if record is None or data is None or is_ratified(record, data):
                continue
            self._published -= {version}
            self._add(
                Severity.WARNING,
                Problem.STRAY_COMMIT,
                name,
                f"it is not the commit that was ratified, which cleanup removed: versions below {kept} are gone. A writer made "
                "it too late, its commit does not count and nobody reads it; clean_log deletes it.",
                version,
            )

    def _content(self, version: int) -> bytes | None:
        """The bytes of a version as a reader gets them, compared with every other copy; None if there is no copy."""
        record = self._seen.accepted.get(version)
        published = self._read(log_files.log_directory(self._table.location), log_files.commit_file_name(version))
        if record is None:
            self._add(
                Severity.ERROR, Problem.NO_RECORD, f"version {version}", "the catalog has no record of it.", version
            )
            return published
        staged = self._staged(record)
        self.compared += published is not None or staged is not None
        name = log_files.commit_file_name(version)
        if published is not None and not is_ratified(record, published):
            self._broken = True
            self._add(
                Severity.ERROR,
                Problem.COMMIT_DIFFERS,
                name,
                f"it is not the commit that was ratified (txnId {record.txn_id}, {record.file_size} bytes, "
                f"{record.in_commit_timestamp} ms); restore the file from a backup.",
                version,
            )
        elif published is not None and staged is not None and staged != published:
            self._broken = True
            self._add(
                Severity.ERROR, Problem.COMMIT_DIFFERS, name, f"its bytes are not those of {record.file_name}.", version
            )
        ratified = staged if published is None else published
        if record.content is not None and ratified is not None and record.content != ratified:
            self._add(
                Severity.WARNING,
                Problem.COPY_DIFFERS,
                f"version {version}",
                "the copy of the commit that the catalog keeps for readers is another one; most readers notice and take the file.",
                version,
            )
        if version > self._seen.ratified.published_version:
            return self._unpublished(version, published, staged)
        if published is None and self._reachable(version):
            self._add(
                Severity.ERROR,
                Problem.COMMIT_MISSING,
                name,
                "the catalog says that it is published, and it is not there"
                + (", but its staged copy is." if staged is not None else " and no staged copy either; restore it."),
                version,
                None if staged is None else Repair.RESTORE_COMMIT,
            )
        return staged if published is None else published

    def _unpublished(self, version: int, published: bytes | None, staged: bytes | None) -> bytes | None:
        if staged is not None:
            return staged
        record = self._seen.accepted[version]
        sound = published is not None and is_ratified(record, published)
        if sound and not self._broken:
            self._add(
                Severity.ERROR,
                Problem.PUBLISHED_UNMARKED,
                f"version {version}",
                f"the catalog points readers to {record.file_name}, which is gone; the published copy is there.",
                version,
                Repair.MARK_PUBLISHED,
            )
            return published
        self._broken = True
        self._add(
            Severity.ERROR,
            Problem.COMMIT_LOST,
            f"version {version}",
            f"neither {record.file_name} nor a published copy of the ratified commit is there; restore it.",
            version,
        )
        return published if sound else None

    def _staged(self, record: RatifiedCommit) -> bytes | None:
        """The ratified bytes as the catalog or its staged file has them; None for a staged file that is gone or damaged."""
        served = self._served.get(record.version)
        content = record.content if served is None or served.content is None else served.content
        if content is not None and record.mode is CommitMode.INLINE:
            return content
        if record.file_name not in self._seen.staged:
            return None
        data = self._read(log_files.staged_commits_directory(self._table.location), record.file_name)
        return data if data is not None and is_ratified(record, data) else None

    def _reachable(self, version: int) -> bool:
        """Whether readers may still ask for the commit: what log cleanup has left begins with a commit or a checkpoint."""
        return any(other < version for other in self._published) or not any(
            checkpoint >= version for checkpoint in self._checkpoints
        )

    def _decoded(self, version: int, data: bytes) -> CommitActions | None:
        try:
            actions = action_json.decode_commit(data, version=version)
        except CorruptLogError as error:
            self._add(Severity.ERROR, Problem.UNREADABLE, f"version {version}", str(error), version)
            return None
        time = None if actions.commit_info is None else actions.commit_info.in_commit_timestamp
        if time is not None:
            if self._time is not None and time <= self._time:
                self._add(
                    Severity.ERROR,
                    Problem.TIMESTAMP_ORDER,
                    f"version {version}",
                    f"its in-commit timestamp {time} is not later than {self._time} before it.",
                    version,
                )
            self._time = time
        return actions

    def _advance(self, version: int, actions: CommitActions | None) -> None:
        """Replay one commit, and hold checkpoint and checksum of its version against the outcome."""
        location = self._table.location
        before = self.state is not None and self.state.version == version - 1
        self.state = (
            replay(self.state, (actions,), location=location)
            if actions is not None and (before or not version)
            else None
        )
        for names in self._checkpoints.get(version, ()):
            found = self._checkpoint_state(version, names)
            if found is not None and self.state is not None and differ(found, self.state):
                self._add(
                    Severity.ERROR,
                    Problem.CHECKPOINT_WRONG,
                    names[0],
                    f"it differs from the commits up to version {version} in {', '.join(differ(found, self.state))}.",
                    version,
                )
            self.state = found if self.state is None else self.state
        if version in self._stored_checksums and self.state is not None:
            self._check_checksum(version, self.state, actions)

    def _checkpoint_state(self, version: int, names: Sequence[str]) -> TableState | None:
        store, location = self._table.store, self._table.location
        directory, sidecars = log_files.log_directory(location), log_files.sidecars_directory(location)
        try:
            contents = [read_checkpoint_file(store, f"{directory}/{name}") for name in names]
            named = [sidecar.path.rpartition("/")[2] for content in contents for sidecar in content.sidecars]
            contents += [read_checkpoint_file(store, f"{sidecars}/{name}") for name in named]
            state = state_from_checkpoint(contents, version=version, location=location)
            # Made on demand otherwise: a damaged file action has to show now.
            return state if state.files.num_files >= 0 else None
        except (CorruptLogError, ObjectNotFoundError) as error:
            self._add(Severity.WARNING, Problem.CHECKPOINT_UNREADABLE, names[0], str(error), version)
            return None

    def _check_checksum(self, version: int, state: TableState, actions: CommitActions | None) -> None:
        stored = read_checksum(self._table.store, self._table.location, version)
        info = None if actions is None else actions.commit_info
        if stored is None:
            wrong: tuple[str, ...] = ("being readable",)
        else:
            wrong = checksum.differences(stored, state)
            if info is not None and stored.txn_id not in (None, info.txn_id):
                wrong += ("txnId",)
            if info is not None and stored.in_commit_timestamp not in (None, info.in_commit_timestamp):
                wrong += ("inCommitTimestampOpt",)
        if not wrong:
            return
        if info is not None:
            self.checksums[version] = checksum.build_checksum(
                state, txn_id=info.txn_id, in_commit_timestamp=info.in_commit_timestamp
            )
        self._add(
            Severity.WARNING,
            Problem.CHECKSUM_WRONG,
            log_files.checksum_file_name(version),
            f"it differs from the commits up to version {version} in {', '.join(wrong)}.",
            version,
            Repair.REWRITE_CHECKSUM if info is not None else None,
        )

    def _read(self, directory: str, name: str) -> bytes | None:
        try:
            return self._table.store.read(f"{directory}/{name}")
        except ObjectNotFoundError:
            return None

    def _add(
        self,
        severity: Severity,
        problem: Problem,
        where: str,
        message: str,
        version: int | None = None,
        repair: Repair | None = None,
    ) -> None:
        self._findings.append(
            Finding(severity=severity, problem=problem, where=where, message=message, version=version, repair=repair)
        )


def differ(one: TableState, other: TableState) -> tuple[str, ...]:
    parts: tuple[tuple[str, Callable[[TableState], object]], ...] = (
        ("protocol", lambda state: state.protocol),
        ("metadata", lambda state: state.metadata),
        ("set of files", _live),
        ("set of transactions", lambda state: dict(state.transactions)),
        ("set of domains", lambda state: {name: d for name, d in state.domains.items() if not d.removed}),
    )
    return tuple(name for name, part in parts if part(one) != part(other))


def _live(state: TableState) -> set[tuple[str, int, str]]:
    adds = state.files.adds
    keys = file_keys(state.files.location, adds["path"]).to_pylist()
    vectors = [
        "" if vector is None else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector['offset']}"
        for vector in adds["deletionVector"].to_pylist()
    ]
    return set(zip(keys, adds["size"].to_pylist(), vectors, strict=True))
