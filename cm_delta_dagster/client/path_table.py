"""Tables known by their location alone, of any Delta writer. Room: client. Reading only.

A catalog-managed table is refused here: only its catalog knows its latest version (CM-R8).
"""

from cm_delta_dagster.client.log_reader import load_state
from cm_delta_dagster.client.snapshot import Snapshot
from cm_delta_dagster.errors import CatalogManagedAccessError, TableNotFoundError, VersionNotFoundError
from cm_delta_dagster.protocol import log_files
from cm_delta_dagster.protocol.log_files import CommitFile, parse_log_file
from cm_delta_dagster.protocol.path_encoding import normalise_location
from cm_delta_dagster.protocol.table_features import check_readable, is_catalog_managed
from cm_delta_dagster.storage.store import StoreRegistry


def load_path_snapshot(stores: StoreRegistry, location: str, *, version: int | None = None) -> Snapshot:
    """The table at ``location``, at its latest version or at ``version``.

    Raises:
        TableNotFoundError: there is no Delta log at ``location``.
        CatalogManagedAccessError: the table is catalog-managed.
        VersionNotFoundError: ``version`` does not exist.
        UnsupportedFeatureError: the table needs a reader feature that this client does not have.
    """
    root = normalise_location(location)
    store = stores.store_for(root)
    names = [status.name for status in store.list_from(log_files.log_directory(root))]
    versions = [file.version for file in map(parse_log_file, names) if isinstance(file, CommitFile)]
    if not versions:
        raise TableNotFoundError(f"There is no Delta table at {root}: its _delta_log holds no commit.")
    latest = max(versions)
    target = latest if version is None else version
    if not 0 <= target <= latest:
        raise VersionNotFoundError(f"Version {target} of {root} does not exist; the latest version is {latest}.")
    loaded = load_state(store, location=root, version=target, ratified=(), threads=8)
    if is_catalog_managed(loaded.state.protocol):
        raise CatalogManagedAccessError(
            f"The table at {root} is catalog-managed: its files do not say which commits are ratified. Open it by its name "
            "through the catalog that manages it."
        )
    check_readable(loaded.state.protocol, root, metadata=loaded.state.metadata)
    return Snapshot(
        identifier=root,
        table_id=loaded.state.metadata.id,
        location=root,
        version=target,
        published_version=target,
        data_version=target,
        timestamp_ms=loaded.in_commit_timestamp or 0,
        state=loaded.state,
    )
