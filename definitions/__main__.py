"""``python -m definitions``. Prints the first line at once: the imports of the demo take seconds."""

import importlib
import sys

from definitions.console import say

if __name__ == "__main__":
    if "--help" not in sys.argv:
        say("Importing Dagster and PySpark ...")
    importlib.import_module("definitions.command").main()
