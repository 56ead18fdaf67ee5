"""Renders the templates. Every value is escaped, and an answer permits no script and nothing of another server.

Browsers and proxies do not store answers, which show what one caller may see. The policy of referrers keeps the header
``Origin`` in forms, which is checked.
"""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from cm_delta_dagster.catalog.maintenance_decisions import conditions_text
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

STYLE: str = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
STYLE_PATH = "/page/style.css"
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def _time(epoch_ms: int | None) -> str:
    """``2026-01-31 12:00:05``, UTC; empty without a time."""
    return "" if epoch_ms is None else utc_text(epoch_ms)[:19].replace("T", " ")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"time": _time, "size": size_text, "number": "{:,}".format, "conditions": conditions_text}
    version = hashlib.sha256(STYLE.encode()).hexdigest()[:12]
    environment.globals["style"] = f"{STYLE_PATH}?v={version}"
    return environment


_ENVIRONMENT = _environment()


def rendered(
    template: str, values: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    """The answer with a template.

    Args:
        template: name of a file in ``templates``.
        values: by the names that the template has; a missing one is an error.
    """
    text = _ENVIRONMENT.get_template(template).render(values)
    return HTMLResponse(text, status, headers={**_HEADERS, **(headers or {})})


def style_sheet() -> Response:
    """The style sheet. Its address changes with its content."""
    return Response(STYLE, media_type="text/css", headers={"Cache-Control": "public, max-age=86400"})
