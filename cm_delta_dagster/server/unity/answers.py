"""Answers in JSON, which are large for lists of tables."""

from collections.abc import Iterable
from typing import Any

from fastapi import Response
from pydantic_core import to_json


class JsonAnswer(Response):
    """An answer whose content is encoded by pydantic, several times faster than by Python's encoder."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return to_json(content)


class ListAnswer:
    """A page of a list, encoded in parts, so that the values of a large page do not exist at the same time.

    Args:
        name: of the list in the answer.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[bytes] = []

    def add(self, members: Iterable[Any]) -> None:
        """Encode the next members."""
        part = to_json(list(members))[1:-1]
        if part:
            self._parts.append(part)

    def ended(self, next_token: str | None) -> Response:
        """The answer, which has no more members."""
        token = b"%s:%s" % (to_json("next_page_token"), to_json(next_token))
        body = b"{%s:[%s],%s}" % (to_json(self._name), b",".join(self._parts), token)
        return Response(body, media_type=JsonAnswer.media_type)
