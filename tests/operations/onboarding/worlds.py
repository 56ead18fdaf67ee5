"""Delta tables of other writers in the memory store of a :class:`~tests.support.lake.Lake`, to be adopted."""

from tests.support.foreign_log import Action, add, info, lines, metadata, protocol
from tests.support.lake import Lake

NAME = "main.test.adopted"
PLAIN: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def put_commit(lake: Lake, location: str, version: int, *actions: Action) -> None:
    """Write a commit as a writer by path does."""
    lake.clock.now += 1000
    lake.memory.write(f"{location}/_delta_log/{version:020d}.json", lines(info(), *actions))


def put_file(lake: Lake, location: str, name: str) -> Action:
    lake.memory.write(f"{location}/{name}", b"0123456789")
    return add(name, modificationTime=lake.clock())


def path_table(lake: Lake, name: str = "t", *, first: Action = PLAIN, root: str = "memory://lake/outside") -> str:
    """A table with versions 0 and 1 and a file in each; its location."""
    location = f"{root}/{name}"
    put_commit(lake, location, 0, first, metadata(), put_file(lake, location, "a.parquet"))
    put_commit(lake, location, 1, put_file(lake, location, "b.parquet"))
    return location


def managed(features: str = "catalogManaged") -> Action:
    return protocol(features, "inCommitTimestamp", "vacuumProtocolCheck")


def objects(lake: Lake) -> dict[str, bytes]:
    """Every object of the store, with its bytes."""
    return {status.location: lake.memory.read(status.location) for status in lake.memory.list_recursive("memory:/")}
