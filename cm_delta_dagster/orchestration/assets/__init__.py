"""The IO manager: inputs, outputs and the events of both."""
