"""Definitions of columns, and lists of columns and properties, in CREATE TABLE and ALTER TABLE."""

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.statements import Family, Statement
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.protocol.features.column_specs import Column
from cm_delta_dagster.protocol.features.identity_columns import Identity
from cm_delta_dagster.protocol.predicates.sql_lexer import lexemes
from cm_delta_dagster.protocol.schema.column_paths import path_text

_AFTER_DEFAULT = ("NOT NULL", "COMMENT", "GENERATED", "FIRST", "AFTER", "CHECK", "CONSTRAINT", ",")
_CONSTRAINTS = ("CONSTRAINT", "CHECK", "PRIMARY", "FOREIGN", "UNIQUE", "REFERENCES")


def columns_of_text(text: str) -> list[Column]:
    """The columns of a text such as ``id bigint NOT NULL, name string``, in the language of CREATE TABLE.

    Raises InvalidArgumentError.
    """
    words = Words(Statement(text=text, lexemes=tuple(lexemes(text)), family=Family.CREATE), after=0)
    columns = words.listed(lambda: column_definition(words), brackets=words.peek() == "(")
    if not words.is_done():
        raise words.fault("a comma or the end")
    return columns


def column_definition(words: Words) -> Column:
    """``name type [NOT NULL] [DEFAULT ...] [GENERATED ...] [COMMENT ...]``. Raises InvalidArgumentError."""
    if words.peek() in ("CONSTRAINT", "CHECK", "PRIMARY", "FOREIGN") and words.peek(1) not in (",", ")"):
        raise _refused_constraint(words)
    name = words.part()
    return column_options(words, name, words.type())


def column_options(words: Words, name: str, data_type: str) -> Column:
    """What comes after the type of a column."""
    nullable, comment, default, generated, identity = True, None, None, None, None
    while True:
        if words.takes("NOT NULL"):
            nullable = False
        elif words.takes("NULL"):
            nullable = True
        elif words.takes("COMMENT"):
            comment = words.string("the comment as a text in quotes")
        elif words.takes("DEFAULT"):
            default = words.until(*_AFTER_DEFAULT, what="the default of the column").text
        elif words.takes("GENERATED"):
            by_default = not words.takes("ALWAYS")
            if by_default:
                words.expect("BY DEFAULT")
            words.expect("AS")
            if words.takes("IDENTITY"):
                identity = _identity(words, always=not by_default)
            elif by_default:
                raise words.fault("IDENTITY")
            else:
                generated = words.in_brackets("the expression of the generated column").text
        elif words.peek() in _CONSTRAINTS:
            raise _refused_constraint(words)
        else:
            break
    return Column(
        name,
        data_type,
        nullable=nullable,
        comment=comment,
        default=default,
        generated=generated,
        identity=identity,
    )


def _refused_constraint(words: Words) -> InvalidArgumentError:
    return words.refusal(
        f"{words.peek()} in the definition of columns",
        "Create the table, then add the condition with ALTER TABLE name ADD CONSTRAINT other CHECK (condition).",
    )


def _identity(words: Words, *, always: bool) -> Identity:
    start, step = 1, 1
    if words.symbol("("):
        while not words.symbol(")"):
            if words.takes("START WITH"):
                start = _integer(words)
            elif words.takes("INCREMENT BY"):
                step = _integer(words)
            elif not words.symbol(","):
                raise words.fault("START WITH, INCREMENT BY or ')'")
    return Identity(start=start, step=step, always=always)


def _integer(words: Words) -> int:
    sign = -1 if words.symbol("-") else 1
    number = words.number()
    if number is None:
        raise words.fault("a whole number")
    return sign * number


def columns_in_brackets(words: Words) -> list[str]:
    """``(a, b.c)``. Raises InvalidArgumentError."""
    return words.listed(lambda: path_text(words.name()))


def properties(words: Words) -> dict[str, str]:
    """``('key' = 'value', ...)``; keys and values may stand without quotes. Raises InvalidArgumentError."""
    return dict(words.listed(lambda: _property(words)))


def property_keys(words: Words) -> list[str]:
    """``('key', ...)``. Raises InvalidArgumentError."""
    return words.listed(lambda: property_key(words))


def _property(words: Words) -> tuple[str, str]:
    key = property_key(words)
    words.symbol("=")
    if (text := words.literal()) is not None:
        return key, text
    value = words.until(",", what="the value of the property").text
    return key, value.lower() if value.upper() in ("TRUE", "FALSE") else value


def property_key(words: Words) -> str:
    """A key as a text in quotes, or as names with dots between them."""
    text = words.literal()
    return ".".join(words.name()) if text is None else text
