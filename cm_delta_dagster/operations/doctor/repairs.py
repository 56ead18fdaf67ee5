"""Carries out the repairs that ``doctor`` has planned.

A file that is replaced or removed is first copied to ``_delta_log/_set_aside/<time>/<name>.replaced``, so that no repair removes
the only copy. The suffix distinguishes these damaged copies of commits that the log has from commits of another history, which
recovery sets aside there and whose data files VACUUM keeps. The bytes of a commit are verified again immediately before they are
written. Repairs do not change data files.
"""

import contextlib
import itertools
from collections.abc import Iterable

from cm_delta_dagster.client.post_commit.checkpoint_writer import refuse_contradiction, write_checkpoint, write_checksum
from cm_delta_dagster.client.snapshots.commit_sources import is_ratified, published_source
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectAlreadyExistsError
from cm_delta_dagster.operations.doctor.check_table import CheckedTable
from cm_delta_dagster.operations.doctor.commit_copies import (
    CommitCopies,
    foreign_transaction,
    read_copies,
    read_or_none,
    staged_location,
)
from cm_delta_dagster.operations.doctor.findings import Repair
from cm_delta_dagster.operations.doctor.repair_plan import RepairStep
from cm_delta_dagster.operations.doctor.take_back import take_back
from cm_delta_dagster.operations.maintenance.authorization import require_permission
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.recovery.set_aside import copy_aside, set_aside_directory
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState

REPLACED_SUFFIX = ".replaced"
"""Suffix of a file that a repair sets aside."""


class Repairs:
    """Carries out the steps of one plan for ``table``; all files that they set aside go to one directory."""

    def __init__(self, table: Table, check: CheckedTable) -> None:
        self._table = table
        self._check = check
        self._log = log_files.log_directory(table.location)
        self._aside = set_aside_directory(table.location, table.services.now_ms())

    def carry_out(self, step: RepairStep) -> None:
        """Carry out one step. Raises CmDeltaError; the previous files are then unchanged or set aside."""
        if step.permission is not None:
            require_permission(self._table, step.permission)
        version = step.finding.version
        match step.repair:
            case Repair.TAKE_BACK if version is not None:
                take_back(self._table, self._copies(version), aside=self._aside)
            case Repair.RESTORE_COMMIT if version is not None:
                self._restore_commit(version)
            case Repair.REWRITE_STAGED if version is not None:
                self._rewrite_staged(version)
            case Repair.UPDATE_PUBLISHED_VERSION if version is not None:
                self._table.services.coordinator.set_published_version(self._table.table_id, version)
            case Repair.PUBLISH:
                publish(self._table)
            case Repair.REMOVE_HINT | Repair.SET_ASIDE_COMPACTION:
                self._remove(f"{self._log}/{name}" for name in step.finding.files)
            case Repair.REWRITE_CHECKSUM if version is not None:
                self._rewrite_checksum(step, version)
            case Repair.REPLACE_CHECKPOINT if version is not None:
                self._replace_checkpoint(step, version)
            case Repair.UPDATE_DEFINITION:
                self._update_definition()
            case _:
                raise AssertionError(f"{step.repair} needs a version.")

    def _restore_commit(self, version: int) -> None:
        data = self._proven(version)
        location = published_source(self._table.location, version).location
        records = self._check.seen.records
        old_data = read_or_none(self._table, location)
        known = {record.txn_id for record in records.values()}
        if foreign_transaction(old_data, records[version], known=known) is not None and old_data is not None:
            # Under its own name, as recovery does it, so that VACUUM keeps the data files that it names.
            copy_aside(self._table.store, self._aside, {log_files.commit_file_name(version): old_data})
            self._table.store.write(location, data, within=self._log)
            return
        self._write(location, data)

    def _rewrite_staged(self, version: int) -> None:
        self._write(staged_location(self._table, self._check.seen.records[version]), self._proven(version))

    def _proven(self, version: int) -> bytes:
        """The ratified bytes of a version, verified again from its copies."""
        copies = self._copies(version)
        if copies.proven is None:
            raise CorruptLogError(
                f"Version {version} of {self._table.identifier} had an intact copy when it was checked and has none now. "
                "Nothing was written. Run doctor again.",
                version=version,
            )
        assert is_ratified(copies.record, copies.proven)
        return copies.proven

    def _copies(self, version: int) -> CommitCopies:
        seen = self._check.seen
        served = next((commit for commit in seen.ratified.commits if commit.version == version), None)
        return read_copies(self._table, seen.records[version], staged_names=seen.staged, served=served)

    def _write(self, location: str, data: bytes) -> None:
        """Write ``data`` to ``location``; set aside an existing object."""
        old_data = read_or_none(self._table, location)
        if old_data == data:
            return
        if old_data is None:
            with contextlib.suppress(ObjectAlreadyExistsError):
                self._table.store.write_if_absent(location, data, within=self._log)
            return
        self._set_aside(location, old_data)
        self._table.store.write(location, data, within=self._log)

    def _remove(self, locations: Iterable[str]) -> None:
        for location in locations:
            old_data = read_or_none(self._table, location)
            if old_data is not None:
                self._set_aside(location, old_data)
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
                    return  # Of an earlier attempt that was interrupted.

    def _rewrite_checksum(self, step: RepairStep, version: int) -> None:
        for name in step.finding.files[1:]:
            # The commit of the checksum, under its own name, as recovery does it, so that VACUUM keeps its data files.
            data = read_or_none(self._table, f"{self._log}/{name}")
            if data is not None:
                copy_aside(self._table.store, self._aside, {name.rpartition("/")[2]: data})
        # Removed first and then created as writers create it: the file is optional and is never replaced in place.
        self._remove([f"{self._log}/{log_files.checksum_file_name(version)}"])
        value = self._check.checksums[version]
        write_checksum(self._table.store, self._table.location, version, value)

    def _replace_checkpoint(self, step: RepairStep, version: int) -> None:
        snapshot = self._snapshot(self._check.states[version])
        check_writable(snapshot.protocol, snapshot.identifier)
        refuse_contradiction(self._table.store, snapshot)
        old = [f"{self._log}/{name}" for name in step.finding.files]
        for location in old:
            old_data = read_or_none(self._table, location)
            if old_data is not None:
                self._set_aside(location, old_data)
        written = write_checkpoint(self._table.store, snapshot, now_ms=self._table.services.now_ms())
        for location in old:
            if location != f"{self._log}/{written.file_name}":
                self._table.store.delete(location)

    def _snapshot(self, state: TableState) -> Snapshot:
        seen = self._check.seen
        return Snapshot(
            identifier=str(self._table.identifier),
            table_id=self._table.table_id,
            location=self._table.location,
            version=state.version,
            published_version=min(seen.published, state.version),
            data_version=state.version,
            commit_time=seen.records[state.version].in_commit_timestamp,
            state=state,
        )

    def _update_definition(self) -> None:
        proven = self._check.proven
        assert proven is not None
        self._table.services.registry.set_definition(
            self._table.table_id, version=proven.version, metadata=proven.metadata, protocol=proven.protocol
        )
