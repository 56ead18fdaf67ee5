"""What is to come of every act after every harm: the disaster table, from which the page of the docs is made. Pure data.

A rule covers the combinations of some harms, acts and modes of one object, except for those of its exceptions. The rules together
cover every combination exactly once.
"""

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
    return Rule(object=object_, expected=_is(Outcome.INAPPLICABLE, reason), **pattern)  # type: ignore[arg-type]


_WRITTEN_ONCE = "it is written once under a name of its own, so that there is no older copy of it"
_NOTHING_TO_PUBLISH = "there is nothing that the catalog knows and has not published"
_NOTHING_TO_RECOVER = "the catalog knows every commit that storage holds"
_DOCTOR_FIRST = "the table cannot be examined before the damage is repaired; the message sends to doctor"
_NOT_NEEDED = "it needs nothing of what was harmed"
_NOT_READ = "it does not read the file"

# A published commit. In staged mode a staged file has the same bytes, in inline mode the catalog, in put-if-absent mode nothing.

_COMMIT = Object.PUBLISHED_COMMIT
_NOT_THERE = (
    "the newest published commit is not where the catalog says: it is lost, or an older copy of the storage is mounted; "
    "`cm-delta doctor NAME --repair` puts it back"
)
_COMMIT_RULES = (
    _never(_COMMIT, _WRITTEN_ONCE, harms=(Harm.OLDER_COPY,)),
    Rule(
        object=_COMMIT,
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.STAGED,),
        expected=_is(_WARNED, "the bytes are compared with the digest in the catalog and taken from the staged file"),
        exceptions=(
            Rule(
                object=_COMMIT,
                harms=(Harm.MISSING,),
                acts=(Act.APPEND, Act.OPTIMIZE),
                modes=(Mode.STAGED,),
                expected=_refused("TableStorageMissingError", _NOT_THERE),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.READ_OLD,),
                modes=(Mode.STAGED,),
                expected=_is(_RIGHT, "versions below do not need it"),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.PUBLISH,),
                modes=(Mode.STAGED,),
                expected=_is(_RIGHT, _NOT_NEEDED),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.DOCTOR,),
                modes=(Mode.STAGED,),
                expected=_is(Outcome.FINDING),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.REPAIR,),
                modes=(Mode.STAGED,),
                expected=_is(Outcome.REPAIRED, "the ratified bytes are put back from the staged file"),
            ),
            Rule(
                object=_COMMIT,
                harms=_DAMAGED,
                acts=(Act.RECOVER,),
                modes=(Mode.STAGED,),
                expected=_refused("RecoveryError", _DOCTOR_FIRST),
            ),
        ),
    ),
    Rule(
        object=_COMMIT,
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.INLINE,),
        expected=_is(_RIGHT, "the catalog serves the content, and the file is not looked at"),
        exceptions=(
            Rule(
                object=_COMMIT,
                harms=(Harm.MISSING,),
                acts=(Act.READ_LATEST, Act.CHECKPOINT, Act.RECOVER, *_CLEANING),
                modes=(Mode.INLINE,),
                expected=_is(_WARNED, "the listing shows that it is missing; the content is taken from the catalog"),
            ),
            Rule(
                object=_COMMIT,
                harms=(Harm.MISSING,),
                acts=(Act.APPEND, Act.OPTIMIZE),
                modes=(Mode.INLINE,),
                expected=_refused("TableStorageMissingError", _NOT_THERE),
            ),
            Rule(
                object=_COMMIT,
                harms=_DAMAGED,
                acts=(Act.RECOVER,),
                modes=(Mode.INLINE,),
                expected=_refused("RecoveryError", _DOCTOR_FIRST),
            ),
            Rule(
                object=_COMMIT,
                harms=_DAMAGED,
                acts=(Act.VACUUM, Act.CLEAN_LOG),
                modes=(Mode.INLINE,),
                expected=_is(_WARNED, "the file is read and compared; the content is taken from the catalog"),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.DOCTOR,),
                modes=(Mode.INLINE,),
                expected=_is(Outcome.FINDING),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.REPAIR,),
                modes=(Mode.INLINE,),
                expected=_is(Outcome.REPAIRED, "the ratified bytes are put back from the catalog"),
            ),
        ),
    ),
    Rule(
        object=_COMMIT,
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.PUT_IF_ABSENT,),
        expected=_refused(
            "CorruptLogError", "no copy has the ratified bytes; the message says which versions can still be read"
        ),
        exceptions=(
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.READ_OLD,),
                modes=(Mode.PUT_IF_ABSENT,),
                expected=_is(_RIGHT, "versions below do not need it"),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.PUBLISH,),
                modes=(Mode.PUT_IF_ABSENT,),
                expected=_is(_RIGHT, _NOTHING_TO_PUBLISH),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=_LOOKING,
                modes=(Mode.PUT_IF_ABSENT,),
                expected=_is(Outcome.FINDING),
            ),
            Rule(
                object=_COMMIT,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.RECOVER,),
                modes=(Mode.PUT_IF_ABSENT,),
                expected=_refused("RecoveryError", _DOCTOR_FIRST),
            ),
        ),
    ),
)

