"""Parses what an asset's metadata declares of its table: properties, constraints, defaults, generated and identity columns,
clustering.
"""

from collections.abc import Mapping
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.declaration import TableDeclaration
from cm_delta_dagster.orchestration.metadata.metadata_values import column_names
from cm_delta_dagster.protocol.features.identity_columns import Identity

_IDENTITY_FIELDS = frozenset({"start", "step", "always"})


def parse_declaration(entries: Mapping[str, Any]) -> TableDeclaration:
    """The declaration of a table.

    Args:
        entries: entries of the asset's metadata, by key.

    Raises:
        InvalidArgumentError: a value has the wrong form, or an expression or property is not valid.
    """
    clustering = entries.get("cluster_by")
    empty = isinstance(clustering, list | tuple) and not clustering
    declaration = TableDeclaration(
        properties=_texts_by_name(entries.get("table_properties"), "table_properties"),
        clustering_columns=() if empty else None if clustering is None else column_names(clustering, "cluster_by"),
        constraints=_optional_texts(entries.get("constraints"), "constraints"),
        defaults=_optional_texts(entries.get("defaults"), "defaults"),
        generated=_texts_by_name(entries.get("generated"), "generated"),
        identity=_identities(entries.get("identity")),
    )
    declaration.check()
    return declaration


def _texts_by_name(value: Any, key: str) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise InvalidArgumentError(f"The metadata key {key!r} is {value!r}; it must be a dict of texts.")
    return dict(value)


def _optional_texts(value: Any, key: str) -> Mapping[str, str | None]:
    entries = value if isinstance(value, Mapping) else {}
    present = _texts_by_name(
        {name: text for name, text in entries.items() if text is not None} if isinstance(value, Mapping) else value, key
    )
    return {str(name): present.get(name) for name in entries}


def _identities(value: Any) -> Mapping[str, Identity]:
    if value is None:
        return {}
    if isinstance(value, str | list | tuple):
        return {name: Identity() for name in column_names(value, "identity")}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _identity(name, options) for name, options in value.items()}
    raise _not_identity(value)


def _identity(name: str, options: Any) -> Identity:
    if not isinstance(options, Mapping) or not _IDENTITY_FIELDS.issuperset(options):
        raise _not_identity({name: options})
    start, step, always = options.get("start", 1), options.get("step", 1), options.get("always", True)
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (start, step))
    if not whole or not isinstance(always, bool):
        raise _not_identity({name: options})
    return Identity(start=start, step=step, always=always)


def _not_identity(value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The metadata key 'identity' is {value!r}; it must be a column name, a list of them, or a dict of column name to "
        "{'start': 1, 'step': 1, 'always': True}."
    )
