"""Checks of names, scopes, warehouses and proposals before they reach the database.

Protocol heading "Catalog-managed tables".
"""

import hashlib
import os
import re
import unicodedata

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.texts import is_storable
from cm_delta_dagster.errors import CommitRejectedError, CorruptLogError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit, decode_commit_info, encode_action
from cm_delta_dagster.protocol.actions.paths import OBJECT_STORE_SCHEMES, flaw_of_path, normalise_location
from cm_delta_dagster.protocol.log import log_files

_MAX_NAME_LENGTH = 120
LARGEST = 2**63 - 2
"""Allows one more increment in a signed 64-bit column."""
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_STAGED_FILE = re.compile(r"(\d{20})\.[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\.json", re.ASCII)
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


def check_proposal(proposal: CommitProposal) -> None:
    """Check a staged or inline proposal, as far as possible without the table. Raises CommitRejectedError."""
    match = _STAGED_FILE.fullmatch(proposal.file_name)
    if match is None or int(match[1]) != proposal.version:
        raise CommitRejectedError(
            f"Version {proposal.version} was proposed with the file name {proposal.file_name!r}; it must be "
            f"{proposal.version:020d}.<uuid>.json, a bare name inside _delta_log/_staged_commits."
        )
    _check_storable(proposal)
    if proposal.mode is CommitMode.PUT_IF_ABSENT:
        raise CommitRejectedError(
            f"Version {proposal.version} was proposed as {proposal.mode.value}; a proposal is staged or inline."
        )
    if proposal.mode is CommitMode.INLINE or proposal.content is not None:
        _check_content(proposal)


def check_published(proposal: CommitProposal) -> None:
    """Check a commit that the creation of its published file made. Raises CommitRejectedError."""
    right = log_files.commit_file_name(proposal.version)
    if proposal.mode is not CommitMode.PUT_IF_ABSENT or proposal.file_name != right:
        raise CommitRejectedError(
            f"Version {proposal.version} was reported as published under the name {proposal.file_name!r}, "
            f"{proposal.mode.value}; it must be {right} and put_if_absent."
        )
    _check_storable(proposal)
    if proposal.content is not None:
        _check_content(proposal)


def check_recovered(proposal: CommitProposal) -> None:
    """Check a commit that recovery found on storage. Raises CommitRejectedError."""
    match = _STAGED_FILE.fullmatch(proposal.file_name)
    staged = match is not None and int(match[1]) == proposal.version
    if not staged and proposal.file_name != log_files.commit_file_name(proposal.version):
        raise CommitRejectedError(
            f"Version {proposal.version} cannot be recorded with the file name {proposal.file_name!r}: it is neither the name of "
            "its published file nor that of a staged file."
        )
    _check_storable(proposal)
    if proposal.content is not None:
        _check_content(proposal)


def _check_storable(proposal: CommitProposal) -> None:
    summary = proposal.summary
    if not summary.txn_id:
        raise CommitRejectedError(
            f"Version {proposal.version} was proposed without a txnId; every commit must have a unique one."
        )
    published = -1 if proposal.published_version is None else proposal.published_version
    numbers = (
        proposal.version,
        published,
        proposal.file_size,
        proposal.file_modification_time,
        summary.in_commit_timestamp,
    )
    wrong = next((number for number in numbers if abs(number) > LARGEST), None)
    if wrong is not None or not is_storable(summary.txn_id + summary.operation):
        raise CommitRejectedError(
            f"Version {proposal.version} was proposed with {'a text' if wrong is None else f'the number {wrong}'} that no "
            "database can hold. Numbers have at most 63 bits, and the operation and the txnId are texts of Unicode characters "
            "other than U+0000."
        )
    if proposal.sha256 is not None and _DIGEST.fullmatch(proposal.sha256) is None:
        raise CommitRejectedError(
            f"Version {proposal.version} was proposed with the SHA-256 {proposal.sha256!r}; write it as 64 hexadecimal digits in "
            "lower case."
        )


def _check_content(proposal: CommitProposal) -> None:
    content = proposal.content
    wrong: str | None
    if content is None or len(content) != proposal.file_size:
        wrong = f"{'no' if content is None else len(content)} bytes of content and the size {proposal.file_size}"
    elif proposal.sha256 is not None and hashlib.sha256(content).hexdigest() != proposal.sha256:
        wrong = "content that does not have the SHA-256 of the proposal"
    else:
        wrong = contradiction(proposal, content)
    if wrong is not None:
        raise contradicted(proposal, wrong)


def contradicted(proposal: CommitProposal, wrong: str) -> CommitRejectedError:
    """The error for a proposal that says something else than its content; ``wrong`` completes "was proposed with"."""
    return CommitRejectedError(
        f"Version {proposal.version} was proposed {proposal.mode.value} with {wrong}. Nothing was ratified. Propose the commit "
        "with its own values."
    )


def contradiction(proposal: CommitProposal, content: bytes) -> str | None:
    """In what the proposal says something else than ``content``, which has its size and its digest; None if in nothing."""
    info, summary = decode_commit_info(content), proposal.summary
    if info is None:
        return "content whose first line is not a commitInfo"
    if (info.txn_id, info.in_commit_timestamp) != (summary.txn_id, summary.in_commit_timestamp):
        return (
            f"the txnId {summary.txn_id} and the in-commit timestamp {summary.in_commit_timestamp}, and its content says "
            f"{info.txn_id} and {info.in_commit_timestamp}"
        )
    return (
        None
        if _matches_definition(proposal, content)
        else "content whose protocol or metadata is not that of the proposal"
    )


def _matches_definition(proposal: CommitProposal, content: bytes) -> bool:
    """Whether metadata and protocol in ``content`` equal those of the proposal."""
    # A string value inside the commit has its quotes escaped, so that it does not match.
    if b'"metaData"' not in content and b'"protocol"' not in content:
        return True
    try:
        actions = decode_commit(content, version=proposal.version)
    except CorruptLogError:
        return False
    pairs = ((actions.metadata, proposal.metadata), (actions.protocol, proposal.protocol))
    return all(
        committed is None or (proposed is not None and encode_action(committed) == encode_action(proposed))
        for committed, proposed in pairs
    )
