"""Harms to the files and the database of a place, and how they are undone."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.protocol.features.deletion_vectors import encode_bitmap, encode_file
from cm_delta_dagster.protocol.log import log_files
from tests.disasters.place import CHECKPOINTED, LATEST, PUBLISHED, Place, PostgresDatabase, SqliteDatabase
from tests.disasters.vocabulary import Cell, Harm, Mode, Object

_IMMUTABLE = "it is written once under a name of its own, so there is no older copy of it"
_NO_STAGED_FILE = "in this mode the newest commit has no staged file"

FORMS: dict[tuple[Object, Harm], str] = {
    (Object.TABLE_DIRECTORY, Harm.MISSING): "the whole directory of the table is gone",
    (Object.TABLE_DIRECTORY, Harm.TRUNCATED): "`_delta_log` is gone and the data files are there",
    (
        Object.TABLE_DIRECTORY,
        Harm.OTHER_CONTENT,
    ): "the directory of another table, with as many versions, is in its place",
    (
        Object.TABLE_DIRECTORY,
        Harm.OLDER_COPY,
    ): "the directory was restored from a backup that is older than the catalog",
    (Object.WAREHOUSE, Harm.MISSING): "the directory of the warehouse is gone",
    (Object.WAREHOUSE, Harm.TRUNCATED): "the directory is there and empty, as where a volume is not mounted",
    (Object.WAREHOUSE, Harm.OTHER_CONTENT): "the warehouse of another catalog is mounted there",
    (Object.WAREHOUSE, Harm.OLDER_COPY): "the warehouse was restored from a backup that is older than the catalog",
    (Object.CATALOG_DATABASE, Harm.MISSING): "the database is new and empty",
    (Object.CATALOG_DATABASE, Harm.TRUNCATED): "the file of the SQLite database lost its second half",
    (
        Object.CATALOG_DATABASE,
        Harm.ONE_BIT,
    ): "a bit of a commit's content or digest changed in the file of the SQLite database",
    (
        Object.CATALOG_DATABASE,
        Harm.OTHER_CONTENT,
    ): "a file of the same size that is not a SQLite database is in its place",
    (
        Object.CATALOG_DATABASE,
        Harm.OLDER_COPY,
    ): "the database was restored from a backup that is older than the storage",
    (Object.CATALOG_ROW, Harm.MISSING): "the row of the newest commit is gone",
    (Object.CATALOG_ROW, Harm.TRUNCATED): "the content in the row of the newest commit lost its second half",
    (Object.CATALOG_ROW, Harm.ONE_BIT): "one digit changed in the digest of the newest commit",
    (Object.CATALOG_ROW, Harm.OTHER_CONTENT): "the row of the newest commit has the digest of another commit",
    (Object.CATALOG_ROW, Harm.OLDER_COPY): "the rows of the table are those of two versions ago",
}


def harm(place: Place, cell: Cell) -> None:
    """Apply the harm of ``cell`` to ``place``. The cell must apply according to the table."""
    match cell.object:
        case Object.TABLE_DIRECTORY | Object.WAREHOUSE:
            _DIRECTORIES[cell.object, cell.harm](place)
        case Object.CATALOG_DATABASE:
            _harm_database(place, cell.harm)
        case Object.CATALOG_ROW:
            _harm_row(place, cell.harm)
        case _:
            _harm_file(place, _file(place, cell.object), cell)


def undo(place: Place, cell: Cell) -> None:
    """Copy the original over the harmed object; objects that were created since stay."""
    if cell.object in (Object.CATALOG_DATABASE, Object.CATALOG_ROW):
        place.database.restore("latest")
    elif cell.object in (Object.TABLE_DIRECTORY, Object.WAREHOUSE):
        place.lay_over("latest")
    else:
        path = _file(place, cell.object)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(place.template() / path.relative_to(place.warehouse), path)


def _file(place: Place, object_: Object) -> Path:
    facts, log = place.facts, place.log
    match object_:
        case Object.PUBLISHED_COMMIT:
            return place.commit_path(PUBLISHED)
        case Object.STAGED_COMMIT:
            return log / "_staged_commits" / facts.staged[LATEST]
        case Object.CHECKPOINT:
            return log / facts.checkpoint
        case Object.SIDECAR:
            return log / "_sidecars" / facts.sidecar
        case Object.CHECKSUM:
            return log / log_files.checksum_file_name(CHECKPOINTED)
        case Object.HINT:
            return log / log_files.LAST_CHECKPOINT_FILE_NAME
        case Object.DATA_FILE:
            return place.table_directory / facts.files["a"]
        case Object.VECTOR_FILE:
            return place.table_directory / facts.vector
    raise AssertionError(object_)


def _harm_file(place: Place, path: Path, cell: Cell) -> None:
    data = path.read_bytes()
    match cell.harm:
        case Harm.MISSING:
            path.unlink()
        case Harm.TRUNCATED:
            path.write_bytes(data[: len(data) // 2])
        case Harm.ONE_BIT:
            at = _BITS.get(cell.object, lambda data: len(data) // 2)(data)
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        case Harm.OTHER_CONTENT:
            other = _OTHERS[cell.object](place, data)
            assert len(other) == len(data) and other != data
            path.write_bytes(other)
        case Harm.OLDER_COPY:
            assert cell.object is Object.HINT
            path.write_bytes(data.replace(b'"version":5', b'"version":2'))


def _in_add(data: bytes) -> int:
    """The first letter of an action's name: "add" becomes "\\x60dd", and the action is unknown."""
    return data.index(b'"add"') + 1