# The staged file of a commit that is not published yet: the only copy of its bytes.

_STAGED = Object.STAGED_COMMIT
_STAGED_RULES = (
    _never(_STAGED, "in this mode the newest commit has no staged file", modes=(Mode.INLINE, Mode.PUT_IF_ABSENT)),
    _never(_STAGED, _WRITTEN_ONCE, harms=(Harm.OLDER_COPY,), modes=(Mode.STAGED,)),
    Rule(
        object=_STAGED,
        harms=_EVERY_BUT_OLDER,
        modes=(Mode.STAGED,),
        expected=_refused(
            "CorruptLogError",
            "the only copy of an acknowledged commit is not there; nothing is built on an older version",
        ),
        exceptions=(
            Rule(
                object=_STAGED,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.READ_OLD,),
                modes=(Mode.STAGED,),
                expected=_is(_RIGHT, "versions below do not need it"),
            ),
            Rule(
                object=_STAGED,
                harms=_EVERY_BUT_OLDER,
                acts=_LOOKING,
                modes=(Mode.STAGED,),
                expected=_is(Outcome.FINDING),
            ),
            Rule(
                object=_STAGED,
                harms=_EVERY_BUT_OLDER,
                acts=(Act.RECOVER,),
                modes=(Mode.STAGED,),
                expected=_refused("RecoveryError", _DOCTOR_FIRST),
            ),
        ),
    ),
)

# Files that are derived from the commits: without them reads take longer.


def _derived(
    object_: Object, *, unseen: tuple[Harm, ...], harms: tuple[Harm, ...], missing_is_found: tuple[Harm, ...]
) -> tuple[Rule, ...]:
    """Rules of a file that readers go without.

    Args:
        unseen: harms after which readers go without it and do not warn.
        harms: all that apply.
        missing_is_found: harms that doctor finds.
    """
    warned = tuple(harm for harm in harms if harm not in unseen)
    found = missing_is_found
    not_found = tuple(harm for harm in harms if harm not in found)
    rules = [
        Rule(
            object=object_,
            harms=unseen,
            acts=tuple(act for act in Act if act not in _LOOKING),
            expected=_is(_RIGHT, "readers go without it"),
        ),
        Rule(object=object_, harms=found, acts=(Act.DOCTOR,), expected=_is(Outcome.FINDING)),
        Rule(
            object=object_,
            harms=found,
            acts=(Act.REPAIR,),
            expected=_is(Outcome.REPAIRED, "it is derived from commits that are proven, and made again or removed"),
        ),
    ]
    if not_found:
        rules.append(Rule(object=object_, harms=not_found, acts=_LOOKING, expected=_is(_RIGHT, "it is optional")))
    if warned:
        quiet = (Act.READ_OLD, Act.PUBLISH)
        rules.append(
            Rule(
                object=object_,
                harms=warned,
                acts=tuple(act for act in Act if act not in (*quiet, *_LOOKING)),
                expected=_is(_WARNED, "the commits are read instead"),
            )
        )
        rules.append(Rule(object=object_, harms=warned, acts=quiet, expected=_is(_RIGHT, _NOT_NEEDED)))
    if harms != tuple(Harm):
        rules.append(_never(object_, _WRITTEN_ONCE, harms=tuple(harm for harm in Harm if harm not in harms)))
    return tuple(rules)


