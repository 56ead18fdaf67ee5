"""The expected outcome of every act after every harm: the disaster table, from which the page of the docs is generated.

A rule covers the combinations of some harms, acts and modes of one object, except for those of its exceptions. The rules together
cover every combination exactly once.
"""

from dataclasses import dataclass

from tests.disasters.vocabulary import Act, Cell, Expected, Harm, Mode, Object, Outcome, Rule

_RIGHT = Outcome.RIGHT
_WARNED = Outcome.WARNED

_DAMAGED = (Harm.TRUNCATED, Harm.ONE_BIT, Harm.OTHER_CONTENT)
_EVERY_BUT_OLDER = (Harm.MISSING, *_DAMAGED)
_CLEANING = (Act.VACUUM, Act.CLEAN_LOG, Act.CLEAN_STAGED)
_LOOKING = (Act.DOCTOR, Act.REPAIR)
_THROUGH_CATALOG = (Mode.STAGED, Mode.INLINE)


def _is(outcome: Outcome, reason: str = "") -> Expected:
    return Expected(outcome=outcome, reason=reason)


def _refused(error: str, reason: str) -> Expected:
    return Expected(outcome=Outcome.REFUSED, error=error, reason=reason)


def _never(object_: Object, reason: str, **pattern: object) -> Rule:
    return Rule(object=object_, expected=_is(Outcome.INAPPLICABLE, reason), **pattern)  # type: ignore[arg-type]  # Fields of Rule.


@dataclass(frozen=True, slots=True)
class _Except:
    """An exception of a rule: what differs from the rule. Object, harms and modes are those of the rule unless given."""

    acts: tuple[Act, ...]
    expected: Expected
    harms: tuple[Harm, ...] | None = None
    modes: tuple[Mode, ...] | None = None


def _rule(
    object_: Object,
    expected: Expected,
    *exceptions: _Except,
    harms: tuple[Harm, ...] = tuple(Harm),
    modes: tuple[Mode, ...] = tuple(Mode),
) -> Rule:
    """A rule for all acts. Exceptions for modes outside of ``modes`` are left out, so that rules can share exceptions."""
    return Rule(
        object=object_,
        harms=harms,
        modes=modes,
        expected=expected,
        exceptions=tuple(
            Rule(
                object=object_,
                harms=harms if each.harms is None else each.harms,
                acts=each.acts,
                modes=tuple(mode for mode in each.modes or modes if mode in modes),
                expected=each.expected,
            )
            for each in exceptions
            if set(each.modes or modes) & set(modes)
        ),
    )


_WRITTEN_ONCE = "it is written once under a name of its own, so that there is no older copy of it"
_NOTHING_TO_PUBLISH = "there is nothing that the catalog knows and has not published"
_DOCTOR_FIRST = "the table cannot be checked before the damage is repaired; the message advises doctor"
_NOT_NEEDED = "it does not need the harmed file"
_NOT_READ = "it does not read the file"

_OLD_IS_READ = _Except((Act.READ_OLD,), _is(_RIGHT, "versions below do not need it"))
_FOUND = _Except((Act.DOCTOR,), _is(Outcome.FINDING))
_NOT_REPAIRED = _Except(_LOOKING, _is(Outcome.FINDING))
_RECOVER_REFUSED = _Except((Act.RECOVER,), _refused("RecoveryError", _DOCTOR_FIRST))
_DAMAGE_REFUSED = _Except((Act.RECOVER,), _refused("RecoveryError", _DOCTOR_FIRST), harms=_DAMAGED)
_NONE_PUBLISHED = _Except((Act.PUBLISH,), _is(_RIGHT, _NOTHING_TO_PUBLISH))
_NONE_PUBLISHED_WITHOUT_CATALOG = _Except((Act.PUBLISH,), _is(_RIGHT, _NOTHING_TO_PUBLISH), modes=(Mode.PUT_IF_ABSENT,))