def _in_page(column: str) -> Callable[[bytes], int]:
    """A byte in the values of a column of a Parquet file."""

    def at(data: bytes) -> int:
        group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
        chunks = [group.column(index) for index in range(group.num_columns)]
        chunk = next(chunk for chunk in chunks if chunk.path_in_schema == column)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        return int(start + chunk.total_compressed_size - 2)

    return at


_BITS: dict[Object, Callable[[bytes], int]] = {
    Object.PUBLISHED_COMMIT: _in_add,
    Object.STAGED_COMMIT: _in_add,
    Object.CHECKPOINT: _in_page("metaData.schemaString"),
    Object.SIDECAR: _in_page("add.path"),
    Object.DATA_FILE: _in_page("id"),
    Object.CHECKSUM: lambda data: data.index(b'"numFiles":') + len(b'"numFiles":'),
    Object.HINT: lambda data: data.index(b'"version":') + len(b'"version":'),
}


def _commit_of_same_size(place: Place, data: bytes) -> bytes:
    """The commit with the name of another data file."""
    name = place.facts.files["e"].encode()
    own = next(file.encode() for file in place.facts.files.values() if file.encode() in data)
    return data.replace(own, name)


def _rows_of_same_size(place: Place, data: bytes) -> bytes:
    """Another data file of the table, with the same number of rows and other values; some are one byte shorter."""
    files = [(place.table_directory / place.facts.files[name]).read_bytes() for name in "bdefg"]
    return next(file for file in files if len(file) == len(data))


def _vector_of_same_size(place: Place, data: bytes) -> bytes:
    """A complete vector with the same number of positions, one of them another row."""
    return encode_file([encode_bitmap([0, 2])])[0]


def _reversed(place: Place, data: bytes) -> bytes:
    return bytes(reversed(data))


def _checksum_of_other_state(place: Place, data: bytes) -> bytes:
    assert b'"numFiles":3' in data
    return data.replace(b'"numFiles":3', b'"numFiles":4')


def _hint_of_other_version(place: Place, data: bytes) -> bytes:
    return data.replace(b'"version":5', b'"version":7')


_OTHERS: dict[Object, Callable[[Place, bytes], bytes]] = {
    Object.PUBLISHED_COMMIT: _commit_of_same_size,
    Object.STAGED_COMMIT: _commit_of_same_size,
    Object.CHECKPOINT: _reversed,
    Object.SIDECAR: _reversed,
    Object.CHECKSUM: _checksum_of_other_state,
    Object.HINT: _hint_of_other_version,
    Object.DATA_FILE: _rows_of_same_size,
    Object.VECTOR_FILE: _vector_of_same_size,
}


