"""Imports modules in a peer's environment; answers with the versions of what is installed and with the path of imports."""

import importlib
import json
import sys
from importlib import metadata


def main() -> None:
    for module in json.load(sys.stdin):
        importlib.import_module(module)
    versions = {found.name.lower().replace("_", "-"): found.version for found in metadata.distributions()}
    json.dump({"versions": versions, "path": sys.path}, sys.stdout)


if __name__ == "__main__":
    main()
