"""The demo code location."""

import warnings

import dagster as dg

warnings.filterwarnings("ignore", category=dg.BetaWarning)