def _repaired(reason: str) -> _Except:
    return _Except((Act.REPAIR,), _is(Outcome.REPAIRED, reason))


# A published commit. In staged mode a staged file has the same bytes, in inline mode the catalog, in put-if-absent mode nothing.

_COMMIT = Object.PUBLISHED_COMMIT
_MISSING_IS_REFUSED = _Except(
    (Act.APPEND, Act.OPTIMIZE),
    _refused(
        "TableStorageMissingError",
        "the newest published commit is not where the catalog says: it is lost, or an older copy of the storage is mounted; "
        "`cm-delta doctor NAME --repair` restores it",
    ),
    harms=(Harm.MISSING,),
)
_COMMIT_RULES = (
    _never(_COMMIT, _WRITTEN_ONCE, harms=(Harm.OLDER_COPY,)),
    _rule(
        _COMMIT,
        _is(_WARNED, "the bytes are compared with the digest in the catalog and taken from the staged file"),
        _MISSING_IS_REFUSED,
        _OLD_IS_READ,
        _Except((Act.PUBLISH,), _is(_RIGHT, _NOT_NEEDED)),
        _FOUND,
        _repaired("the ratified bytes are restored from the staged file"),
        _DAMAGE_REFUSED,
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.STAGED,),
    ),
    _rule(
        _COMMIT,
        _is(_RIGHT, "the catalog serves the content, and the file is not read"),
        _Except(
            (Act.READ_LATEST, Act.CHECKPOINT, Act.RECOVER, *_CLEANING),
            _is(_WARNED, "the listing shows that it is missing; the content is taken from the catalog"),
            harms=(Harm.MISSING,),
        ),
        _MISSING_IS_REFUSED,
        _DAMAGE_REFUSED,
        _Except(
            (Act.VACUUM, Act.CLEAN_LOG),
            _is(_WARNED, "the file is read and compared; the content is taken from the catalog"),
            harms=_DAMAGED,
        ),
        _FOUND,
        _repaired("the ratified bytes are restored from the catalog"),
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.INLINE,),
    ),
    _rule(
        _COMMIT,
        _refused(
            "CorruptLogError", "no copy has the ratified bytes; the message says which versions can still be read"
        ),
        _OLD_IS_READ,
        _NONE_PUBLISHED,
        _NOT_REPAIRED,
        _RECOVER_REFUSED,
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.PUT_IF_ABSENT,),
    ),
)

# The staged file of a commit that is not published yet: the only copy of its bytes.

_STAGED = Object.STAGED_COMMIT
_STAGED_RULES = (
    _never(_STAGED, "in this mode the newest commit has no staged file", modes=(Mode.INLINE, Mode.PUT_IF_ABSENT)),
    _never(_STAGED, _WRITTEN_ONCE, harms=(Harm.OLDER_COPY,), modes=(Mode.STAGED,)),
    _rule(
        _STAGED,
        _refused(
            "CorruptLogError",
            "the only copy of an acknowledged commit is missing or damaged; no commit is based on an older version",
        ),
        _OLD_IS_READ,
        _NOT_REPAIRED,
        _RECOVER_REFUSED,
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.STAGED,),
    ),
)

# Files that are derived from the commits: without them reads take longer.


