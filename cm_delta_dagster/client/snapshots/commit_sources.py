"""Where the content of a commit can be read: the catalog's answer, a staged file, a published file. Values only; nothing is read.

Protocol heading "Reading Catalog-managed Tables". ``commit_reader`` reads sources.
"""

import hashlib
from collections.abc import Iterable, Sequence

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_segment import (
    CommitSource,
    InlineCommit,
    PublishedCommit,
    RatifiedSource,
    StagedCommit,
)


def digest_of(data: bytes) -> str:
    """SHA-256 of the bytes of a commit, as the catalog stores it: 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def is_ratified(record: RatifiedCommit, data: bytes) -> bool:
    """Whether ``data`` is the commit that the catalog ratified as ``record``.

    Compares the digest. Commits that were ratified before catalogs stored digests are compared by size, transaction id and
    in-commit timestamp, which does not detect other changes of equal size.
    """
    if record.file_size not in (0, len(data)):
        return False
    if record.sha256 is not None:
        return digest_of(data) == record.sha256
    try:
        info = commit_json.decode_commit_info(data)
    except CorruptLogError:
        return False
    return info is not None and (info.txn_id, info.in_commit_timestamp) == (record.txn_id, record.in_commit_timestamp)


def ratified_source(location: str, commit: RatifiedCommit) -> RatifiedSource:
    """Where the ratified content of ``commit`` is: in the catalog's answer, or in its staged file."""
    inline = commit.mode is CommitMode.INLINE
    if inline and commit.content is not None and (commit.sha256 is None or is_ratified(commit, commit.content)):
        return InlineCommit(version=commit.version, content=commit.content)
    file = staged_source(location, commit)
    if not inline and commit.content is not None and _is_copy(commit, commit.content):
        return InlineCommit(version=commit.version, content=commit.content, file=file)
    return file


def cached_sources(location: str, cached: Sequence[RatifiedCommit]) -> dict[int, InlineCommit]:
    """Content of published commits by version, if it is the ratified one, with the published file as the alternative."""
    return {
        commit.version: InlineCommit(
            version=commit.version,
            content=commit.content,
            file=published_source(location, commit.version, sha256=commit.sha256),
        )
        for commit in cached
        if commit.content is not None and _is_copy(commit, commit.content)
    }


def _is_copy(commit: RatifiedCommit, content: bytes) -> bool:
    """:func:`is_ratified` for content in the catalog's answer; if false, the file is read instead."""
    if commit.sha256 is not None or len(content) != commit.file_size:
        return is_ratified(commit, content)
    # The first line as this client writes it; within a JSON string the quotes would be escaped.
    if f'"txnId":"{commit.txn_id}"'.encode() in content[: content.find(b"\n")]:
        return True
    info = commit_json.decode_commit_info(content)
    return info is not None and info.txn_id == commit.txn_id


def staged_source(location: str, commit: RatifiedCommit) -> StagedCommit:
    """The staged file of ``commit``."""
    directory = log_files.staged_commits_directory(location)
    return StagedCommit(
        version=commit.version,
        location=f"{directory}/{commit.file_name}",
        size=commit.file_size or None,
        sha256=commit.sha256,
    )


def staged_names_of(version: int, names: Iterable[str]) -> list[str]:
    """The ``names`` of files in ``_staged_commits`` that were staged for ``version``, sorted."""
    return sorted(name for name in names if name.startswith(f"{version:020d}."))


def published_source(location: str, version: int, *, sha256: str | None = None) -> PublishedCommit:
    """The published file of ``version``."""
    name = log_files.commit_file_name(version)
    return PublishedCommit(version=version, location=f"{log_files.log_directory(location)}/{name}", sha256=sha256)


def commit_sources(
    location: str,
    *,
    start: int,
    end: int,
    ratified: Sequence[RatifiedCommit],
    cached: Sequence[RatifiedCommit] = (),
) -> tuple[CommitSource, ...]:
    """Sources of versions ``start..end``: that of the catalog if it returned one, else the published file.

    Args:
        cached: published commits with content, whose files are then not read.
    """
    sources: dict[int, CommitSource] = dict(cached_sources(location, cached))
    sources.update((commit.version, ratified_source(location, commit)) for commit in ratified)
    return tuple(sources.get(version) or published_source(location, version) for version in range(start, end + 1))
