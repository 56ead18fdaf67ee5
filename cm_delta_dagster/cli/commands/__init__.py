"""The commands of ``cm-delta``, by area. A command gives values to the printer."""