def _derived(
    object_: Object, *, harms: tuple[Harm, ...], silent: tuple[Harm, ...], found: tuple[Harm, ...]
) -> tuple[Rule, ...]:
    """Rules of an optional file.

    Args:
        harms: all that apply.
        silent: harms after which readers ignore the file without a warning.
        found: harms that doctor finds.
    """
    warned, not_found = (tuple(harm for harm in harms if harm not in some) for some in (silent, found))
    rule = _rule(
        object_,
        _is(_WARNED, "the commits are read instead"),
        _Except(tuple(act for act in Act if act not in _LOOKING), _is(_RIGHT, "readers do without it"), harms=silent),
        _Except((Act.READ_OLD, Act.PUBLISH), _is(_RIGHT, _NOT_NEEDED), harms=warned),
        _Except((Act.DOCTOR,), _is(Outcome.FINDING), harms=found),
        _Except(
            (Act.REPAIR,),
            _is(Outcome.REPAIRED, "it is derived from commits that are proven, and written again or removed"),
            harms=found,
        ),
        _Except(_LOOKING, _is(_RIGHT, "it is optional"), harms=not_found),
        harms=harms,
    )
    others = tuple(harm for harm in Harm if harm not in harms)
    return (rule, _never(object_, _WRITTEN_ONCE, harms=others)) if others else (rule,)


_DERIVED_RULES = (
    *_derived(Object.CHECKPOINT, silent=(Harm.MISSING,), harms=_EVERY_BUT_OLDER, found=_EVERY_BUT_OLDER),
    *_derived(Object.SIDECAR, silent=(), harms=_EVERY_BUT_OLDER, found=_EVERY_BUT_OLDER),
    *_derived(Object.CHECKSUM, silent=_EVERY_BUT_OLDER, harms=_EVERY_BUT_OLDER, found=_DAMAGED),
    *_derived(Object.HINT, silent=tuple(Harm), harms=tuple(Harm), found=(*_DAMAGED, Harm.OLDER_COPY)),
)

# Data files and deletion vectors: the log says their size and how many rows they have, and nothing of their content.

_DATA, _VECTOR = Object.DATA_FILE, Object.VECTOR_FILE
_SAME_COUNT = "a file of the same size with as many rows; the log has no digest of data files"
_SAME_VECTOR = "a whole vector of the same size for as many other rows; the log has no digest of vectors"
_CUT_OR_DAMAGED = (Harm.TRUNCATED, Harm.ONE_BIT)
_NAMED = "the message names the file"


def _rows(object_: Object, reads: tuple[Act, ...], same: str) -> tuple[Rule, ...]:
    """Rules of a file that ``reads`` and OPTIMIZE read."""
    readers = (*reads, Act.OPTIMIZE)
    rule = _rule(
        object_,
        _is(_RIGHT, _NOT_READ),
        _Except(readers, _refused("ObjectNotFoundError", _NAMED), harms=(Harm.MISSING,)),
        _Except(readers, _refused("CorruptLogError", _NAMED), harms=_CUT_OR_DAMAGED),
        _Except((*readers, *_LOOKING), _is(Outcome.UNKNOWABLE, same), harms=(Harm.OTHER_CONTENT,)),
        _Except(_LOOKING, _is(Outcome.FINDING, "restore it from a backup"), harms=(Harm.MISSING, Harm.TRUNCATED)),
        _Except(
            _LOOKING,
            _is(
                Outcome.UNKNOWABLE,
                "doctor checks names and sizes, with `--deep` footers and vectors; a reader of the rows finds the wrong checksum",
            ),
            harms=(Harm.ONE_BIT,),
        ),
        harms=_EVERY_BUT_OLDER,
    )
    return (_never(object_, _WRITTEN_ONCE, harms=(Harm.OLDER_COPY,)), rule)


_ROW_RULES = (
    *_rows(_DATA, (Act.READ_LATEST, Act.READ_OLD), _SAME_COUNT),
    *_rows(_VECTOR, (Act.READ_LATEST,), _SAME_VECTOR),
)

# Storage that is absent, is another one, or is older than the catalog.

_GONE = "the catalog knows published versions, and their log is missing; no new log is created"
_OLDER_STORAGE = "commits that the catalog ratified are neither in the restored storage nor elsewhere"
_OTHER_HISTORY = "two histories: the file in the place of an unpublished commit is a commit of another history"


