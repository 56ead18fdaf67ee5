"""The page ``/docs``: what the OpenAPI document of the server describes, as text.

It loads nothing, neither from this server nor from another one, so that it is readable in a closed network and without scripts.
"""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter()

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { white-space: pre-wrap; background: #f4f5f7; padding: .75rem; border-radius: 4px }
h2 { border-bottom: 1px solid #d0d7de; margin-top: 2.5rem } h3 { margin: 1.5rem 0 .25rem; overflow-wrap: anywhere }
nav { display: flex; flex-wrap: wrap; gap: .25rem .75rem } summary { cursor: pointer; color: #0550ae }
"""
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The page, which is made once: everybody can ask for it, without a token."""
    state = request.app.state
    if not hasattr(state, "docs_page"):
        state.docs_page = page_of(request.app.openapi())
    return HTMLResponse(state.docs_page, headers=_HEADERS)


def page_of(document: Mapping[str, Any]) -> str:
    """The page that describes the paths of an OpenAPI document."""
    title = f"{document['info']['title']} {document['info']['version']}"
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for tag in operation.get("tags", ["other"])[:1]:
                groups.setdefault(tag, []).append("".join(_operation(method.upper(), path, operation)))
    links = "".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in groups)
    sections = "".join(
        f'<h2 id="{_anchor(tag)}">{escape(tag)}</h2>{"".join(entries)}' for tag, entries in groups.items()
    )
    schemas = "".join(
        f'<h3 id="{_anchor(name)}"><code>{escape(name)}</code></h3>{_json(schema)}'
        for name, schema in document.get("components", {}).get("schemas", {}).items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        "<p>Each request but those below /health has the header <code>Authorization: Bearer TOKEN</code>. The same for "
        f'programs, as OpenAPI: <a href="openapi.json">openapi.json</a>.</p><nav>{links}<a href="#schemas">schemas</a></nav>'
        f'{sections}<h2 id="schemas">schemas</h2>{schemas}</body></html>'
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3><code>{method} {escape(path)}</code></h3>"
    first, _, rest = str(operation.get("description", "")).partition("\n")
    yield f"<p>{escape(first)}</p>"
    if rest.strip():
        yield f"<pre>{escape(_unindented(rest))}</pre>"
    for parameter in operation.get("parameters", ()):
        required = "required" if parameter.get("required") else "optional"
        yield f"<p><code>{escape(parameter['name'])}</code>, in the {escape(parameter['in'])}, {required}</p>"
    yield from _content("The body of the request", operation.get("requestBody", {}))
    for status, answer in operation.get("responses", {}).items():
        yield from _content(f"The answer {escape(status)}", answer)


def _content(what: str, described: Mapping[str, Any]) -> Iterator[str]:
    for content_type, content in described.get("content", {}).items():
        yield f"<details><summary>{what}, {escape(content_type)}</summary>{_json(content.get('schema', {}))}</details>"


def _json(schema: Any) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"


def _unindented(text: str) -> str:
    """The lines after the first of a docstring, without the indentation that they share."""
    lines = text.strip("\n").split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines)


def _anchor(name: str) -> str:
    return escape("".join(character if character.isalnum() else "-" for character in name))