_DERIVED_RULES = (
    *_derived(Object.CHECKPOINT, unseen=(Harm.MISSING,), harms=_EVERY_BUT_OLDER, missing_is_found=_EVERY_BUT_OLDER),
    *_derived(Object.SIDECAR, unseen=(), harms=_EVERY_BUT_OLDER, missing_is_found=_EVERY_BUT_OLDER),
    *_derived(Object.CHECKSUM, unseen=_EVERY_BUT_OLDER, harms=_EVERY_BUT_OLDER, missing_is_found=_DAMAGED),
    *_derived(Object.HINT, unseen=tuple(Harm), harms=tuple(Harm), missing_is_found=(*_DAMAGED, Harm.OLDER_COPY)),
)

# Data files and deletion vectors: the log says their size and how many rows they have, and nothing of their content.

_DATA, _VECTOR = Object.DATA_FILE, Object.VECTOR_FILE
_SAME_COUNT = "a file of the same size with as many rows; the log has no digest of data files"
_SAME_VECTOR = "a whole vector of the same size for as many other rows; the log has no digest of vectors"
_DATA_READS = (Act.READ_LATEST, Act.READ_OLD, Act.OPTIMIZE)
_VECTOR_READS = (Act.READ_LATEST, Act.OPTIMIZE)


def _rows(object_: Object, reads: tuple[Act, ...], same: str) -> tuple[Rule, ...]:
    others = tuple(act for act in Act if act not in (*reads, *_LOOKING))
    by_spark: tuple[Rule, ...] = ()
    if object_ is _DATA:
        spark_says = _refused("StorageError", "Spark says that the file cannot be read, and which")
        by_spark = (
            Rule(object=_DATA, harms=(Harm.TRUNCATED, Harm.ONE_BIT), acts=(Act.OPTIMIZE,), expected=spark_says),
        )
    return (
        _never(object_, _WRITTEN_ONCE, harms=(Harm.OLDER_COPY,)),
        Rule(object=object_, harms=_EVERY_BUT_OLDER, acts=others, expected=_is(_RIGHT, _NOT_READ)),
        Rule(
            object=object_,
            harms=(Harm.MISSING,),
            acts=reads,
            expected=_refused("ObjectNotFoundError", "the message names the file"),
        ),
        Rule(
            object=object_,
            harms=(Harm.TRUNCATED, Harm.ONE_BIT),
            acts=reads,
            expected=_refused("CorruptLogError", "the message names the file"),
            exceptions=by_spark,
        ),
        Rule(object=object_, harms=(Harm.OTHER_CONTENT,), acts=reads, expected=_is(Outcome.UNKNOWABLE, same)),
        Rule(
            object=object_,
            harms=(Harm.MISSING, Harm.TRUNCATED),
            acts=_LOOKING,
            expected=_is(Outcome.FINDING, "restore it from a backup"),
        ),
        Rule(
            object=object_,
            harms=(Harm.ONE_BIT,),
            acts=_LOOKING,
            expected=_is(
                Outcome.UNKNOWABLE,
                "doctor looks at names and sizes, with `--deep` at footers and vectors; a reader of the rows meets the checksum",
            ),
        ),
        Rule(object=object_, harms=(Harm.OTHER_CONTENT,), acts=_LOOKING, expected=_is(Outcome.UNKNOWABLE, same)),
    )


_ROW_RULES = (*_rows(_DATA, _DATA_READS, _SAME_COUNT), *_rows(_VECTOR, _VECTOR_READS, _SAME_VECTOR))

# Storage that is not there, is another one, or is older than the catalog.

