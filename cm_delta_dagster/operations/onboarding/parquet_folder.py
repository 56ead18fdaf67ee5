"""Folders of Parquet files, plain or with Hive partitions, as version 0 of a table: no data file is copied or rewritten.

The footer of each file gives its columns and statistics, the directories ``name=value`` above it give its partition values. Footers
are read a few ahead, and only the encoded actions of the files read so far are kept in memory.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import ENGINE_INFO, CommitProperties
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    InvalidDataError,
    ObjectAlreadyExistsError,
    SchemaMismatchError,
)
from cm_delta_dagster.operations.arguments import ReportProgress
from cm_delta_dagster.operations.onboarding.log_creation import create_resolved
from cm_delta_dagster.operations.tables.create import TableDesign, new_table_definition
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import AddFile, CommitInfo
from cm_delta_dagster.protocol.actions.partition_values import canonical_partition_text, names_zone
from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION, encode_path, hive_unescape
from cm_delta_dagster.protocol.commits.commit_validation import checked_line, encode_checked
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.in_commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.features.table_properties import TABLE_ID_KEY, TableProperties
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_text,
)
from cm_delta_dagster.protocol.statistics.statistics import StatisticsColumn, footer_statistics, statistics_columns
from cm_delta_dagster.spark.read.footers import iter_footers
from cm_delta_dagster.storage.store import ObjectStatus, Store

OPERATION = "CONVERT"
_GROUP = 1000
_INT96 = "INT96"
_LOGS = frozenset({"_delta_log", "_spark_metadata", ".hoodie"})
"""Directories of Delta, of Spark's streaming sink and of Hudi that say which of the Parquet files beside them are live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """What the names of files and footers do not say.

    Attributes:
        partition_by: types of the partition columns by name, in the order of the directories, e.g. ``{"day": "date"}``.
        progress: called after each group of files.
    """

    partition_by: Mapping[str, str] = field(default_factory=dict)
    progress: ReportProgress | None = None

    def partition_columns(self) -> tuple[StructField, ...]:
        """The partition columns with their types. Raises InvalidArgumentError for what is not a type of a partition column."""
        if not isinstance(self.partition_by, Mapping):
            raise InvalidArgumentError(
                f"partition_by is {self.partition_by!r}: give the types of the partition columns by their names, in the order of "
                'the directories, e.g. {"day": "date"}. Nothing was changed.'
            )
        columns = tuple(StructField(name, parse_column_type(text).type) for name, text in self.partition_by.items())
        for column in columns:
            if not isinstance(column.type, PrimitiveType | DecimalType):
                raise InvalidArgumentError(
                    f"The partition column {column.name!r} cannot have the type {data_type_text(column.type)}: the name of a "
                    "directory gives its value. Nothing was changed. Give a type without parts, e.g. string or date."
                )
        return columns

    def refuse_for_delta_table(self, location: str) -> None:
        """Raises InvalidArgumentError if partition columns are given for a table that has a log."""
        if self.partition_by:
            raise InvalidArgumentError(
                f"{location} is a Delta table, whose log names its partition columns. Nothing was changed. Leave partition_by out."
            )


NO_OPTIONS = FolderOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFolder:
    """The files of a folder as one table.

    Attributes:
        definition: without the id of the table.
        actions: encoded ``add`` actions of the files, many in each item.
    """

    name: TableIdentifier
    location: str
    definition: TableDefinition
    actions: tuple[bytes, ...]
    num_files: int
    num_rows: int
    num_bytes: int


def has_parquet_files(store: Store, location: str) -> bool:
    """Whether there is a data file below ``location``."""
    return next(_data_files(store, location), None) is not None


def read_folder(
    store: Store, location: str, name: TableIdentifier, options: FolderOptions, *, now_ms: int
) -> ParquetFolder:
    """Read the footers of all files below ``location``; changes nothing.

    Raises:
        InvalidArgumentError: the directories do not fit ``partition_by``, a file is not a Parquet file, or a column has a type
            that data files of a Delta table cannot have.
        SchemaMismatchError: two files have different types for one column.
        InvalidDataError: a partition value is not of its type.
    """
    partitions = options.partition_columns()
    _refuse_links(store, location)
    files = list(_data_files(store, location))
    reader = _FolderReader(location, partitions)
    footers = iter_footers(store, (status for status, _ in files))
    done = 0
    for group in _groups(files):
        reader.add(group, footers)
        done += len(group)
        if options.progress is not None:
            options.progress(done, len(files))
    design = TableDesign(schema=reader.schema(), partition_columns=[item.name for item in partitions])
    return ParquetFolder(
        name=name,
        location=location,
        definition=new_table_definition(name, design, now_ms=now_ms),
        actions=tuple(reader.actions),
        num_files=len(files),
        num_rows=reader.num_rows,
        num_bytes=sum(status.size for status, _ in files),
    )


def convert(client: DeltaClient, folder: ParquetFolder, *, table_id: str, context: CommitProperties) -> bool:
    """Create version 0 of the table. Returns False if another writer has made it.

    Raises:
        CommitStateUnknownError: storage did not answer whether the file was created.
        StoreNotSupportedError: the store cannot create a file exclusively.
    """
    timestamp = next_in_commit_timestamp(client.now_ms(), None)
    columns = list(folder.definition.metadata.partition_columns)
    info = CommitInfo(
        in_commit_timestamp=timestamp,
        timestamp=timestamp,
        txn_id=str(uuid.uuid4()),
        operation=OPERATION,
        operation_parameters={"name": str(folder.name), "partitionedBy": ", ".join(columns)},
        operation_metrics={"numConvertedFiles": str(folder.num_files), "numOutputRows": str(folder.num_rows)},
        is_blind_append=True,
        engine_info=ENGINE_INFO,
        user_metadata=context.user_metadata,
        tags=dict(context.tags),
        extra=dict(context.custom_metadata),
    )
    definition = folder.definition.with_properties(**{TABLE_ID_KEY: table_id})
    head = encode_checked([info, definition.protocol, definition.metadata])
    return _create(client, folder.location, b"".join([head, *folder.actions]), txn_id=str(info.txn_id))


def _create(client: DeltaClient, location: str, data: bytes, *, txn_id: str) -> bool:
    store, target = client.stores.store_for(location), published_source(location, 0).location

    def create() -> bool:
        try:
            store.write_if_absent(target, data)
        except ObjectAlreadyExistsError:
            existing = commit_json.decode_commit_info(store.read(target))
            return existing is not None and existing.txn_id == txn_id
        return True

    return create_resolved(
        client,
        create,
        what=f"the log of {location}",
        consequence="No data file was changed. Once storage answers again, adopt the folder again.",
        txn_id=txn_id,
        version=0,
    )


class _FolderReader:
    """Collects the columns and the actions of files."""

    def __init__(self, location: str, partitions: Sequence[StructField]) -> None:
        self.actions: list[bytes] = []
        self.num_rows = 0
        self._location = location
        self._partitions = partitions
        self._columns: dict[str, tuple[StructField, str]] = {}
        self._statistics: dict[StructType, tuple[StatisticsColumn, ...]] = {}
        self._texts: dict[tuple[str, str], str] = {}

    def schema(self) -> StructType:
        """The columns of all files, then the partition columns."""
        return StructType((*(item for item, _ in self._columns.values()), *self._partitions))

    def add(self, files: Sequence[tuple[ObjectStatus, str]], footers: Iterator[pq.FileMetaData]) -> None:
        """Take in a group of files with their footers, which are the next ones of ``footers``."""
        lines = []
        for (status, relative), footer in zip(files, footers, strict=False):
            schema = self._schema_of(footer, relative)
            add = AddFile(
                path=encode_path(relative),
                partition_values=self._values(relative),
                size=status.size,
                modification_time=status.modification_time,
                data_change=True,
                stats=footer_statistics(footer, schema, self._statistics_of(schema)),
            )
            lines.append(checked_line(add))
            self.num_rows += footer.num_rows
        self.actions.append("".join(f"{line}\n" for line in lines).encode())

    def _statistics_of(self, schema: StructType) -> tuple[StatisticsColumn, ...]:
        if schema not in self._statistics:
            self._statistics[schema] = statistics_columns(schema, (), TableProperties({}))
        return self._statistics[schema]

    def _schema_of(self, footer: pq.FileMetaData, relative: str) -> StructType:
        """The columns of a file without partition columns, which join those of the files before."""
        try:
            schema = _file_schema(footer)
        except CmDeltaError as error:
            raise InvalidArgumentError(f"{self._location}/{relative} was not adopted: {error}") from error
        names = {item.name.casefold() for item in self._partitions}
        fields = tuple(item for item in schema.fields if item.name.casefold() not in names)
        for item in fields:
            known, first = self._columns.setdefault(item.name.casefold(), (item, relative))
            if (known.name, known.type) != (item.name, item.type):
                raise SchemaMismatchError(
                    f"{self._location} was not adopted: the column {item.name!r} is {data_type_text(item.type)} in {relative}, and "
                    f"{known.name!r} is {data_type_text(known.type)} in {first}. Nothing was changed. Rewrite the files of one of "
                    "the types."
                )
        return StructType(fields)

    def _values(self, relative: str) -> dict[str, str | None]:
        """Partition values from the directories of a file."""
        pairs = [segment.partition("=") for segment in relative.split("/")[:-1]]
        named = [(hive_unescape(key), hive_unescape(text)) for key, equals, text in pairs if equals]
        partition_names = [item.name for item in self._partitions]
        if [key for key, _ in named] != partition_names or (partition_names and len(named) != len(pairs)):
            directory_names = [key for key, _ in named]
            shown = ", ".join(f'"{key}": "string"' for key in directory_names)
            give = f"Give the partition columns {{{shown}}}, with their types"
            if not partition_names:
                hint = give
            elif directory_names and directory_names != partition_names and len(named) == len(pairs):
                hint = f"{give}, or move the file"
            else:
                hint = "Move or rename the file"
            raise InvalidArgumentError(
                f"{self._location} was not adopted: the directories of {relative} name the columns "
                f"({', '.join(directory_names) or 'none'}), and the partition columns are "
                f"({', '.join(partition_names) or 'none were given'}). Nothing was changed. {hint}."
            )
        values: dict[str, str | None] = {}
        for item, (_, text) in zip(self._partitions, named, strict=True):
            is_null = text in ("", HIVE_DEFAULT_PARTITION)
            values[item.name] = None if is_null else self._value(item, text, relative)
        return values

    def _value(self, item: StructField, text: str, relative: str) -> str | None:
        """The value of a directory name in the form of the log. A timestamp without a time zone keeps none."""
        known = self._texts.get((item.name, text))
        if known is not None:
            return known
        has_no_zone = item.type == TIMESTAMP and not names_zone(text)
        try:
            value = canonical_partition_text(text, TIMESTAMP_NTZ if has_no_zone else item.type)
        except (CmDeltaError, ValueError, OverflowError) as error:
            raise InvalidDataError(
                f"{self._location} was not adopted: {relative} has the value {text!r} of the partition column {item.name!r}, which "
                f"is not of the type {data_type_text(item.type)}. Nothing was changed. Give another type."
            ) from error
        if value is not None:
            self._texts[item.name, text] = value
        return value


def _refuse_links(store: Store, location: str) -> None:
    """Refuse symbolic links whose files a listing leaves out, because their rows would be missing in the table."""
    for link in store.unlisted_links(location):
        relative = link.removeprefix(f"{location}/")
        if not any(_is_hidden(segment) for segment in relative.split("/")):
            raise InvalidArgumentError(
                f"{location} was not adopted: {relative} is a symbolic link to a directory, or to nothing, and no file below it "
                "would be part of the table. Nothing was changed. Replace the link by the directory, or rename it so that its name "
                "begins with an underscore."
            )


def _groups(files: Sequence[tuple[ObjectStatus, str]]) -> Iterator[Sequence[tuple[ObjectStatus, str]]]:
    return (files[start : start + _GROUP] for start in range(0, len(files), _GROUP))


def _data_files(store: Store, location: str) -> Iterator[tuple[ObjectStatus, str]]:
    """Files below ``location`` with their relative paths; hidden ones are left out.

    Raises:
        InvalidArgumentError: a file that is neither hidden nor a Parquet file, a link to another of the files, or a log that says
            which files are live.
    """
    for status in store.list_recursive(location):
        relative = status.location.removeprefix(f"{location}/")
        # A log of Delta at the location itself was created after the caller looked for one; it is found by the next attempt.
        if not relative.startswith("_delta_log/") and _LOGS.intersection(relative.split("/")[:-1]):
            raise InvalidArgumentError(
                f"{location} was not adopted: {relative} belongs to a log that says which of the Parquet files are live. Nothing "
                "was changed. Adopt each Delta table by itself; write the rows of another format to a new Delta table."
            )
        if any(_is_hidden(segment) for segment in relative.split("/")):
            continue
        if not relative.endswith((".parquet", ".parq", ".pqt")):
            raise InvalidArgumentError(
                f"{location} was not adopted: {relative} is not a Parquet file by its name. Nothing was changed. Move it away, or "
                "rename it so that its name begins with an underscore."
            )
        if status.is_link:
            _refuse_second_name(store, location, relative)
        yield status, relative


def _refuse_second_name(store: Store, location: str, link: str) -> None:
    """Refuse a symbolic link to another data file of the folder, whose rows would be in the table twice."""
    root, target = f"{store.resolve(location)}/", store.resolve(f"{location}/{link}")
    if target.startswith(root) and not any(_is_hidden(segment) for segment in target.removeprefix(root).split("/")):
        raise InvalidArgumentError(
            f"{location} was not adopted: {link} is a symbolic link to {target.removeprefix(root)}, another file of the folder, so "
            "that its rows would be in the table twice. Nothing was changed. Remove the link."
        )


def _is_hidden(segment: str) -> bool:
    return segment.startswith(".") or (segment.startswith("_") and "=" not in segment)


def _file_schema(footer: pq.FileMetaData) -> StructType:
    """The columns of a file, all nullable. Raises InvalidArgumentError for a type that Delta files cannot have."""
    schema = footer.schema.to_arrow_schema()
    leaves = [footer.schema.column(position) for position in range(len(footer.schema))]
    old = {leaf.path for leaf in leaves if leaf.physical_type == _INT96}
    nested = [path for path in old if "." in path]
    if nested:
        raise InvalidArgumentError(
            f"The nested column {nested[0]!r} has times in the old format INT96. Rewrite the file."
        )
    plain = pa.schema([pa.field(item.name, pa.int64()) if item.name in old else item for item in schema])
    for item in plain:
        _check_stored(item.type, item.name)
    schema_of_file = from_arrow_schema(plain)
    typed = tuple(replace(item, type=TIMESTAMP) if item.name in old else item for item in schema_of_file.fields)
    return reconcile_schemas(StructType(()), StructType(typed), mode=SchemaMode.MERGE)


def _check_stored(stored: pa.DataType, path: str) -> None:
    """Refuse types whose bytes in a file readers of Delta tables would not read as the type of the column."""
    wrong = None
    if pat.is_timestamp(stored) and stored.unit == "ns":
        wrong = "times with nanoseconds, and Delta tables have microseconds"
    elif pat.is_unsigned_integer(stored) or pat.is_float16(stored) or pat.is_null(stored):
        wrong = f"the type {stored}, which data files of a Delta table cannot have"
    if wrong is not None:
        raise InvalidArgumentError(f"The column {path!r} has {wrong}. Rewrite the file with another type.")
    for position in range(stored.num_fields):
        child = stored.field(position)
        _check_stored(child.type, f"{path}.{child.name}")