def _empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def _older_table(place: Place) -> None:
    shutil.rmtree(place.table_directory)
    older = place.template("older") / place.table_directory.relative_to(place.warehouse)
    shutil.copytree(older, place.table_directory)


def _other_table(place: Place) -> None:
    shutil.rmtree(place.table_directory)
    other = place.path(place.facts.other_location)
    shutil.copytree(other, place.table_directory, copy_function=shutil.copy)


_DIRECTORIES: dict[tuple[Object, Harm], Callable[[Place], None]] = {
    (Object.TABLE_DIRECTORY, Harm.MISSING): lambda place: shutil.rmtree(place.table_directory),
    (Object.TABLE_DIRECTORY, Harm.TRUNCATED): lambda place: shutil.rmtree(place.log),
    (Object.TABLE_DIRECTORY, Harm.OTHER_CONTENT): _other_table,
    (Object.TABLE_DIRECTORY, Harm.OLDER_COPY): _older_table,
    (Object.WAREHOUSE, Harm.MISSING): lambda place: shutil.rmtree(place.warehouse),
    (Object.WAREHOUSE, Harm.TRUNCATED): lambda place: _empty(place.warehouse),
    (Object.WAREHOUSE, Harm.OTHER_CONTENT): lambda place: place.put_warehouse("other"),
    (Object.WAREHOUSE, Harm.OLDER_COPY): lambda place: place.put_warehouse("older"),
}


def _harm_database(place: Place, harm: Harm) -> None:
    database = place.database
    if harm is Harm.OLDER_COPY:
        database.restore("older")
        return
    if harm is Harm.MISSING:
        database.remove()
        if isinstance(database, PostgresDatabase):
            database.make_empty()
        return
    assert isinstance(database, SqliteDatabase)
    data = database.live.read_bytes()
    match harm:
        case Harm.TRUNCATED:
            database.live.write_bytes(data[: len(data) // 2])
        case Harm.ONE_BIT:
            at = data.index(_digest(place, LATEST).encode())
            database.live.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        case Harm.OTHER_CONTENT:
            database.live.write_bytes(bytes(reversed(data)))


_OF_LATEST = "WHERE table_id = :table_id AND version = :version"


def _digest(place: Place, version: int) -> str:
    (row,) = place.database.execute(
        f"SELECT sha256 FROM cm_delta_commits {_OF_LATEST}", table_id=place.facts.table_id, version=version
    )
    return str(row[0])


def _harm_row(place: Place, harm: Harm) -> None:
    def do(statement: str, **values: object) -> None:
        place.database.execute(statement, table_id=place.facts.table_id, version=LATEST, **values)

    match harm:
        case Harm.MISSING:
            do(f"DELETE FROM cm_delta_commits {_OF_LATEST}")
        case Harm.TRUNCATED:
            assert place.mode is not None and Mode(place.mode.value) is Mode.INLINE
            do(f"UPDATE cm_delta_commits SET content = :half {_OF_LATEST}", half=place.facts.commits[LATEST][:200])
        case Harm.ONE_BIT:
            digest = _digest(place, LATEST)
            changed = digest[:-1] + format(int(digest[-1], 16) ^ 1, "x")
            do(f"UPDATE cm_delta_commits SET sha256 = :digest {_OF_LATEST}", digest=changed)
        case Harm.OTHER_CONTENT:
            do(f"UPDATE cm_delta_commits SET sha256 = :digest {_OF_LATEST}", digest=_digest(place, LATEST - 1))
        case Harm.OLDER_COPY:
            published = LATEST - 2
            do("DELETE FROM cm_delta_commits WHERE table_id = :table_id AND version > :version - 2")
            do(
                "UPDATE cm_delta_tables SET latest_version = :version - 2, published_version = :published, "
                "latest_data_version = :version - 2, latest_in_commit_timestamp = (SELECT in_commit_timestamp FROM "
                "cm_delta_commits WHERE table_id = :table_id AND version = :version - 2) WHERE table_id = :table_id",
                published=published,
            )