def _gone(object_: Object, harms: tuple[Harm, ...], recovery: Expected) -> Rule:
    return _rule(
        object_,
        _refused("TableStorageMissingError", _GONE),
        _NOT_REPAIRED,
        _Except((Act.RECOVER,), recovery),
        _NONE_PUBLISHED_WITHOUT_CATALOG,
        harms=harms,
    )


def _older_storage(object_: Object) -> tuple[Rule, ...]:
    """One rule for each mode, since only the catalog of inline commits has the content of the lost commits."""
    found = _Except(_LOOKING, _is(Outcome.FINDING, "lost files are named"))
    old_is_read = _Except((Act.READ_OLD,), _is(_RIGHT, "the restored storage holds it"))
    recover_refused = _Except((Act.RECOVER,), _refused("RecoveryError", _OLDER_STORAGE))
    corrupt = _refused("CorruptLogError", _OLDER_STORAGE)
    missing = _refused("TableStorageMissingError", _OLDER_STORAGE)
    by_mode = {
        Mode.STAGED: (corrupt, recover_refused, _Except((Act.PUBLISH, Act.CHECKPOINT), missing)),
        Mode.INLINE: (
            _is(
                _WARNED, "the catalog has the lost commits, and the files that they name are kept until it is restored"
            ),
            _Except(
                (Act.READ_LATEST,),
                _refused("ObjectNotFoundError", "the catalog has the lost commits; their data files are missing"),
            ),
            _Except(
                (Act.APPEND, Act.OPTIMIZE),
                _refused("TableStorageMissingError", "the storage is older than the published version in the catalog"),
            ),
            _Except((Act.PUBLISH,), _is(_RIGHT, "the catalog has the content")),
        ),
        Mode.PUT_IF_ABSENT: (corrupt, recover_refused, _NONE_PUBLISHED),
    }
    return tuple(
        _rule(object_, expected, found, old_is_read, *exceptions, harms=(Harm.OLDER_COPY,), modes=(mode,))
        for mode, (expected, *exceptions) in by_mode.items()
    )


_DIRECTORY = Object.TABLE_DIRECTORY
_TWO_HISTORIES = _refused("CatalogBehindStorageError", _OTHER_HISTORY)
_STORAGE_RULES = (
    _gone(_DIRECTORY, (Harm.MISSING, Harm.TRUNCATED), _refused("RecoveryError", _GONE)),
    _never(_DIRECTORY, "a directory has no bytes of its own", harms=(Harm.ONE_BIT,)),
    _rule(
        _DIRECTORY,
        _refused("CorruptLogError", "no commit has the digest that the catalog knows"),
        _NOT_REPAIRED,
        _RECOVER_REFUSED,
        _Except(
            (Act.READ_LATEST, Act.PUBLISH, Act.CHECKPOINT, Act.APPEND, Act.OPTIMIZE),
            _TWO_HISTORIES,
            modes=(Mode.INLINE,),
        ),
        _Except((Act.READ_LATEST, Act.APPEND, Act.OPTIMIZE), _TWO_HISTORIES, modes=(Mode.STAGED,)),
        _Except(_CLEANING, _TWO_HISTORIES, modes=_THROUGH_CATALOG),
        _NONE_PUBLISHED_WITHOUT_CATALOG,
        harms=(Harm.OTHER_CONTENT,),
    ),
    *_older_storage(_DIRECTORY),
    _gone(Object.WAREHOUSE, (Harm.MISSING, Harm.TRUNCATED), _refused("RecoveryError", _GONE)),
    _gone(
        Object.WAREHOUSE, (Harm.OTHER_CONTENT,), _refused("WarehouseMismatchError", "its marker names another catalog")
    ),
    _never(Object.WAREHOUSE, "a directory has no bytes of its own", harms=(Harm.ONE_BIT,)),
    *_older_storage(Object.WAREHOUSE),
)

# The catalog.

_DATABASE, _ROW = Object.CATALOG_DATABASE, Object.CATALOG_ROW


