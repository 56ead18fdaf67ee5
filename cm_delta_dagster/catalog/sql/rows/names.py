"""Checks of names, scopes and warehouses before they reach the database."""

import os
import re
import unicodedata

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.paths import OBJECT_STORE_SCHEMES, flaw_of_path, normalise_location

_MAX_NAME_LENGTH = 120
LARGEST = 2**63 - 2
"""Allows one more increment in a signed 64-bit column."""
_SCHEME_WITHOUT_SLASHES = re.compile(r"([A-Za-z0-9]+)(?::(?!//)|//)")
"""What looks like the scheme of a URI and is not followed by ``://``."""


def check_identifier(identifier: TableIdentifier) -> None:
    """Raises InvalidArgumentError unless every part is letters, digits, ``_`` and ``-``."""
    for part in (identifier.catalog, identifier.schema, identifier.table):
        _check_part(part, of=str(identifier))


def scope_parts(scope: str) -> tuple[str, ...]:
    """Parts of ``catalog``, ``catalog.schema`` or ``catalog.schema.table``. Raises InvalidArgumentError."""
    parts = tuple(scope.split(".")) if isinstance(scope, str) else ()
    if not 1 <= len(parts) <= 3:
        raise InvalidArgumentError(f"{scope!r} is not a scope: write catalog, catalog.schema or catalog.schema.table.")
    for part in parts:
        _check_part(part, of=scope)
    return parts


def check_namespace(name: str, *, levels: int | None = None) -> None:
    """Raises InvalidArgumentError unless the name is ``catalog`` or ``catalog.schema``; with ``levels`` one of these."""
    parts = name.split(".") if isinstance(name, str) else []
    if len(parts) not in ((1, 2) if levels is None else (levels,)):
        forms = ("catalog", "catalog.schema")
        form = " or ".join(forms) if levels is None else forms[levels - 1]
        raise InvalidArgumentError(f"{name!r} is not the name of a catalog or schema: write {form}.")
    for part in parts:
        _check_part(part, of=name)


def _check_part(part: str, *, of: str) -> None:
    # Letters of any script, in composed form (NFC) only: two encodings of one visible name would be two tables.
    plain = all(character in "_-" or character.isalnum() for character in part)
    if not (part and plain and len(part) <= _MAX_NAME_LENGTH and unicodedata.is_normalized("NFC", part)):
        raise InvalidArgumentError(
            f"{part!r} in {of!r} cannot be part of a name: use 1 to {_MAX_NAME_LENGTH} letters, digits, '_' and '-'."
        )


def checked_warehouse(warehouse: str) -> str:
    """The warehouse as an absolute location without trailing slash, one spelling for each bucket and path.

    Raises:
        InvalidArgumentError: it cannot be the parent of locations.
    """
    flaw = flaw_of_path(warehouse)
    if flaw is not None:
        raise InvalidArgumentError(
            f"{warehouse!r} cannot be the warehouse: {flaw}. Give a directory, or a URI such as s3://bucket/warehouse."
        )
    misspelt = _SCHEME_WITHOUT_SLASHES.match(warehouse)
    if misspelt is not None and misspelt[1].lower() in OBJECT_STORE_SCHEMES:
        raise InvalidArgumentError(
            f"{warehouse!r} cannot be the warehouse: it begins with {misspelt[1]!r} and is no URI. Give "
            f"{misspelt[1].lower()}://bucket/path for the object store, or ./{warehouse} for a directory of this machine."
        )
    location = warehouse
    if warehouse and "://" not in warehouse and not warehouse.startswith("file:/"):
        location = f"file://{os.path.abspath(warehouse)}"
    # Unity Catalog and its clients write local locations with three slashes, and compare them as strings.
    location = re.sub(r"^file:(?://(?:localhost)?)?/(?!/)", "file:///", location).rstrip("/")
    if "%" in location or ".." in location.split("/") or not location or location.endswith(":"):
        raise InvalidArgumentError(
            f"{warehouse!r} cannot be the warehouse: give an absolute location such as s3://bucket/warehouse, without "
            "'%' and '..'."
        )
    scheme, _, rest = location.partition("://")
    if scheme.lower() not in OBJECT_STORE_SCHEMES:
        return location
    if not rest.partition("/")[0]:
        raise InvalidArgumentError(
            f"{warehouse!r} cannot be the warehouse: it names no bucket. Give s3://bucket/warehouse."
        )
    # Compared as text too; and Hadoop, which writes the data files, removes repeated slashes.
    return normalise_location(location)
