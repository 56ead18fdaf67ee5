"""How the server parses HTTP: with h11, whatever parser is installed besides.

Java's HTTP client, which Delta Kernel and delta-spark use, asks for HTTP/2 in each request, by the headers ``Connection: Upgrade``
and ``Upgrade: h2c``. A server may ignore that. uvicorn's other parser, httptools, takes the body of such a request for data of the
other protocol, so that it is lost.
"""

from uvicorn.protocols.http.h11_impl import H11Protocol


class HttpProtocol(H11Protocol):
    """HTTP/1.1 without a warning for each request that asks for another protocol; ``http`` of ``uvicorn.Config``."""

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: the request is answered."""
