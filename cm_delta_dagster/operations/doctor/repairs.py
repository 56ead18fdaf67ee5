"""Carries out the repairs that ``doctor`` has planned.

What is replaced or removed is copied before to ``_delta_log/_set_aside/<time>/<name>.replaced``, so that no repair takes away the
only copy of anything. The suffix tells such files from commits of another history, which recovery sets aside there and whose data
files VACUUM keeps: these here are damaged copies of commits that the log has. Commits are proven once more at the moment at which
they are written. Data files are never touched.
"""

import contextlib
import itertools
from collections.abc import Iterable

from cm_delta_dagster.client.post_commit.checkpoint_writer import refuse_contradiction, write_checkpoint, write_checksum
from cm_delta_dagster.client.snapshots.commit_sources import is_ratified, published_source
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectAlreadyExistsError
from cm_delta_dagster.operations.doctor.commit_copies import (
    foreign_transaction,
    read_copies,
    read_or_none,
    staged_location,
)
from cm_delta_dagster.operations.doctor.examination import Examination
from cm_delta_dagster.operations.doctor.findings import Repair
from cm_delta_dagster.operations.doctor.repair_plan import RepairStep
from cm_delta_dagster.operations.maintenance.authorization import require_permission
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.recovery.set_aside import copy_aside, set_aside_directory
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState

REPLACED_SUFFIX = ".replaced"
"""What is appended to the name of a file that a repair sets aside."""


class Repairs:
    """Carries out steps of one plan for ``table``; what they set aside goes to one directory."""

    def __init__(self, table: Table, examination: Examination) -> None:
        self._table = table
        self._examination = examination
        self._log = log_files.log_directory(table.location)
        self._aside = set_aside_directory(table.location, table.services.now_ms())

    def carry_out(self, step: RepairStep) -> None:
        """Do one step. Raises CmDeltaError; what there was before is then still there, or set aside."""
        if step.permission is not None:
            require_permission(self._table, step.permission)
        version = step.finding.version
        match step.repair:
            case Repair.RESTORE_COMMIT if version is not None:
                self._restore_commit(version)
            case Repair.REWRITE_STAGED if version is not None:
                self._rewrite_staged(version)
            case Repair.MARK_PUBLISHED if version is not None:
                self._table.catalog.set_published_version(self._table.table_id, version)
            case Repair.PUBLISH:
                publish(self._table)
            case Repair.REMOVE_HINT | Repair.SET_ASIDE_COMPACTION:
                self._remove(f"{self._log}/{name}" for name in step.finding.files)
            case Repair.REWRITE_CHECKSUM if version is not None:
                self._rewrite_checksum(step, version)
            case Repair.REPLACE_CHECKPOINT if version is not None:
                self._replace_checkpoint(step, version)
            case Repair.TELL_DEFINITION:
                self._tell_definition()
            case _:
                raise AssertionError(f"{step.repair} needs a version.")

    def _restore_commit(self, version: int) -> None:
        data = self._proven(version)
        location = published_source(self._table.location, version).location
        records = self._examination.seen.records
        found = read_or_none(self._table, location)
        known = {record.txn_id for record in records.values()}
        if foreign_transaction(found, records[version], known=known) is not None and found is not None:
            # Under its own name, as recovery does: so VACUUM keeps the data files that it names.
            copy_aside(self._table.store, self._aside, {log_files.commit_file_name(version): found})
            self._table.store.write(location, data, within=self._log)
            return
        self._write(location, data)

    def _rewrite_staged(self, version: int) -> None:
        self._write(staged_location(self._table, self._examination.seen.records[version]), self._proven(version))

    def _proven(self, version: int) -> bytes:
        """The ratified bytes of a version, as its copies prove them now."""
        seen = self._examination.seen
        served = next((commit for commit in seen.ratified.commits if commit.version == version), None)
        copies = read_copies(self._table, seen.records[version], staged_names=seen.staged, served=served)
        if copies.proven is None:
            raise CorruptLogError(
                f"Version {version} of {self._table.identifier} had an intact copy a moment ago and has none now; nothing was "
                "written. Look again.",
                version=version,
            )
        assert is_ratified(copies.record, copies.proven)
        return copies.proven

    def _write(self, location: str, data: bytes) -> None:
        """Put ``data`` at ``location``, what is there aside first."""
        found = read_or_none(self._table, location)
        if found == data:
            return
        if found is None:
            with contextlib.suppress(ObjectAlreadyExistsError):
                self._table.store.write_if_absent(location, data, within=self._log)
            return
        self._set_aside(location, found)
        self._table.store.write(location, data, within=self._log)

    def _remove(self, locations: Iterable[str]) -> None:
        for location in locations:
            found = read_or_none(self._table, location)
            if found is not None:
                self._set_aside(location, found)
                self._table.store.delete(location)

    def _set_aside(self, location: str, data: bytes) -> None:
        name = f"{self._aside}/{location.rpartition('/')[2]}{REPLACED_SUFFIX}"
        for number in itertools.count():
            target = f"{name}.{number}" if number else name
            try:
                self._table.store.write_if_absent(target, data, within=self._log)
                return
            except ObjectAlreadyExistsError:
                if self._table.store.read(target) == data:
                    return  # Of an attempt that did not come to its end.

    def _rewrite_checksum(self, step: RepairStep, version: int) -> None:
        for name in step.finding.files[1:]:
            # The commit that the checksum is of. Under its own name, as recovery does: so VACUUM keeps its data files.
            data = read_or_none(self._table, f"{self._log}/{name}")
            if data is not None:
                copy_aside(self._table.store, self._aside, {name.rpartition("/")[2]: data})
        # Taken away first and then made as any writer makes it: it is optional, and never replaced in place.
        self._remove([f"{self._log}/{log_files.checksum_file_name(version)}"])
        value = self._examination.checksums[version]
        write_checksum(self._table.store, self._table.location, version, value)

    def _replace_checkpoint(self, step: RepairStep, version: int) -> None:
        snapshot = self._snapshot(self._examination.states[version])
        check_writable(snapshot.protocol, snapshot.identifier, metadata=snapshot.metadata)
        refuse_contradiction(self._table.store, snapshot)
        old = [f"{self._log}/{name}" for name in step.finding.files]
        for location in old:
            found = read_or_none(self._table, location)
            if found is not None:
                self._set_aside(location, found)
        written = write_checkpoint(self._table.store, snapshot, now_ms=self._table.services.now_ms())
        for location in old:
            if location != f"{self._log}/{written.file_name}":
                self._table.store.delete(location)

    def _snapshot(self, state: TableState) -> Snapshot:
        seen = self._examination.seen
        return Snapshot(
            identifier=str(self._table.identifier),
            table_id=self._table.table_id,
            location=self._table.location,
            version=state.version,
            published_version=min(seen.published, state.version),
            data_version=state.version,
            timestamp_ms=seen.records[state.version].in_commit_timestamp,
            state=state,
        )

    def _tell_definition(self) -> None:
        proven = self._examination.proven
        assert proven is not None
        self._table.catalog.set_definition(
            self._table.table_id, version=proven.version, metadata=proven.metadata, protocol=proven.protocol
        )