_GONE = "the catalog knows published versions, and their log is not there; nothing is made anew"
_OLDER_STORAGE = "commits that the catalog ratified are not in the restored storage, nor anywhere else"


def _gone(object_: Object, harms: tuple[Harm, ...], recovery: Expected) -> tuple[Rule, ...]:
    return (
        Rule(
            object=object_,
            harms=harms,
            expected=_refused("TableStorageMissingError", _GONE),
            exceptions=(
                Rule(object=object_, harms=harms, acts=_LOOKING, expected=_is(Outcome.FINDING)),
                Rule(object=object_, harms=harms, acts=(Act.RECOVER,), expected=recovery),
                Rule(
                    object=object_,
                    harms=harms,
                    acts=(Act.PUBLISH,),
                    modes=(Mode.PUT_IF_ABSENT,),
                    expected=_is(_RIGHT, _NOTHING_TO_PUBLISH),
                ),
            ),
        ),
    )


def _older_storage(object_: Object) -> tuple[Rule, ...]:
    harms = (Harm.OLDER_COPY,)
    no_copy = (Mode.STAGED, Mode.PUT_IF_ABSENT)
    return (
        Rule(object=object_, harms=harms, acts=_LOOKING, expected=_is(Outcome.FINDING, "lost files are named")),
        Rule(object=object_, harms=harms, acts=(Act.READ_OLD,), expected=_is(_RIGHT, "the restored storage holds it")),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.RECOVER,),
            modes=no_copy,
            expected=_refused("RecoveryError", _OLDER_STORAGE),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.READ_LATEST, Act.APPEND, Act.OPTIMIZE, *_CLEANING),
            modes=no_copy,
            expected=_refused("CorruptLogError", _OLDER_STORAGE),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.CHECKPOINT,),
            modes=(Mode.PUT_IF_ABSENT,),
            expected=_refused("CorruptLogError", _OLDER_STORAGE),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.PUBLISH, Act.CHECKPOINT),
            modes=(Mode.STAGED,),
            expected=_refused("TableStorageMissingError", _OLDER_STORAGE),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.PUBLISH,),
            modes=(Mode.PUT_IF_ABSENT,),
            expected=_is(_RIGHT, _NOTHING_TO_PUBLISH),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.READ_LATEST,),
            modes=(Mode.INLINE,),
            expected=_refused(
                "ObjectNotFoundError", "the catalog has the lost commits; their data files are not there"
            ),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.APPEND, Act.OPTIMIZE),
            modes=(Mode.INLINE,),
            expected=_refused(
                "TableStorageMissingError", "the storage is older than what the catalog knows as published"
            ),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.PUBLISH,),
            modes=(Mode.INLINE,),
            expected=_is(_RIGHT, "the catalog has the content"),
        ),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.CHECKPOINT, Act.RECOVER, *_CLEANING),
            modes=(Mode.INLINE,),
            expected=_is(
                _WARNED, "the catalog has the lost commits, and what they name is kept for the day it is restored"
            ),
        ),
    )


