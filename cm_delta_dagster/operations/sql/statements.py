"""The kind of a statement, from its first words, and what is refused with the Python call to use instead.

A new kind of statement is an entry of ``STATEMENTS``, a function in a module of this package, and an entry of a table:
``writers.WRITERS`` for a statement that writes, that of ``api.connection.sql`` for another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.catalog.similar_names import did_you_mean, similar_names
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.grant_statements import grants_remedy
from cm_delta_dagster.protocol.predicates.sql_lexer import Lexeme, lexemes, place
from cm_delta_dagster.remedies import AdoptTable, CheckTable, Remedy


class Family(StrEnum):
    """Statements that one function runs."""

    QUERY = "query"
    DESCRIBE = "describe"
    SHOW = "show"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    MERGE = "merge"
    TRUNCATE = "truncate"
    CREATE = "create"
    ALTER = "alter"
    COMMENT = "comment"
    DROP = "drop"
    CREATE_NAMESPACE = "create namespace"
    DROP_NAMESPACE = "drop namespace"
    UNDROP = "undrop"
    OPTIMIZE = "optimize"
    REORG = "reorg"
    VACUUM = "vacuum"
    RESTORE = "restore"


READS = frozenset((Family.QUERY, Family.DESCRIBE, Family.SHOW))
"""The families that change nothing."""


_NAMESPACES = ("SCHEMA", "DATABASE", "NAMESPACE", "CATALOG")
STATEMENTS: Mapping[tuple[str, ...], Family] = {
    ("SELECT",): Family.QUERY,
    ("WITH",): Family.QUERY,
    ("FROM",): Family.QUERY,
    ("TABLE",): Family.QUERY,
    ("VALUES",): Family.QUERY,
    ("MAP",): Family.QUERY,
    ("REDUCE",): Family.QUERY,
    ("(",): Family.QUERY,
    ("EXPLAIN",): Family.QUERY,
    **{
        (first, second): Family.QUERY
        for first in ("DESCRIBE", "DESC")
        for second in ("QUERY", "SELECT", "WITH", "VALUES")
    },
    ("DESCRIBE",): Family.DESCRIBE,
    ("DESC",): Family.DESCRIBE,
    ("SHOW",): Family.SHOW,
    ("INSERT",): Family.INSERT,
    ("UPDATE",): Family.UPDATE,
    ("DELETE",): Family.DELETE,
    ("MERGE",): Family.MERGE,
    ("TRUNCATE", "TABLE"): Family.TRUNCATE,
    ("CREATE", "TABLE"): Family.CREATE,
    ("CREATE", "OR", "REPLACE", "TABLE"): Family.CREATE,
    ("REPLACE", "TABLE"): Family.CREATE,
    ("ALTER", "TABLE"): Family.ALTER,
    ("COMMENT", "ON", "TABLE"): Family.COMMENT,
    ("DROP", "TABLE"): Family.DROP,
    **{("CREATE", kind): Family.CREATE_NAMESPACE for kind in _NAMESPACES},
    **{("DROP", kind): Family.DROP_NAMESPACE for kind in _NAMESPACES},
    ("UNDROP",): Family.UNDROP,
    ("OPTIMIZE",): Family.OPTIMIZE,
    ("REORG",): Family.REORG,
    ("VACUUM",): Family.VACUUM,
    ("RESTORE",): Family.RESTORE,
}
"""The family by the first words; the longest match counts."""

_VIEW = "createOrReplaceTempView of the DataFrame of a query"
_GRANTS = "the grants of the catalog, whose privileges are read, append, modify, alter, maintain and own"
_SESSION = "the Spark session for what only it has"
REFUSED: Mapping[tuple[str, ...], str] = {
    ("CREATE", "TEMPORARY"): _VIEW,
    ("CREATE", "TEMP"): _VIEW,
    ("CREATE", "OR", "REPLACE", "TEMPORARY"): _VIEW,
    ("CREATE", "OR", "REPLACE", "TEMP"): _VIEW,
    ("CREATE", "VIEW"): _VIEW,
    ("CREATE", "OR", "REPLACE", "VIEW"): _VIEW,
    ("CREATE",): "CREATE TABLE",
    ("REPLACE",): "REPLACE TABLE",
    ("TRUNCATE",): "TRUNCATE TABLE",
    ("ALTER",): "ALTER TABLE",
    ("COMMENT",): "COMMENT ON TABLE, or ALTER TABLE ... ALTER COLUMN",
    ("DROP",): "DROP TABLE, and the Spark session for its views",
    ("CACHE",): "cache of the DataFrame of a query",
    ("FSCK",): "the check of the table",
    ("CONVERT",): "an adoption",
    ("GENERATE",): "an export, which writes a log that other engines open",
    ("UPGRADE",): "ALTER TABLE ... SET TBLPROPERTIES ('delta.feature.<name>' = 'supported')",
    ("COPY",): "INSERT INTO name SELECT ... FROM parquet.`path`",
    ("LOAD",): "INSERT INTO name SELECT ... FROM parquet.`path`",
    ("GRANT",): _GRANTS,
    ("REVOKE",): _GRANTS,
    ("SHOW", "GRANTS"): _GRANTS,
    ("SHOW", "GRANT"): _GRANTS,
    ("REFRESH",): _SESSION,
    ("ANALYZE",): _SESSION,
}
"""What to use by the first words of statements that are not run."""
_REMEDIES: Mapping[tuple[str, ...], Remedy] = {("FSCK",): CheckTable(), ("CONVERT",): AdoptTable()}
_LEAST_SIMILARITY = 0.75
"""Of a misspelled first word; SET, for which SELECT is not meant, is less similar to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A text with its lexemes, without semicolons at the end, and its family.

    Attributes:
        lexemes: of the text without :attr:`common_tables`.
        common_tables: length of the WITH clause that stands before the first word of a statement that writes.
    """

    text: str
    lexemes: tuple[Lexeme, ...]
    family: Family
    common_tables: int = 0


def read_statement(text: str) -> Statement:
    """The kind of the statement ``text``.

    Raises:
        InvalidArgumentError: the text is empty, or a statement that is not supported; the message says what to use.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(
            f"The statement is of type {type(text).__name__}; give the text of one SQL statement."
        )
    all_lexemes = lexemes(text)
    while all_lexemes and all_lexemes[-1].symbol == ";":
        all_lexemes = all_lexemes[:-1]
    if not all_lexemes:
        raise InvalidArgumentError(
            "The SQL text holds no statement. Write one, such as SELECT * FROM catalog.schema.table."
        )
    text = text[: all_lexemes[-1].end]
    words = tuple(lexeme.word or lexeme.symbol for lexeme in all_lexemes[:4])
    if grants_remedy(all_lexemes) is not None:
        raise _refusal(text, all_lexemes, words)
    for length in range(len(words), 0, -1):
        family = STATEMENTS.get(words[:length])
        if family is not None:
            at = _write_after_with(all_lexemes)
            if at is None:
                return Statement(text=text, lexemes=all_lexemes, family=family)
            family = STATEMENTS[(all_lexemes[at].word,)]
            return Statement(text=text, lexemes=all_lexemes[at:], family=family, common_tables=all_lexemes[at].start)
    raise _refusal(text, all_lexemes, words)


