"""Checks of proposals before they reach the database, as far as possible without the table.

Protocol heading "Catalog-managed tables".
"""

import hashlib
import re

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit
from cm_delta_dagster.catalog.sql.rows.names import LARGEST
from cm_delta_dagster.catalog.texts import is_storable
from cm_delta_dagster.errors import CommitRejectedError, CorruptLogError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit, decode_commit_info, encode_action
from cm_delta_dagster.protocol.commits.proposal_checks.content import CheckedContent
from cm_delta_dagster.protocol.log import log_files

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LAST_FILE_TIME = 253_402_300_799_999
"""The end of the year 9999, epoch milliseconds."""
_STAGED_FILE = re.compile(r"(\d{20})\.[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\.json", re.ASCII)


def check_proposal(proposal: CommitProposal) -> None:
    """Check a staged or inline proposal without its content. Raises CommitRejectedError."""
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


def check_bytes(proposal: CommitProposal) -> None:
    """Check that each content has the size and the digest of the proposal: it may be absent, and never another one.

    Raises:
        CommitRejectedError: it has not, or there is none of an inline commit.
    """
    if proposal.content is None and proposal.mode is CommitMode.INLINE:
        raise contradicted(proposal, f"no bytes of content and the size {proposal.file_size}")
    for content in _distinct(proposal.content, proposal.content_to_check):
        wrong = wrong_bytes(content, size=proposal.file_size, sha256=proposal.sha256)
        if wrong is not None:
            raise contradicted(proposal, wrong)


def check_initial_bytes(initial: InitialCommit) -> None:
    """As :func:`check_bytes`, of version 0, and of the time of its file."""
    _check_file_time(0, initial.file_modification_time)
    for content in _distinct(initial.content, initial.content_to_check):
        wrong = wrong_bytes(content, size=initial.file_size, sha256=initial.sha256)
        if wrong is not None:
            raise CommitRejectedError(
                f"Version 0 was registered with {wrong}. Nothing was created. Register it with its own values."
            )


def _check_file_time(version: int, file_modification_time: int) -> None:
    if not 0 <= file_modification_time <= _LAST_FILE_TIME:
        raise CommitRejectedError(
            f"Version {version} was proposed with the modification time {file_modification_time} of its file, which is not between "
            "the years 1970 and 9999. State it in milliseconds since 1970."
        )


def wrong_bytes(content: bytes, *, size: int, sha256: str | None) -> str | None:
    """In what the bytes are not those of a commit with this size, and with this digest if it is known; None if in nothing."""
    if len(content) != size:
        return f"{len(content)} bytes of content and the size {size}"
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        return "content that does not have the SHA-256 of the proposal"
    return None


def _distinct(*contents: bytes | None) -> tuple[bytes, ...]:
    """The contents that are known, without a second one that is the same object: it is hashed once."""
    return tuple({id(content): content for content in contents if content is not None}.values())


def check_stored_content(proposal: CommitProposal, checked: CheckedContent | None) -> None:
    """Check that the content that the catalog is to store says what the proposal says. Raises CommitRejectedError.

    Args:
        proposal: passed :func:`check_bytes`.
        checked: what was parsed of the content; None if it was not parsed.
    """
    if proposal.content is not None:
        wrong = contradiction(proposal, proposal.content, checked)
        if wrong is not None:
            raise contradicted(proposal, wrong)


def check_published(proposal: CommitProposal) -> None:
    """Check a commit that the creation of its published file made. Raises CommitRejectedError."""
    right = log_files.commit_file_name(proposal.version)
    if proposal.mode is not CommitMode.PUT_IF_ABSENT or proposal.file_name != right:
        raise CommitRejectedError(
            f"Version {proposal.version} was reported as published under the name {proposal.file_name!r}, "
            f"{proposal.mode.value}; it must be {right} and put_if_absent."
        )
    _check_storable(proposal)
    check_bytes(proposal)
    check_stored_content(proposal, None)


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
    check_bytes(proposal)
    check_stored_content(proposal, None)


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
    _check_file_time(proposal.version, proposal.file_modification_time)
    if proposal.sha256 is not None and _DIGEST.fullmatch(proposal.sha256) is None:
        raise CommitRejectedError(
            f"Version {proposal.version} was proposed with the SHA-256 {proposal.sha256!r}; write it as 64 hexadecimal digits in "
            "lower case."
        )


def contradicted(proposal: CommitProposal, wrong: str) -> CommitRejectedError:
    """The error for a proposal that says something else than its content; ``wrong`` completes "was proposed with"."""
    return CommitRejectedError(
        f"Version {proposal.version} was proposed {proposal.mode.value} with {wrong}. Nothing was ratified. Propose the commit "
        "with its own values."
    )


def contradiction(proposal: CommitProposal, content: bytes, checked: CheckedContent | None) -> str | None:
    """In what the proposal says something else than ``content``, which has its size and its digest; None if in nothing.

    Args:
        checked: what was parsed of ``content``; None if it was not parsed.
    """
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
        if _matches_definition(proposal, content, checked)
        else "content whose protocol or metadata is not that of the proposal"
    )


def _matches_definition(proposal: CommitProposal, content: bytes, checked: CheckedContent | None) -> bool:
    """Whether metadata and protocol in ``content`` equal those of the proposal."""
    # A string value inside the commit has its quotes escaped, so that it does not match.
    if b'"metaData"' not in content and b'"protocol"' not in content:
        return True
    try:
        actions = decode_commit(content, version=proposal.version) if checked is None else checked
    except CorruptLogError:
        return False
    pairs = ((actions.metadata, proposal.metadata), (actions.protocol, proposal.protocol))
    return all(
        committed is None or (proposed is not None and encode_action(committed) == encode_action(proposed))
        for committed, proposed in pairs
    )