_DIRECTORY = Object.TABLE_DIRECTORY
_STORAGE_RULES = (
    *_gone(_DIRECTORY, (Harm.MISSING, Harm.TRUNCATED), _refused("RecoveryError", _GONE)),
    _never(_DIRECTORY, "a directory has no bytes of its own", harms=(Harm.ONE_BIT,)),
    Rule(
        object=_DIRECTORY,
        harms=(Harm.OTHER_CONTENT,),
        expected=_refused("CorruptLogError", "no commit has the digest that the catalog knows"),
        exceptions=(
            Rule(object=_DIRECTORY, harms=(Harm.OTHER_CONTENT,), acts=_LOOKING, expected=_is(Outcome.FINDING)),
            Rule(
                object=_DIRECTORY,
                harms=(Harm.OTHER_CONTENT,),
                acts=(Act.RECOVER,),
                expected=_refused("RecoveryError", _DOCTOR_FIRST),
            ),
            Rule(
                object=_DIRECTORY,
                harms=(Harm.OTHER_CONTENT,),
                acts=(Act.PUBLISH, Act.CHECKPOINT, Act.APPEND),
                modes=(Mode.INLINE,),
                expected=_refused(
                    "CatalogBehindStorageError", "the commit in the place of the unpublished one is of another history"
                ),
            ),
            Rule(
                object=_DIRECTORY,
                harms=(Harm.OTHER_CONTENT,),
                acts=(Act.READ_LATEST, Act.APPEND, Act.OPTIMIZE),
                modes=(Mode.STAGED,),
                expected=_refused(
                    "CatalogBehindStorageError", "the commit in the place of the unpublished one is of another history"
                ),
            ),
            Rule(
                object=_DIRECTORY,
                harms=(Harm.OTHER_CONTENT,),
                acts=_CLEANING,
                modes=_THROUGH_CATALOG,
                expected=_refused(
                    "CatalogBehindStorageError", "the commit in the place of the unpublished one is of another history"
                ),
            ),
            Rule(
                object=_DIRECTORY,
                harms=(Harm.OTHER_CONTENT,),
                acts=(Act.PUBLISH,),
                modes=(Mode.PUT_IF_ABSENT,),
                expected=_is(_RIGHT, _NOTHING_TO_PUBLISH),
            ),
        ),
    ),
    *_older_storage(_DIRECTORY),
    *_gone(Object.WAREHOUSE, (Harm.MISSING, Harm.TRUNCATED), _refused("RecoveryError", _GONE)),
    *_gone(
        Object.WAREHOUSE, (Harm.OTHER_CONTENT,), _refused("WarehouseMismatchError", "its marker names another catalog")
    ),
    _never(Object.WAREHOUSE, "a directory has no bytes of its own", harms=(Harm.ONE_BIT,)),
    *_older_storage(Object.WAREHOUSE),
)

# The catalog.

_DATABASE, _ROW = Object.CATALOG_DATABASE, Object.CATALOG_ROW
_CONTRADICTS = "what the row says contradicts every copy of the commit"


def _older_catalog(object_: Object) -> tuple[Rule, ...]:
    harms = (Harm.OLDER_COPY,)
    return (
        Rule(
            object=object_,
            harms=harms,
            modes=_THROUGH_CATALOG,
            expected=_refused("CatalogBehindStorageError", "storage holds versions that the catalog does not know"),
            exceptions=(
                Rule(
                    object=object_,
                    harms=harms,
                    acts=(Act.READ_LATEST,),
                    modes=_THROUGH_CATALOG,
                    expected=_is(Outcome.OLDER, "or refused, by the setting `on_catalog_behind_storage`"),
                ),
                Rule(object=object_, harms=harms, acts=(Act.READ_OLD,), modes=_THROUGH_CATALOG, expected=_is(_WARNED)),
                Rule(
                    object=object_,
                    harms=harms,
                    acts=(Act.PUBLISH,),
                    modes=_THROUGH_CATALOG,
                    expected=_is(_RIGHT, _NOTHING_TO_PUBLISH),
                ),
                Rule(object=object_, harms=harms, acts=_LOOKING, modes=_THROUGH_CATALOG, expected=_is(Outcome.FINDING)),
                Rule(
                    object=object_,
                    harms=harms,
                    acts=(Act.RECOVER,),
                    modes=_THROUGH_CATALOG,
                    expected=_is(Outcome.RECOVERED),
                ),
            ),
        ),
        Rule(
            object=object_,
            harms=harms,
            modes=(Mode.PUT_IF_ABSENT,),
            expected=_is(_RIGHT, "the next client takes in the commits that storage holds"),
            exceptions=(
                Rule(
                    object=object_,
                    harms=harms,
                    acts=(Act.RECOVER,),
                    modes=(Mode.PUT_IF_ABSENT,),
                    expected=_is(Outcome.RECOVERED, "as the next client would"),
                ),
            ),
        ),
    )


