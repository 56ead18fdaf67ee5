"""A machine that is busy with other work."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PROGRAM = """
import os, sys
while os.getppid() == int(sys.argv[1]):  # It ends with the process that started it, even if that one is killed.
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def loaded_machine(processes: int | None = None) -> Iterator[None]:
    """Keep ``processes`` processors busy while the block runs; by default all of them."""
    command = [sys.executable, "-I", "-c", _PROGRAM, str(os.getpid())]
    burners = [subprocess.Popen(command) for _ in range(processes or os.cpu_count() or 1)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()
