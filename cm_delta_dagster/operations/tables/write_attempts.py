"""Writes to a table that create it if it does not exist, by several clients at once."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.creation import CreateTransaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import TableAlreadyExistsError, TableNotFoundError
from cm_delta_dagster.operations.tables.create import TableDesign, check_partitioning, completed, reserve
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas

_log = logging.getLogger(__name__)


def write_attempts(client: DeltaClient, *, identifier: TableIdentifier | str) -> Iterator["WriteAttempt"]:
    """The attempts to write to the table of that name, which the write creates if it does not exist.

    Of several concurrent callers, one creates the table and the others write to it, in a second attempt::

        for attempt in write_attempts(client, identifier=name):
            with attempt.target(design if attempt.creates else None) as target:
                result = append(target, frame=frame)
    """
    name = TableIdentifier.of(identifier)
    try:
        table = client.table(name)
    except TableNotFoundError:
        attempt = WriteAttempt(client, name)
        yield attempt
        if attempt.refusal is None:
            return
        table = _winner(client, name, attempt.refusal)
    yield WriteAttempt(client, name, table)


class WriteAttempt:
    """One attempt to write to a table, or to its creation.

    Attributes:
        creates: whether there was no table of that name when the attempt began, so that it needs a design.
        refusal: why the table could not be created: there is one of that name.
    """

    def __init__(self, client: DeltaClient, name: TableIdentifier, table: Table | None = None) -> None:
        self._client, self._name, self._table = client, name, table
        self.creates = table is None
        self.refusal: TableAlreadyExistsError | None = None

    @contextmanager
    def target(self, design: TableDesign | None) -> Iterator[Table | CreateTransaction]:
        """What the block writes to with one operation, such as ``append`` or ``merge``.

        If another client creates the table before the block begins, that is the table; if before the block ends, the next
        attempt follows.

        Args:
            design: of a table that the attempt creates.

        Raises:
            CmDeltaError: any error of :func:`creation_of`.
        """
        target = self._table or self._reserved(design)
        if isinstance(target, Table):
            self._table = target
            yield target
            return
        try:
            with completed(self._client, target):
                yield target
            self._table = target.table()
        except TableAlreadyExistsError as refusal:
            self.refusal = refusal

    def _reserved(self, design: TableDesign | None) -> Table | CreateTransaction:
        assert design is not None, "an attempt that creates the table needs its design"
        try:
            return reserve(self._client, identifier=self._name, design=design)
        except TableAlreadyExistsError as refusal:
            return _winner(self._client, self._name, refusal)

    @property
    def table(self) -> Table:
        """The table, once it was written to."""
        assert self._table is not None, "the table exists after an attempt that was not refused"
        return self._table


def _winner(client: DeltaClient, name: TableIdentifier, refusal: TableAlreadyExistsError) -> Table:
    table = created_meanwhile(client, name, refusal)
    _log.info("Another client created %s concurrently; that table is used", name)
    return table


def created_meanwhile(
    client: DeltaClient, identifier: TableIdentifier | str, refusal: TableAlreadyExistsError
) -> Table:
    """The table that another client created concurrently. Raises ``refusal`` if there is none: the name stands for a path."""
    try:
        return client.table(identifier)
    except TableNotFoundError:
        raise refusal from None


def create_if_missing(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    design: Callable[[], TableDesign],
    context: CommitProperties = NO_PROPERTIES,
) -> Table:
    """Open the table of that name, or create it empty. Several clients may call this concurrently.

    Args:
        design: called only if the table does not exist.

    Raises:
        CmDeltaError: any error of :func:`create_empty` but TableAlreadyExistsError.
    """
    for attempt in write_attempts(client, identifier=identifier):
        with attempt.target(design() if attempt.creates else None) as target:
            if isinstance(target, CreateTransaction):
                target.commit_empty(context)
    return attempt.table


def open_or_create(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    design: TableDesign,
    same_columns: bool = True,
    same_partitions: bool = True,
    context: CommitProperties = NO_PROPERTIES,
) -> Table:
    """Open the table of that name, or create it empty if it does not exist. Several clients may call this concurrently.

    Args:
        same_columns, same_partitions: whether the columns and the partition columns of a table that exists are compared with those
            of ``design``; nothing else of it is.

    Raises:
        SchemaMismatchError: the table exists, and rows of the schema of ``design`` cannot be appended to it or its partition
            columns differ.
        CmDeltaError: as :func:`create_if_missing`.
    """
    table = create_if_missing(client, identifier=identifier, design=lambda: design, context=context)
    if same_columns:
        reconcile_schemas(table.snapshot().schema, design.schema, mode=SchemaMode.STRICT)
    if same_partitions:
        check_partitioning(table, design.partition_columns)
    return table