def _contradiction(object_: Object, harms: tuple[Harm, ...], modes: tuple[Mode, ...]) -> Rule:
    exceptions = [
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.READ_OLD,),
            modes=modes,
            expected=_is(_RIGHT, "versions below do not need it"),
        ),
        Rule(object=object_, harms=harms, acts=_LOOKING, modes=modes, expected=_is(Outcome.FINDING)),
        Rule(
            object=object_,
            harms=harms,
            acts=(Act.RECOVER,),
            modes=modes,
            expected=_refused("RecoveryError", _DOCTOR_FIRST),
        ),
    ]
    if Mode.PUT_IF_ABSENT in modes:
        exceptions.append(
            Rule(
                object=object_,
                harms=harms,
                acts=(Act.PUBLISH,),
                modes=(Mode.PUT_IF_ABSENT,),
                expected=_is(_RIGHT, _NOTHING_TO_PUBLISH),
            )
        )
    return Rule(
        object=object_,
        harms=harms,
        modes=modes,
        expected=_refused("CorruptLogError", _CONTRADICTS),
        exceptions=tuple(exceptions),
    )


_CATALOG_RULES = (
    Rule(
        object=_DATABASE,
        harms=(Harm.MISSING,),
        expected=_refused("TableNotFoundError", "a new database knows no table; the command line makes none"),
        exceptions=(
            Rule(
                object=_DATABASE,
                harms=(Harm.MISSING,),
                acts=(Act.RECOVER,),
                expected=_is(
                    Outcome.RECOVERED, "`cm-delta recover --warehouse` rebuilds the entries from the tables' logs"
                ),
            ),
        ),
    ),
    Rule(
        object=_DATABASE,
        harms=(Harm.TRUNCATED, Harm.OTHER_CONTENT),
        expected=_refused("CatalogError", "the database says that it is damaged"),
    ),
    _contradiction(_DATABASE, (Harm.ONE_BIT,), tuple(Mode)),
    *_older_catalog(_DATABASE),
    Rule(
        object=_ROW,
        harms=(Harm.MISSING,),
        modes=_THROUGH_CATALOG,
        expected=_refused("CorruptLogError", "the catalog calls a version its latest and has no record of it"),
        exceptions=(
            Rule(
                object=_ROW,
                harms=(Harm.MISSING,),
                acts=(Act.READ_OLD,),
                modes=_THROUGH_CATALOG,
                expected=_is(_RIGHT, "versions below do not need it"),
            ),
            Rule(
                object=_ROW, harms=(Harm.MISSING,), acts=_LOOKING, modes=_THROUGH_CATALOG, expected=_is(Outcome.FINDING)
            ),
            Rule(
                object=_ROW,
                harms=(Harm.MISSING,),
                acts=(Act.RECOVER,),
                modes=_THROUGH_CATALOG,
                expected=_refused("RecoveryError", _DOCTOR_FIRST),
            ),
        ),
    ),
    Rule(
        object=_ROW,
        harms=(Harm.MISSING,),
        modes=(Mode.PUT_IF_ABSENT,),
        expected=_is(_RIGHT, "the commit is in storage, where readers find it"),
        exceptions=(
            Rule(
                object=_ROW,
                harms=(Harm.MISSING,),
                acts=_LOOKING,
                modes=(Mode.PUT_IF_ABSENT,),
                expected=_is(Outcome.FINDING),
            ),
        ),
    ),
    _contradiction(_ROW, (Harm.TRUNCATED,), (Mode.INLINE,)),
    _never(
        _ROW, "in this mode the row has no content", harms=(Harm.TRUNCATED,), modes=(Mode.STAGED, Mode.PUT_IF_ABSENT)
    ),
    _contradiction(_ROW, (Harm.ONE_BIT, Harm.OTHER_CONTENT), tuple(Mode)),
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
"""Harms of the catalog's database that are done to the file of SQLite; PostgreSQL checks and restores its own files."""

KNOWN_DIFFERENCES: tuple[Rule, ...] = ()
"""Cells that do not come out as the table says, yet. Empty where everything does."""


def expectations() -> dict[Cell, Expected]:
    """Every cell with what is to come of it."""
    return {cell: expected for rule in RULES for cell, expected in rule.expansion()}
