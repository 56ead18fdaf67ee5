"""Hook of the docs site: links to files outside of ``docs`` become plain text, because the site does not hold those files."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]+\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page before it is rendered."""
    depth = page.file.src_uri.count("/")
    return _OUTSIDE.sub(lambda link: link[0] if _is_inside(link[0], depth) else link[1], markdown)


def _is_inside(link: str, depth: int) -> bool:
    """Whether a link with ``../`` stays within ``docs``; ``depth`` is the number of directories that the page lies below it."""
    return link.count("../") <= depth
