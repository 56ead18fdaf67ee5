"""What ``doctor`` looks at: versions, bytes, checksums, checkpoints, files. Room: operations. Nothing is changed here.

Three sources are compared: the catalog's record of each commit, the log, and the listing of the table's files. The
latest version is taken from the catalog before the listings and again after them, so that what writers do meanwhile
is not taken for damage.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.catalog import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.client.log_reader import load_state, read_checkpoint_file, read_checksum
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, CorruptLogError, ObjectNotFoundError, ProtocolError, TableError
from cm_delta_dagster.operations.clean_staged_commits import plan_clean_staged_commits
from cm_delta_dagster.operations.findings import Examination, Finding, Problem, Repair, Severity
from cm_delta_dagster.operations.vacuum import plan_vacuum, vector_files
from cm_delta_dagster.protocol import action_json, checksum, last_checkpoint, log_files
from cm_delta_dagster.protocol.action_json import CommitActions
from cm_delta_dagster.protocol.checksum import VersionChecksum
from cm_delta_dagster.protocol.log_files import (
    ChecksumFile,
    ClassicCheckpointFile,
    CommitFile,
    CompactionFile,
    LastCheckpointFile,
    LogFile,
    MultiPartCheckpointFile,
    V2CheckpointFile,
    parse_log_file,
)
from cm_delta_dagster.protocol.path_encoding import file_keys, normalise_location
from cm_delta_dagster.protocol.reconciliation import TableState, replay, state_from_checkpoint

_SHOWN = 5


def examine(table: Table) -> Examination:
    """Look at everything. Raises TableNotFoundError, StorageError, CatalogError."""
    findings: list[Finding] = []
    # A client's own look at the table first: it records what a dead writer created and could not tell the catalog.
    readable = _looked_at(table, findings)
    seen = _Seen.of(table)
    commits = _Commits(table, seen, findings)
    commits.check()
    findings += _above_latest(seen)
    if commits.state is not None and readable:
        findings += _state_differs(table, seen, commits.state)
    findings += _hint(table, seen)
    num_files = 0
    if readable:
        num_files = _check_files(table, findings)
        findings += _leftovers(table)
    return Examination(
        version=seen.ratified.latest_version,
        published_version=seen.ratified.published_version,
        num_commits=commits.compared,
        num_files=num_files,
        findings=tuple(findings),
        checksums=commits.checksums,
    )


def is_record_of(record: RatifiedCommit, data: bytes) -> bool:
    """Whether ``data`` is the commit that the catalog accepted: its size, its transaction and its time."""
    try:
        info = action_json.decode_commit_info(data)
    except CorruptLogError:
        return False
    if info is None or (info.txn_id, info.in_commit_timestamp) != (record.txn_id, record.in_commit_timestamp):
        return False
    return record.file_size in (0, len(data))


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The catalog's answers, and the log as listed between the first and the last of them."""

    ratified: RatifiedCommits
    accepted: Mapping[int, RatifiedCommit]
    log: Mapping[str, LogFile]
    staged: frozenset[str]
    latest_after: int

    @classmethod
    def of(cls, table: Table) -> "_Seen":
        ratified = table.ratified()
        log = table.store.list_from(log_files.log_directory(table.location))
        staged = table.store.list_from(log_files.staged_commits_directory(table.location))
        after = table.ratified()
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


