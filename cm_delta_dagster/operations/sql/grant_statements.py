"""What to call in place of GRANT, REVOKE and SHOW GRANTS, with the names of the statement.

Grants of the catalog are not those of SQL: the privileges have other names. So the statements are not run.
"""

from collections.abc import Mapping, Sequence

from cm_delta_dagster.protocol.predicates.sql_lexer import Lexeme
from cm_delta_dagster.remedies import GrantPrivilege, ListGrants, Remedy, RevokePrivilege

_PRIVILEGES: Mapping[str, str] = {
    "SELECT": "read",
    "READ": "read",
    "INSERT": "append",
    "APPEND": "append",
    "UPDATE": "modify",
    "DELETE": "modify",
    "MODIFY": "modify",
    "ALTER": "alter",
    "ALL": "own",
    "MANAGE": "own",
    "OWN": "own",
    "MAINTAIN": "maintain",
}
"""The privilege of the catalog by the first word of the statement's list."""
_KINDS = frozenset({"TABLE", "VIEW", "SCHEMA", "DATABASE", "NAMESPACE", "CATALOG"})


def grants_remedy(lexemes: Sequence[Lexeme]) -> Remedy | None:
    """The call for a statement about grants; None for another statement. What the statement does not say is a placeholder."""
    match lexemes[0].word, lexemes[1].word if len(lexemes) > 1 else "":
        case "SHOW", "GRANTS" | "GRANT":
            return ListGrants(scope=_after(lexemes, "ON") or "")
        case "GRANT", _:
            return GrantPrivilege(
                privilege=_privilege(lexemes), scope=_after(lexemes, "ON"), principal=_after(lexemes, "TO")
            )
        case "REVOKE", _:
            return RevokePrivilege(
                privilege=_privilege(lexemes), scope=_after(lexemes, "ON"), principal=_after(lexemes, "FROM")
            )
    return None


def _privilege(lexemes: Sequence[Lexeme]) -> str:
    return _PRIVILEGES.get(lexemes[1].word if len(lexemes) > 1 else "", "read")


def _after(lexemes: Sequence[Lexeme], word: str) -> str | None:
    """The name that follows a keyword and the kind of what it names; None if there is none."""
    at = next((place + 1 for place, lexeme in enumerate(lexemes) if lexeme.word == word), len(lexemes))
    at += at < len(lexemes) and lexemes[at].word in _KINDS
    name = ""
    for lexeme in lexemes[at:]:
        if name and not name.endswith(".") and lexeme.symbol != ".":
            break
        name += lexeme.name or lexeme.source.strip("'\"")
    return name or None
