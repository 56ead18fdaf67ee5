"""An SQL text with other names in place of tables of the catalog. Every other character stays as it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.operations.sql.table_references import ColumnReference, TableReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """``field`` of :func:`template` between ``before`` and ``after``, in place of the characters ``start`` to ``end``."""

    start: int
    end: int
    before: str = ""
    field: str = ""
    after: str = ""


def template(text: str, replacements: Iterable[Replacement]) -> str:
    """A text for ``str.format``, with a field for each replacement that has one."""
    written: list[str] = []
    done = 0
    for replacement in sorted(replacements, key=lambda replacement: replacement.start):
        field = f"{{{replacement.field}}}" if replacement.field else ""
        written += (
            _escaped(text[done : replacement.start]),
            _escaped(replacement.before),
            field,
            _escaped(replacement.after),
        )
        done = replacement.end
    return "".join((*written, _escaped(text[done:])))


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def quoted(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def table_replacement(reference: TableReference, *, field: str, alias: str) -> Replacement:
    """A view in place of a table, under the last part of its name, so that its columns keep their qualifier."""
    if reference.is_bare:
        return Replacement(start=reference.start, end=reference.end, field=field)
    return Replacement(start=reference.start, end=reference.end, before="(", field=field, after=f" AS {quoted(alias)})")


def aliases_of(
    names: Mapping[tuple[str, ...], tuple[str, str, str]], columns: Sequence[ColumnReference]
) -> dict[tuple[str, ...], str]:
    """The alias of each table: the last part of its name, or the whole name where two tables share the last part and a column is
    qualified by more than that.

    Args:
        names: catalog, schema and table by the name as written.
    """
    aliases = {}
    for written, name in names.items():
        same = {other for other in names.values() if other[2].lower() == name[2].lower()}
        is_qualified = any(qualifier_length(column, other) for column in columns for other in same)
        aliases[written] = ".".join(name) if len(same) > 1 and is_qualified else name[2]
    return aliases


def column_replacements(
    columns: Sequence[ColumnReference], aliases: Mapping[tuple[str, str, str], str]
) -> list[Replacement]:
    """The alias in place of ``catalog.schema.table`` and ``schema.table`` before columns of replaced tables."""
    replacements = []
    for column in columns:
        matches = ((length, alias) for name, alias in aliases.items() if (length := qualifier_length(column, name)))
        length, alias = max(matches, default=(0, ""))
        if length:
            replacements.append(Replacement(start=column.start, end=column.ends[length - 1], before=quoted(alias)))
    return replacements


def qualifier_length(column: ColumnReference, name: tuple[str, str, str]) -> int:
    """The number of parts before the column that are the end of ``name``, ignoring case: 3, 2, or 0 for fewer."""
    parts = tuple(part.lower() for part in column.parts)
    own = tuple(part.lower() for part in name)
    for length in (3, 2):
        if len(parts) > length and parts[:length] == own[-length:]:
            return length
    return 0
