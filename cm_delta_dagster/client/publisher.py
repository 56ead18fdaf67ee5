"""Publication of ratified commits (protocol "Publishing commits"). Room: client.

Copies ratified content byte for byte to ``_delta_log/<version>.json``, in order, put-if-absent. Any number of publishers may
run at once: "exists already" counts as done (CM-P3), if it is the same content and not that of a writer who went by
the table's path (CM-P1). Staged files stay; metadata cleanup removes them (CM-P7).
"""

from collections.abc import Mapping

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.client.log_reader import published_source, ratified_source, read_source
from cm_delta_dagster.errors import CorruptLogError, ObjectAlreadyExistsError
from cm_delta_dagster.storage.store import Store


def publish_commits(
    store: Store,
    catalog: Catalog,
    *,
    table_id: str,
    location: str,
    ratified: RatifiedCommits,
    contents: Mapping[int, bytes] | None = None,
) -> tuple[int, ...]:
    """Publish every commit of ``ratified`` that is not yet, and tell the catalog how far ``_delta_log`` reaches.

    Args:
        contents: bytes of commits that the caller holds already, by version; others are read from their staged files.

    Returns:
        The versions published or found published, ascending; empty if nothing was pending.

    Raises:
        CorruptLogError: a staged file is not what was ratified, or ``_delta_log`` has other content under a version.
        StorageError: a commit could not be copied; those after it were not tried (CM-P2), those before are reported.
    """
    held = contents or {}
    done: list[int] = []
    try:
        for commit in ratified.commits:
            if commit.version <= ratified.published_version:
                continue
            data = held.get(commit.version)
            if data is None:
                data = read_source(store, ratified_source(location, commit))
            publish_one(store, location, version=commit.version, data=data)
            done.append(commit.version)
    finally:
        if done:
            catalog.set_published_version(table_id, done[-1])
    return tuple(done)


def publish_one(store: Store, location: str, *, version: int, data: bytes) -> None:
    """Publish one ratified commit, whose predecessors are published. Errors as in :func:`publish_commits`."""
    target = published_source(location, version).location
    try:
        store.write_if_absent(target, data)
    except ObjectAlreadyExistsError as error:
        if store.read(target) != data:
            raise CorruptLogError(
                f"{target} was there before version {version} was published and is not what the catalog ratified: somebody "
                "wrote to the log by its path. Readers of the catalog see the ratified commit, which stays staged. Move "
                "that file away and publish again."
            ) from error
