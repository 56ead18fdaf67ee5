"""Loading data files by their names, where Spark has no file index: exactly the given files.

Spark Connect and platforms that hide the JVM read through this module. It returns the columns as the files hold them;
``columns`` converts them.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.spark.expressions.schema import nullable, to_spark
from cm_delta_dagster.spark.library import DataFrame, SparkSession
from cm_delta_dagster.spark.read.footers import read_footer
from cm_delta_dagster.spark.read.layout import PATTERN_LETTER
from cm_delta_dagster.spark.stores.object_stores import SparkStorage
from cm_delta_dagster.storage.store import Store

READ_OPTIONS: Mapping[str, str] = {
    # For files without the metadata that states the calendar of dates and times before 1582.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # A missing or damaged file is an error regardless of session settings: rows are never omitted silently.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # By default Spark writes page checksums and does not verify them. A corrupt byte would then be a changed value, which
    # OPTIMIZE, UPDATE and MERGE would write into a new file.
    "parquet.page.verify-checksum.enabled": "true",
    "recursiveFileLookup": "false",
    "mergeSchema": "false",
}
"""Options of each read of data files."""
_THREADS = 16


def load_files(
    session: SparkSession,
    stored: StructType,
    *,
    store: Store,
    storage: SparkStorage,
    locations: pa.Array,
    sizes: pa.ChunkedArray,
) -> DataFrame:
    """The columns of ``stored``, all nullable, of the files at ``locations``.

    Raises:
        ObjectNotFoundError: a file is missing.
        StorageError: a file was cut short: Spark would read an empty file as no rows.
    """
    _check_lengths(store, locations, sizes)
    reader = session.read.schema(to_spark(stored)).options(**storage.options_for(locations), **READ_OPTIONS)
    # Names are escaped as glob patterns, which Spark expects. With the option ``__globPaths__`` each name that looks like a
    # pattern would match all given names.
    return reader.parquet(*(PATTERN_LETTER.sub(r"\\\g<0>", storage.location(name)) for name in locations.to_pylist()))


def made_nullable(schema: StructType) -> StructType:
    """The schema as Spark's reader has it: all columns and fields of structs are nullable."""
    fields = []
    for item in schema.fields:
        inner = made_nullable(item.type) if isinstance(item.type, StructType) else item.type
        fields.append(nullable(StructField(item.name, inner, True, item.metadata)))
    return StructType(tuple(fields))


def _check_lengths(store: Store, locations: pa.Array, sizes: pa.ChunkedArray) -> None:
    names = locations.to_pylist()
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        for status, size in zip(pool.map(store.stat, names), sizes.to_pylist(), strict=True):
            if status.size == size:
                continue
            try:
                read_footer(store, status)
            except StorageError as error:
                raise StorageError(
                    f"The data file {status.location} is damaged: the log says {size} bytes, storage has "
                    f"{status.size}, and it has no readable Parquet footer. Its rows are part of this version, so "
                    "nothing is read. Restore the file, or read a version that does not need it."
                ) from error
