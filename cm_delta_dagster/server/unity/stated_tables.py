"""What a request to create a table says of it, in either generation of the API."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.paths import canonical_location
from cm_delta_dagster.protocol.features.table_properties import TABLE_ID_KEY
from cm_delta_dagster.server.limits import exceeds_depth
from cm_delta_dagster.server.request_errors import NotServedError
from cm_delta_dagster.server.unity.contract import STATED, UNSTATED, Contract
from cm_delta_dagster.server.unity.models import CreateTableRequest, WireProtocol
from cm_delta_dagster.server.unity.older_models import OlderColumn, OlderTableRequest

_MAX_TYPE_DEPTH = 100
"""Levels of arrays and objects in a type, as in a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTable:
    """A table as a request describes it. None stands for what the request does not say.

    Attributes:
        contract: what the table must have.
        columns: with the fields of the schema JSON of the log, in either form.
        has_log: False if the server is to write version 0. The client then states no id of the table.
    """

    contract: Contract
    table_type: str
    location: str
    columns: Mapping[str, Any] | None
    partition_columns: tuple[str, ...] | None
    protocol: WireProtocol | None = None
    properties: Mapping[str, str]
    comment: str | None
    last_commit_timestamp_ms: int | None = None
    has_uniform: bool = False
    has_log: bool = True


def stated_table(request: CreateTableRequest) -> StatedTable:
    """The table of a request of the Delta API."""
    return StatedTable(
        contract=STATED,
        table_type=request.table_type,
        location=request.location,
        columns=request.columns.model_dump(),
        partition_columns=request.partition_columns or (),
        protocol=request.protocol,
        properties=request.properties,
        comment=request.comment,
        last_commit_timestamp_ms=request.last_commit_timestamp_ms,
        has_uniform=request.uniform is not None,
    )


def older_stated_table(request: OlderTableRequest) -> StatedTable:
    """The table of a request of the older API, which describes the protocol by properties alone.

    Raises:
        NotServedError: its format is not Delta.
        InvalidArgumentError: it has no location, or a column has no type.
    """
    if request.data_source_format not in (None, "DELTA"):
        raise NotServedError(f"{request.name} was not created: the catalog has tables of the format DELTA only.")
    if not request.storage_location:
        raise InvalidArgumentError(
            f"{request.name} was not created: the request has no storage_location. Request a staging table first, and state its "
            "location."
        )
    columns = None if request.columns is None else in_order(request.columns)
    return StatedTable(
        contract=UNSTATED,
        table_type=request.table_type,
        location=request.storage_location,
        columns=None if columns is None else columns_of_infos(columns),
        partition_columns=None if columns is None else partition_columns_of(columns),
        properties=request.properties or {},
        comment=request.comment,
        has_log=TABLE_ID_KEY in (request.properties or {}),
    )


def in_order(columns: Sequence[OlderColumn]) -> tuple[OlderColumn, ...]:
    """The columns by their positions; those without one are where the list has them."""
    placed = [
        (place if column.position is None else column.position, place, column) for place, column in enumerate(columns)
    ]
    return tuple(column for _, _, column in sorted(placed, key=lambda entry: entry[:2]))


def partition_columns_of(columns: Sequence[OlderColumn]) -> tuple[str, ...]:
    """The names of the partition columns, in the order of their indexes."""
    partitions = [(column.partition_index, column.name) for column in columns if column.partition_index is not None]
    return tuple(name for _, name in sorted(partitions))


def columns_of_infos(columns: Sequence[OlderColumn]) -> dict[str, Any]:
    """The columns of the older API as a schema of the log. Raises InvalidArgumentError if a column has no type."""
    return {"type": "struct", "fields": [_field(column) for column in columns]}


def _field(column: OlderColumn) -> dict[str, Any]:
    """The field of a column. Clients state the whole field as JSON, or its type alone."""
    text = column.type_json
    if text is None or exceeds_depth(text.encode(errors="surrogatepass"), _MAX_TYPE_DEPTH):
        raise _without_type(column)
    try:
        stated = json.loads(text)
    except ValueError as error:
        raise _without_type(column) from error
    if not isinstance(stated, Mapping) or "name" not in stated:
        comment = {} if column.comment is None else {"comment": column.comment}
        return {"name": column.name, "type": stated, "nullable": column.nullable, "metadata": comment}
    if stated["name"] != column.name:
        raise InvalidArgumentError(f"The type_json of the column {column.name!r} is that of another column.")
    return dict(stated)


def _without_type(column: OlderColumn) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The type_json of the column {column.name!r} is missing, is not JSON, or has more than {_MAX_TYPE_DEPTH} levels. Nothing "
        "was changed. State the field as the schema of the log has it."
    )


def is_same_location(stated: str, location: str) -> bool:
    """Whether a client's text is a location of the catalog. Clients write ``file:/`` or ``file:///``, and may encode characters."""
    return _compared(location) in (_compared(stated), _compared(unquote(stated)))


def _compared(location: str) -> str:
    return canonical_location(location).rstrip("/")