def _older_catalog(object_: Object) -> tuple[Rule, ...]:
    return (
        _rule(
            object_,
            _refused("CatalogBehindStorageError", "storage holds versions that the catalog does not know"),
            _Except((Act.READ_LATEST,), _is(Outcome.OLDER, "or refused, by the setting `on_catalog_behind_storage`")),
            _Except((Act.READ_OLD,), _is(_WARNED)),
            _NONE_PUBLISHED,
            _NOT_REPAIRED,
            _Except((Act.RECOVER,), _is(Outcome.RECOVERED)),
            harms=(Harm.OLDER_COPY,),
            modes=_THROUGH_CATALOG,
        ),
        _rule(
            object_,
            _is(_RIGHT, "the next client records the commits that storage holds"),
            _Except((Act.RECOVER,), _is(Outcome.RECOVERED, "as the next client does")),
            harms=(Harm.OLDER_COPY,),
            modes=(Mode.PUT_IF_ABSENT,),
        ),
    )


def _contradiction(object_: Object, harms: tuple[Harm, ...], modes: tuple[Mode, ...] = tuple(Mode)) -> Rule:
    return _rule(
        object_,
        _refused("CorruptLogError", "the row contradicts every copy of the commit"),
        _OLD_IS_READ,
        _NOT_REPAIRED,
        _RECOVER_REFUSED,
        _NONE_PUBLISHED_WITHOUT_CATALOG,
        harms=harms,
        modes=modes,
    )


_CATALOG_RULES = (
    _rule(
        _DATABASE,
        _refused("TableNotFoundError", "a new database has no table; the command line creates no database"),
        _Except(
            (Act.RECOVER,),
            _is(
                Outcome.RECOVERED,
                "`cm-delta recovery recover --warehouse` rebuilds the entries from the logs of the tables",
            ),
        ),
        harms=(Harm.MISSING,),
    ),
    _rule(
        _DATABASE,
        _refused("CatalogError", "the database reports that it is damaged"),
        harms=(Harm.TRUNCATED, Harm.OTHER_CONTENT),
    ),
    _contradiction(_DATABASE, (Harm.ONE_BIT,)),
    *_older_catalog(_DATABASE),
    _rule(
        _ROW,
        _refused("CorruptLogError", "the catalog has no record of its latest version"),
        _OLD_IS_READ,
        _NOT_REPAIRED,
        _RECOVER_REFUSED,
        harms=(Harm.MISSING,),
        modes=_THROUGH_CATALOG,
    ),
    _rule(
        _ROW,
        _is(_RIGHT, "the commit is in storage, where readers find it"),
        _NOT_REPAIRED,
        harms=(Harm.MISSING,),
        modes=(Mode.PUT_IF_ABSENT,),
    ),
    _contradiction(_ROW, (Harm.TRUNCATED,), (Mode.INLINE,)),
    _never(
        _ROW, "in this mode the row has no content", harms=(Harm.TRUNCATED,), modes=(Mode.STAGED, Mode.PUT_IF_ABSENT)
    ),
    _contradiction(_ROW, (Harm.ONE_BIT, Harm.OTHER_CONTENT)),
    *_older_catalog(_ROW),
)

RULES: tuple[Rule, ...] = (
    *_COMMIT_RULES,
    *_STAGED_RULES,
    *_DERIVED_RULES,
    *_ROW_RULES,
    *_STORAGE_RULES,
    *_CATALOG_RULES,
)

ONLY_SQLITE = frozenset({Harm.TRUNCATED, Harm.ONE_BIT, Harm.OTHER_CONTENT})
"""Harms of the catalog's database that apply to the file of SQLite; PostgreSQL checks and restores its own files."""

KNOWN_DIFFERENCES: tuple[Rule, ...] = ()
"""Cells with another outcome than the table says."""


def expectations() -> dict[Cell, Expected]:
    """Every cell with its expected outcome."""
    return {cell: expected for rule in RULES for cell, expected in rule.expansion()}
