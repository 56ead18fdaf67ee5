"""Attributes that several components share: how the catalog and Spark are reached."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database import IfMissing
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.orchestration.resources import CatalogResource, SparkResource
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores


class DescribedModel(dg.Model, dg.Resolvable):
    """A base of components and their parts: the schema that ``dg`` shows has the descriptions of all attributes.

    Dagster drops the description of a pydantic field that has a default.
    """

    @classmethod
    def model(cls) -> type[BaseModel]:
        derived = super().model()
        missing = {
            name: field.description
            for name, field in cls.model_fields.items()
            if name in derived.model_fields and derived.model_fields[name].description is None
        }
        if any(missing.values()):
            for name, description in missing.items():
                derived.model_fields[name].description = description
            derived.model_rebuild(force=True)
        return derived


class CatalogSettings(DescribedModel):
    """Where the catalog and its tables are."""

    url: str = Field(
        description="Database of the catalog, e.g. sqlite:////data/catalog.db or postgresql+psycopg://host/db."
    )
    warehouse: str = Field(description="Directory or URI of the locations of new tables.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the warehouse's object store; {env: NAME} reads them from a variable as a JSON object.",
    )

    principal: str | None = Field(
        default=None,
        description="Who the runs are, for grants and the audit. Default: environment variable CM_DELTA_PRINCIPAL. On PostgreSQL "
        "it is the role that logs in.",
    )

    def resource(self) -> CatalogResource:
        """The Dagster resource with these settings."""
        return CatalogResource(
            url=self.url,
            warehouse=self.warehouse,
            storage_options=self.storage_options,
            principal=self.principal,
        )

    @contextmanager
    def open_client(self) -> Iterator[DeltaClient]:
        """A client of the catalog, which must exist. Raises CatalogNotFoundError."""
        with self.resource().process_config_and_initialize_cm() as resource:
            options = StorageOptions.of(resource.storage_options, warehouse=resource.warehouse)
            client = DeltaClient(
                SqlCatalog(
                    resource.url,
                    warehouse=resource.warehouse,
                    if_missing=IfMissing.REFUSE,
                    principal=resource.principal,
                ),
                stores=Stores(storage_options=options),
                settings=resource.settings.client_settings(),
            )
            try:
                yield client
            finally:
                client.close()


class SparkSettings(DescribedModel):
    """A Spark session: classic (``master``) or Spark Connect (``remote``)."""

    master: str | None = Field(default=None, description="Master URL of a classic session, e.g. local[2].")
    remote: str | None = Field(default=None, description="URL of a Spark Connect server, e.g. sc://host:15002.")
    app_name: str = Field(default="cm_delta_dagster", description="Name shown in the Spark UI.")
    packages: list[str] = Field(default_factory=list, description="Maven coordinates for spark.jars.packages.")
    jars: list[str] = Field(default_factory=list, description="Jar files for spark.jars.")
    config: dict[str, str] = Field(default_factory=dict, description="Further Spark settings, as text.")

    def resource(self) -> SparkResource:
        """The Dagster resource with these settings."""
        return SparkResource(
            master=self.master,
            remote=self.remote,
            app_name=self.app_name,
            packages=self.packages,
            jars=self.jars,
            config=self.config,
        )
