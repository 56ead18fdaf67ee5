"""The command line, ``cm-delta``."""
