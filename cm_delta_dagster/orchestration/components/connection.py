"""Attributes that several components share: how the catalog and Spark are reached.

A value of the environment, ``{env: NAME}`` or ``"{{ env.NAME }}"``, stays a reference: Dagster shows the attributes of components
in its UI and stores them in snapshots. Where a component needs the value while definitions load, it is read and not stored.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, NoReturn

import dagster as dg
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)

from cm_delta_dagster.api.moved_names import MOVED_ARGUMENTS
from cm_delta_dagster.catalog.durations import parse_duration
from cm_delta_dagster.catalog.sql.database.database import IfMissing
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.orchestration.runs.environment import as_references, variable_of
from cm_delta_dagster.orchestration.runs.resources import CatalogResource, SparkResource

_MODELS: dict[type, type[BaseModel]] = {}


class DescribedModel(dg.Model, dg.Resolvable):
    """A base of components and their parts: the schema that ``dg`` shows has the descriptions of all attributes.

    Dagster drops the description of a pydantic field that has a default.
    """

    @classmethod
    def from_yaml(cls, attributes: Any) -> Any:
        """The attributes of a ``defs.yaml`` as they are validated; a component can override this.

        Raises:
            InvalidArgumentError: an attribute has the name of an earlier release.
        """
        for old in MOVED_ARGUMENTS.keys() & attributes if isinstance(attributes, Mapping) else ():
            if MOVED_ARGUMENTS[old] in cls.model_fields:
                raise InvalidArgumentError(f"The attribute {old!r} of {cls.__name__} is now {MOVED_ARGUMENTS[old]!r}.")
        return attributes

    @classmethod
    def model(cls) -> type[BaseModel]:
        if cls not in _MODELS:
            derived = cls._described_model()

            def prepared(attributes: Any) -> Any:
                return cls.from_yaml(attributes)

            validators: Any = {"from_yaml": model_validator(mode="before")(prepared)}
            _MODELS[cls] = create_model(derived.__name__, __base__=derived, __validators__=validators)
        return _MODELS[cls]

    @classmethod
    def _described_model(cls) -> type[BaseModel]:
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


def duration_field(name: str) -> dg.Resolver:
    """The resolver of an attribute that is a text such as ``7 days``, and a timedelta in Python."""

    def resolve(context: dg.ResolutionContext, text: Any) -> timedelta | None:
        value = context.resolve_value(text)
        return value if value is None or isinstance(value, timedelta) else parse_duration(value, name=name)

    # Injection before would pass the number that a template makes of "30" to pydantic, which takes it as seconds.
    return dg.Resolver(resolve, model_field_type=str, inject_before_resolve=False)


class EnvironmentVariable(DescribedModel):
    """A reference to an environment variable, which is read where the run happens."""

    env: str = Field(description="Name of the variable.")


_VARIABLE_MODEL: Any = EnvironmentVariable.model()


class _EnvironmentReference:
    """What ``env.NAME`` is within a template."""

    def __init__(self, name: str, *, is_public: bool) -> None:
        self.name = name
        self._is_public = is_public

    def __str__(self) -> str:
        """The value, for a template in which it is a part of a longer text."""
        if not self._is_public:
            raise InvalidArgumentError(
                f"A template uses the environment variable {self.name} as a part of a text that may be a secret. Dagster would "
                "show the value. Put the whole text into a variable, and write {env: NAME}."
            )
        value = os.environ.get(self.name)
        if value is None:
            raise InvalidArgumentError(
                f"A template uses the environment variable {self.name} as a part of a text, and it is not set. Set it where "
                "definitions are loaded, or put the whole text into a variable, and write {env: NAME}."
            )
        return value

    def _refuse(self, *_: Any) -> NoReturn:
        raise CmDeltaError(  # Filters take a ValueError as a text that is no number, and go on with 0.
            f"A template computes with the environment variable {self.name} or compares it. Its value is read where the run "
            "happens, not where definitions are loaded. Put the result into a variable of its own, and write {env: NAME}."
        )

    __int__ = __index__ = __float__ = __complex__ = __bool__ = __len__ = __iter__ = __hash__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __mod__ = __rmod__ = _refuse


class _Environment:
    """``env`` of templates whose values stay references. Those that are ``is_public`` can be parts of a text."""

    def __init__(self, *, is_public: bool) -> None:
        self._is_public = is_public

    def __call__(self, name: str, default: Any = None) -> Any:
        is_absent = default is not None and name not in os.environ
        return default if is_absent else _EnvironmentReference(name, is_public=self._is_public)

    def __getattr__(self, name: str) -> _EnvironmentReference:
        if name.startswith(("jinja", "__")):  # The template engine looks for attributes of its own.
            raise AttributeError(name)
        return _EnvironmentReference(name, is_public=self._is_public)


def _with_variables(value: Any) -> Any:
    """``value`` with ``dg.EnvVar`` for references, at any depth."""
    if isinstance(value, _EnvironmentReference):
        return dg.EnvVar(value.name)
    if isinstance(value, Mapping):
        return {key: _with_variables(item) for key, item in value.items()}
    return [_with_variables(item) for item in value] if isinstance(value, list | tuple) else value


def _resolver(kind: Any, *, is_public: bool = False) -> dg.Resolver:
    """How YAML becomes a value of a field: a text, a mapping, or a reference."""

    def resolve(context: dg.ResolutionContext, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [resolve(context, item) for item in value]
        if isinstance(value, _VARIABLE_MODEL):
            return dg.EnvVar(context.resolve_value(value.env, as_type=str))
        scope = context.with_scope(env=_Environment(is_public=is_public))
        return as_references(_with_variables(scope.resolve_value(value)))

    # Injection before would resolve the templates with the values of the environment.
    return dg.Resolver(resolve, model_field_type=kind, inject_before_resolve=False)


def _unless_reference(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    # pydantic would make a plain text of an EnvVar.
    name = variable_of(value)
    return validate(value) if name is None else dg.EnvVar(name)


_OR_VARIABLE = str | _VARIABLE_MODEL
_SECRET_TEXT, _PUBLIC_TEXT = _resolver(_OR_VARIABLE), _resolver(_OR_VARIABLE, is_public=True)
_OPTIONS, _TEXTS = _resolver(dict[str, Any]), _resolver(list[_OR_VARIABLE])  # type: ignore[valid-type]  # A type made at run time.
_Text = Annotated[str, WrapValidator(_unless_reference)]


class CatalogSettings(DescribedModel):
    """Where the catalog and its tables are."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Annotated[str, _SECRET_TEXT] = Field(
        repr=False,
        description="Database of the catalog, e.g. sqlite:////data/catalog.db or postgresql+psycopg://host/db, or http://host:port "
        "of its server.",
    )
    warehouse: Annotated[str | None, _PUBLIC_TEXT] = Field(
        default=None, description="Directory or URI of the locations of new tables. Not for a server, which knows it."
    )
    storage_options: Annotated[dict[str, Any], _OPTIONS] = Field(
        default_factory=dict,
        repr=False,
        description="Options of the warehouse's object store; {env: NAME} reads them from a variable as a JSON object.",
    )
    principal: Annotated[str | None, _PUBLIC_TEXT] = Field(
        default=None,
        description="Who the runs are, for grants and the audit. Default: environment variable CM_DELTA_PRINCIPAL; without it on "
        "PostgreSQL the role that logs in.",
    )
    token: Annotated[str | None, _SECRET_TEXT] = Field(
        default=None,
        repr=False,
        description="Token of a server of the catalog. Default: environment variable CM_DELTA_TOKEN.",
    )

    # Not in the annotation, from which Dagster derives the model of the YAML: that has the reference as it is written.
    _keep_references = field_validator("url", "warehouse", "storage_options", "principal", "token", mode="wrap")(
        _unless_reference
    )

    def resource(self, *, spark: SparkResource | None = None) -> CatalogResource:
        """The Dagster resource with these settings, and the session of its ``lake``."""
        return CatalogResource(
            url=self.url,
            warehouse=self.warehouse,
            storage_options=self.storage_options,
            principal=self.principal,
            token=self.token,
            spark=spark,
        )

    @contextmanager
    def open_client(self) -> Iterator[DeltaClient]:
        """A client of the catalog, which must exist. Raises CatalogNotFoundError."""
        with self.resource().process_config_and_initialize_cm() as resource:
            client = resource.open_client(if_missing=IfMissing.REFUSE)
            try:
                yield client
            finally:
                client.close()


