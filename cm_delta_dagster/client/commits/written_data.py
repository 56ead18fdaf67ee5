"""What a write hands over with its transaction: the files that it has written."""

import typing


class WrittenData(typing.Protocol):
    """What a write has written for its transaction."""

    def discard(self) -> None:
        """Delete the files. The caller ensures that no commit refers to them."""
        ...
