"""Tables of other writers in the Python API, opened by path."""

import typing

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.table.table_reads import TableReads
from cm_delta_dagster.client.snapshots.path_table import PathTable


class PathDeltaTable(AbsentMethods, TableReads[PathTable]):
    """A Delta table of another writer, opened by its path to read, compare or import it. It is never written.

    Catalog-managed tables are refused: only their catalog knows which commits are ratified.
    """

    _absent: typing.ClassVar[str] = (
        "a table that is opened by its path is only read. To write to it or to maintain it, bring it under the catalog with "
        "lake.onboarding.adopt(path, name)."
    )
