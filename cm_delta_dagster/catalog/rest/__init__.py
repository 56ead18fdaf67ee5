"""The catalog over HTTP: the API of ``cm-delta serve`` (``operations``, ``codec``, ``wire_errors``) and its client."""
