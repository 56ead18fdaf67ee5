"""Which objects several locations name: through links, other spellings, or a mount that this machine does not have.

A link is resolved with one call for its directory, and no call is made for a file unless its directory has links or another
location may name the file. Two mounts of one directory are not seen, except by :func:`named_otherwise`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CmDeltaError, ObjectNotFoundError
from cm_delta_dagster.protocol.actions.paths import folded_name, folded_names
from cm_delta_dagster.storage.store import Store, StoreRegistry

_Answer = TypeVar("_Answer")

_THREADS = 16
_LAST_SEGMENT = "(?s)/[^/]*$"


def resolved_location(stores: StoreRegistry, location: str) -> str | None:
    """The location as ``Store.resolve`` returns it; None if no store of this client has it, or the store does not answer."""
    try:
        return stores.store_for(location).resolve(location)
    except (CmDeltaError, OSError):
        return None


def resolved_files(stores: StoreRegistry, locations: pa.Array) -> pa.Array:
    """The location of each file with the links in it resolved, also if the file itself is one; null for what has no place.

    Args:
        locations: absolute and decoded, as of ``paths.file_keys``.
    """
    directories = pc.replace_substring_regex(locations, _LAST_SEGMENT, "").dictionary_encode()
    names = pc.replace_substring_regex(locations, "(?s)^.*/", "")
    places, links = [], dict[tuple[int, str], str]()
    for number, directory in enumerate(directories.dictionary.to_pylist()):
        places.append(resolved_location(stores, f"{directory}/"))
        for name, target in _links_in(stores, f"{directory}/").items():
            links[number, name] = target
    prefixes = pa.array([None if place is None else _below(place) for place in places], pa.string())
    files = pc.binary_join_element_wise(prefixes.take(directories.indices), names, pa.scalar(""))
    return files if not links else _through(files, directories.indices, names, links)


def _links_in(stores: StoreRegistry, directory: str) -> Mapping[str, str]:
    try:
        return stores.store_for(directory).links_in(directory)
    except (CmDeltaError, OSError):
        return {}


def _through(files: pa.Array, numbers: pa.Array, names: pa.Array, links: Mapping[tuple[int, str], str]) -> pa.Array:
    """``files`` with the targets of those that are links."""
    linked = pc.is_in(numbers, value_set=pa.array(sorted({number for number, _ in links}), numbers.type))
    pairs = zip(numbers.filter(linked).to_pylist(), names.filter(linked).to_pylist(), strict=True)
    targets = [links.get(pair, own) for pair, own in zip(pairs, files.filter(linked).to_pylist(), strict=True)]
    return pc.replace_with_mask(files, linked, pa.array(targets, pa.string()))


def named_otherwise(stores: StoreRegistry, location: str, paths: Collection[str], needed: pa.Array) -> frozenset[str]:
    """Those of the objects ``paths`` that ``needed`` names by other locations than ``location/path``.

    An object is one of them also if a needed one of the same name cannot be distinguished from it: there is nothing at its
    location, no store of this client has the location, or what is there has the same size and time, as through another mount.

    Args:
        paths: decoded, relative to ``location``, without links among them.
        needed: absolute and decoded locations, as of ``paths.file_keys``.
    """
    if not paths or not len(needed):
        return frozenset()
    root = _below(stores.store_for(location).resolve(location))
    places = resolved_files(stores, needed)
    known = pc.utf8_slice_codeunits(places.filter(pc.starts_with(places, root)), len(root))
    exact = set(known.to_pylist()).intersection(paths)
    placed = pc.is_in(places, value_set=pa.array([f"{root}{path}" for path in exact], pa.string()))
    return frozenset(exact | _similar(stores, location, set(paths) - exact, needed.filter(pc.invert(placed))))


def _similar(stores: StoreRegistry, location: str, paths: Collection[str], needed: pa.Array) -> set[str]:
    """Those of ``paths`` that have the name of a needed object and cannot be distinguished from it."""
    by_name: dict[str, list[str]] = {}
    for path in paths:
        by_name.setdefault(folded_name(path.rpartition("/")[2]), []).append(path)
    names = folded_names(needed)
    shared = pc.is_in(names, value_set=pa.array(list(by_name), pa.string()))
    pairs = list(zip(needed.filter(shared).to_pylist(), names.filter(shared).to_pylist(), strict=True))
    of_needed = _statuses(stores, (at for at, _ in pairs))
    own = _statuses(stores, (f"{location}/{path}" for _, name in pairs for path in by_name[name]))
    return {
        path
        for at, name in pairs
        for path in by_name[name]
        if of_needed[at] is None or of_needed[at] == own[f"{location}/{path}"]
    }


def _below(directory: str) -> str:
    return directory if directory.endswith("/") else f"{directory}/"


def sizes_of(store_for: Callable[[str], Store], locations: Iterable[str]) -> dict[str, int]:
    """Sizes of the objects at ``locations``; those that do not exist are left out. Requests run in parallel.

    Raises:
        StorageError: a store does not say whether an object exists.
    """

    def size(location: str) -> int | None:
        try:
            return store_for(location).stat(location).size
        except ObjectNotFoundError:
            return None

    return {at: num_bytes for at, num_bytes in _in_parallel(size, locations).items() if num_bytes is not None}


def _statuses(stores: StoreRegistry, locations: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """Size and time of each object; None if that is not known."""

    def status(location: str) -> tuple[int, int] | None:
        try:
            object_status = stores.store_for(location).stat(location)
        except (CmDeltaError, OSError):
            return None
        return object_status.size, object_status.modification_time

    return _in_parallel(status, locations)


def _in_parallel(request: Callable[[str], _Answer], locations: Iterable[str]) -> dict[str, _Answer]:
    unique = list(dict.fromkeys(locations))
    if not unique:
        return {}
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="cm-delta-stat") as pool:
        return dict(zip(unique, pool.map(request, unique), strict=True))