class _Commits:
    """Goes through the versions once, oldest first: bytes, times, and the state that they add up to."""

    def __init__(self, table: Table, seen: _Seen, findings: list[Finding]) -> None:
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
        if published is not None and not is_record_of(record, published):
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
        sound = published is not None and is_record_of(record, published)
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
        if content is not None:
            return content
        if record.file_name not in self._seen.staged:
            return None
        data = self._read(log_files.staged_commits_directory(self._table.location), record.file_name)
        return data if data is not None and is_record_of(record, data) else None

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
            if found is not None and self.state is not None and _differ(found, self.state):
                self._add(
                    Severity.ERROR,
                    Problem.CHECKPOINT_WRONG,
                    names[0],
                    f"it differs from the commits up to version {version} in {', '.join(_differ(found, self.state))}.",
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


def _looked_at(table: Table, findings: list[Finding]) -> bool:
    try:
        table.snapshot().num_files  # noqa: B018  # The files are reconciled on demand.
    except (ProtocolError, TableError, ObjectNotFoundError) as error:
        table.catalog.get_ratified_commits(table.table_id)  # A dropped table is no finding.
        findings.append(
            Finding(severity=Severity.ERROR, problem=Problem.UNREADABLE, where="the latest version", message=str(error))
        )
        return False
    return True


def _above_latest(seen: _Seen) -> Iterable[Finding]:
    for name, file in seen.log.items():
        if isinstance(file, LastCheckpointFile):
            continue
        version = file.end if isinstance(file, CompactionFile) else file.version
        if version > seen.latest_after:
            commit = isinstance(file, CommitFile)
            yield Finding(
                severity=Severity.ERROR if commit else Severity.WARNING,
                problem=Problem.ABOVE_LATEST,
                where=name,
                message=f"the catalog's latest version is {seen.latest_after}; "
                + (
                    "no client of this catalog wrote it, and it blocks that version."
                    if commit
                    else "readers ignore it."
                ),
                version=version,
            )


def _state_differs(table: Table, seen: _Seen, replayed: TableState) -> Iterable[Finding]:
    """The latest version as a new client builds it, with checkpoints and compactions, against the commits one by one."""
    latest = seen.ratified.latest_version
    loaded = load_state(
        table.store,
        location=table.location,
        version=latest,
        ratified=seen.ratified.commits,
        threads=table.services.settings.read_threads,
    )
    different = _differ(loaded.state, replayed)
    if different:
        yield Finding(
            severity=Severity.ERROR,
            problem=Problem.STATE_DIFFERS,
            where=f"version {latest}",
            message=f"checkpoints and compactions give another {', '.join(different)} than the commits one by one.",
            version=latest,
        )


def _differ(one: TableState, other: TableState) -> tuple[str, ...]:
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


def _hint(table: Table, seen: _Seen) -> Iterable[Finding]:
    name = log_files.LAST_CHECKPOINT_FILE_NAME
    if name not in seen.log:
        return
    try:
        hint = last_checkpoint.decode(table.store.read(f"{log_files.log_directory(table.location)}/{name}"))
    except ObjectNotFoundError:
        return
    if hint is None:
        message = "it cannot be understood or fails its own checksum."
    elif hint.version > seen.latest_after:
        message = f"it points to version {hint.version}, above the catalog's latest {seen.latest_after}."
    elif hint.version <= seen.ratified.latest_version and hint.version not in seen.checkpoints():
        if hint.version > max(seen.checkpoints(), default=-1):
            # Written after the listing, perhaps: the hint follows its checkpoint.
            listed = _Seen.of(table)
            if hint.version in listed.checkpoints():
                return
        message = f"it points to a checkpoint of version {hint.version}, which is not there."
    else:
        return
    yield Finding(
        severity=Severity.WARNING,
        problem=Problem.HINT_WRONG,
        where=name,
        message=f"{message} Readers go without it.",
        repair=Repair.REMOVE_HINT,
    )


def _check_files(table: Table, findings: list[Finding]) -> int:
    """Data files and deletion vectors of the latest version; their number."""
    snapshot = table.snapshot()
    sizes = dict(
        zip(
            file_keys(snapshot.location, snapshot.files["path"]).to_pylist(),
            snapshot.files["size"].to_pylist(),
            strict=True,
        )
    )
    wanted: dict[str, int | None] = {
        normalise_location(at): None for at in vector_files(table.location, snapshot.files)
    }
    wanted.update(sizes)
    found = {normalise_location(s.location): s.size for s in table.store.list_recursive(table.location)}
    missing = sorted(key for key in wanted if key not in found and not _exists(table, key))
    if missing:
        # Removed and vacuumed since the snapshot was taken, perhaps.
        now = table.snapshot()
        live = set(file_keys(now.location, now.files["path"]).to_pylist())
        live |= {normalise_location(at) for at in vector_files(now.location, now.files)}
        missing = [key for key in missing if key in live]
    resized = sorted(key for key, size in wanted.items() if size is not None and found.get(key, size) != size)
    for problem, keys, what in (
        (Problem.FILE_MISSING, missing, "are missing: reads of them fail. Restore them from a backup."),
        (Problem.FILE_SIZE, resized, "have another size than the log says: they were cut off or replaced."),
    ):
        if keys:
            shown = ", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")
            message = f"{len(keys)} files of version {snapshot.version} {what}"
            findings.append(Finding(severity=Severity.ERROR, problem=problem, where=shown, message=message))
    return len(wanted)


def _exists(table: Table, location: str) -> bool:
    """A file outside of the table's directory, as a shallow clone has them."""
    if location.startswith(f"{normalise_location(table.location)}/"):
        return False
    try:
        table.store.stat(location)
    except ObjectNotFoundError:
        return False
    return True


def _leftovers(table: Table) -> Iterable[Finding]:
    try:
        orphans, staged = plan_vacuum(table), plan_clean_staged_commits(table)
    except (CmDeltaError, OSError):
        return  # A table that this client may not write to; others clean it up.
    if orphans.num_files:
        yield Finding(
            severity=Severity.NOTE,
            problem=Problem.ORPHANED_FILES,
            where=table.location,
            message=f"{orphans.num_files} files ({orphans.num_bytes} bytes) are needed by no version within the retention; "
            "vacuum deletes them.",
        )
    if staged.num_files:
        yield Finding(
            severity=Severity.NOTE,
            problem=Problem.STAGED_LEFTOVERS,
            where=log_files.staged_commits_directory(table.location),
            message=f"{staged.num_files} staged commits ({staged.num_bytes} bytes) are needed by nobody; "
            "clean_staged_commits deletes them.",
        )
