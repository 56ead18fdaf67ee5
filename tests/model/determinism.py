"""Makes ids a function of the caller and of the number of ids before, so that a run can be repeated.

The source of random ids is ``uuid.uuid4`` of the standard library; it is replaced while an exploration runs. Clocks are given to
clients and catalogs as arguments, and retries do not sleep by their settings.
"""

import hashlib
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Identity:
    """Who acts now. ``drawn`` counts the ids drawn so far."""

    name: str
    drawn: int = 0


_acting: list[Identity] = []
_random_uuid = uuid.uuid4


@contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """Ids drawn inside, by whatever thread, belong to ``identity``."""
    _acting.append(identity)
    try:
        yield
    finally:
        _acting.pop()


def _uuid4() -> uuid.UUID:
    if not _acting:
        return _random_uuid()
    identity = _acting[-1]
    identity.drawn += 1
    digest = hashlib.md5(f"{identity.name}/{identity.drawn}".encode()).digest()
    return uuid.UUID(bytes=digest, version=4)


@contextmanager
def deterministic() -> Iterator[None]:
    """Predictable ids, and no log lines: an exploration causes thousands of unknown outcomes."""
    logger = logging.getLogger("cm_delta_dagster")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    uuid.uuid4 = _uuid4
    try:
        yield
    finally:
        uuid.uuid4 = _random_uuid
        logger.setLevel(level)
