"""The command ``cm-delta serve``: the catalog as a service over HTTP."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cm_delta_dagster.cli.catalog import options_of_command
from cm_delta_dagster.cli.printer import note
from cm_delta_dagster.deferred_module import DeferredModule

if TYPE_CHECKING:
    from cm_delta_dagster.server import configuration, serving
else:  # They need an extra.
    configuration = DeferredModule("cm_delta_dagster.server.configuration")
    serving = DeferredModule("cm_delta_dagster.server.serving")

_NEEDS_EXTRA = "The server needs packages that are not installed ({name}). Run: pip install 'cm-delta-dagster[server]'"


@click.command()
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file with settings.")
@click.option("--warehouse", help="Location of new tables.")
@click.option(
    "--principal",
    help="The server itself, which publishes commits of clients that do not. Default: --principal of cm-delta.",
)
@click.option("--host", help="Interface to serve. Default: 127.0.0.1, which only this machine reaches.")
@click.option("--port", type=int, help="Default: 8181; 0 for a free port.")
@click.option("--workers", type=int, help="Processes that serve; more than one with PostgreSQL only. Default: 1.")
@click.option("--tls-certificate", help="PEM file with the certificate and its chain.")
@click.option("--tls-key", help="PEM file with the key of the certificate.")
@click.option(
    "--allow-plain-http", is_flag=True, default=None, help="Serve other interfaces than loopback without TLS."
)
def serve(config: Path | None, **options: Any) -> None:
    """Serve the catalog over HTTP until SIGTERM or Ctrl+C.

    Settings are read from the options, from variables CM_DELTA_SERVER_PORT and so on, and from the file of --config, in this
    order. Tokens of callers: `cm-delta token create`.
    """
    command = options_of_command()
    try:
        of_program = {"catalog": command.url, "storage_options": dict(command.storage_options) or None}
        chosen = {**options, **of_program, "principal": options["principal"] or command.principal}
        settings = configuration.load_settings(config, os.environ, chosen)
        serving.prepare_catalog(settings)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cm_delta_dagster"):
            raise
        raise click.ClickException(_NEEDS_EXTRA.format(name=error.name)) from error
    with serving.listening_socket(settings) as listening:
        note(f"Serving {serving.url_of(settings, listening)}; its API is described at /docs.")
        serving.serve(settings, listening)
