"""The demo code location."""

import warnings

# By their text and not by dagster.BetaWarning: the import of Dagster takes seconds, and `python -m definitions` prints before it.
warnings.filterwarnings("ignore", message=".* is currently in beta")