class SparkSettings(DescribedModel):
    """A Spark session: classic (``master``) or Spark Connect (``remote``)."""

    model_config = ConfigDict(hide_input_in_errors=True)

    master: Annotated[str | None, _PUBLIC_TEXT] = Field(
        default=None, description="Master URL of a classic session, e.g. local[2]."
    )
    remote: Annotated[str | None, _SECRET_TEXT] = Field(
        default=None, repr=False, description="URL of a Spark Connect server, e.g. sc://host:15002."
    )
    app_name: Annotated[str, _PUBLIC_TEXT] = Field(
        default="cm_delta_dagster", description="Name shown in the Spark UI."
    )
    packages: Annotated[list[_Text], _TEXTS] = Field(
        default_factory=list, repr=False, description="Maven coordinates for spark.jars.packages."
    )
    jars: Annotated[list[_Text], _TEXTS] = Field(
        default_factory=list, repr=False, description="Jar files for spark.jars."
    )
    config: Annotated[dict[str, _Text], _OPTIONS] = Field(
        default_factory=dict,
        repr=False,
        description="Further Spark settings, as text; {env: NAME} reads one from a variable, or all as a JSON object.",
    )

    _keep_references = field_validator("app_name", "master", "remote", "config", mode="wrap")(_unless_reference)

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
