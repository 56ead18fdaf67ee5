"""URLs of servers of a catalog."""

from urllib.parse import urlsplit

from cm_delta_dagster.errors import InvalidArgumentError


def is_server_url(url: object) -> bool:
    """Whether a catalog is reached over HTTP, and not by a database URL."""
    return isinstance(url, str) and url.partition("://")[0].lower() in ("http", "https")


def checked_url(url: str) -> str:
    """The URL without trailing slash. Raises InvalidArgumentError."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        port = host = None
    if not is_server_url(url) or not host or port == 0:
        raise InvalidArgumentError("The URL of a catalog's server is malformed; write it as http://host:port.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidArgumentError(
            f"The URL of the catalog's server at {host} has more than scheme, host and port; write it as http://host:port, and "
            "give the token as token."
        )
    if parts.path.strip("/"):
        raise InvalidArgumentError(
            f"The URL of the catalog's server at {host} has a path; it has none, since the client adds the paths of the API. Write "
            "it as http://host:port."
        )
    return url.rstrip("/")