def _write_after_with(all_lexemes: tuple[Lexeme, ...]) -> int | None:
    """The position of INSERT or MERGE after a WITH clause; None for other statements."""
    if all_lexemes[0].word != "WITH":
        return None
    depth = 0
    for position, lexeme in enumerate(all_lexemes):
        if depth == 0 and all_lexemes[position - 1].symbol == ")" and lexeme.word in ("INSERT", "MERGE"):
            return position
        depth += (lexeme.symbol == "(") - (lexeme.symbol == ")")
    return None


def _refusal(text: str, all_lexemes: tuple[Lexeme, ...], words: tuple[str, ...]) -> InvalidArgumentError:
    first = words[0] or all_lexemes[0].source
    for length in range(len(words), 0, -1):
        call = REFUSED.get(words[:length])
        if call is not None:
            name = " ".join(words[:length])
            return InvalidArgumentError(
                f"This package does not run {name} statements. Nothing was changed. Use {call}."
            ).with_remedy(_REMEDIES.get(words[:length]) or grants_remedy(all_lexemes))
    known = {words[0] for words in (*STATEMENTS, *REFUSED)}
    hint = did_you_mean(similar_names(first, known, least=_LEAST_SIMILARITY))
    return InvalidArgumentError(
        f"This package does not run statements that begin with {first!r} (at {place(text, all_lexemes[0].start)}).{hint} It runs "
        "queries, EXPLAIN, DESCRIBE, SHOW and statements that write to tables of the catalog. The Spark session itself runs a "
        "statement that concerns only the session."
    )
