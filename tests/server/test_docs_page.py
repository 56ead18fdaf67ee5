"""The page that describes the API."""

import re

import httpx

from cm_delta_dagster.server.docs_page import page_of
from tests.support.every_operation import every_operation
from tests.support.live_server import LiveServer


def test_the_page_describes_every_operation_and_loads_nothing(server: LiveServer) -> None:
    """A server in a closed network shows it, and nothing that a name or a text of the document has becomes markup."""
    answer = httpx.get(f"{server.url}/docs")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"<(script|link|img|iframe)|src=|https?://", answer.text)
    for path in (*(operation.path for operation in every_operation()), "/health/live", "/api/2.1/unity-catalog/tables"):
        assert f"{path}</code>" in answer.text, path
    assert set(re.findall(r'href="([^"#]+)', answer.text)) == {"openapi.json"}
    assert httpx.get(f"{server.url}/openapi.json").status_code == 200
    assert httpx.get(f"{server.url}/redoc").status_code == 404


def test_texts_of_the_document_are_not_markup() -> None:
    hostile = "<script>alert(1)</script>"
    operation = {
        "tags": [hostile],
        "description": f"{hostile}\n    {hostile}",
        "parameters": [{"name": hostile, "in": "query"}],
        "requestBody": {"content": {hostile: {"schema": {"title": hostile}}}},
    }
    document = {
        "info": {"title": hostile, "version": "1"},
        "paths": {f"/{hostile}": {"get": operation}},
        "components": {"schemas": {hostile: {}}},
    }
    assert "<script" not in page_of(document) and page_of(document).count("&lt;script&gt;") >= 7
