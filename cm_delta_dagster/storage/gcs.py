"""Google Cloud Storage, through gcsfs."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import fsspec
from fsspec.asyn import sync

from cm_delta_dagster.storage.backend import WRITE_ID, Backend, Fault


class GoogleStorage(Backend):
    """``gs://bucket/key``. Without a token in the options gcsfs uses Google's default credentials.

    Only the JSON interface is used; zonal buckets, which require gRPC, are not supported.
    """

    name = "Google Cloud Storage"
    schemes = ("gs", "gcs")
    extra = "gcs"
    condition = "ifGenerationMatch=0"
    codes: ClassVar[Mapping[str, Fault]] = {
        "401": Fault.WRONG_KEY,
        # Of google-auth and gcsfs themselves.
        "DefaultCredentialsError": Fault.NO_KEY,
        "RefreshError": Fault.EXPIRED,
        "ChecksumError": Fault.CORRUPT,
    }
    own_options = frozenset({"project", "access", "consistency", "default_location", "session_kwargs"})
    synonyms: ClassVar[Mapping[str, str]] = {
        "credentials": "token",
        "service_account": "token",
        "service_account_path": "token",
        "google_application_credentials": "token",
        "project_id": "project",
        "endpoint": "endpoint_url",
    }
    booleans_or_text = frozenset({"requester_pays"})  # Or the project that pays.

    def open(self, options: Mapping[str, Any]) -> Any:
        # The class for zonal buckets asks over gRPC for the kind of each bucket. Its base class does not.
        offered = fsspec.get_filesystem_class("gs")
        plain = next((cls for cls in offered.__mro__ if cls.__module__ == "gcsfs.core"), offered)
        filesystem = plain(**{**options, "use_listings_cache": False, "skip_instance_cache": True})
        once = getattr(plain._request, "__wrapped__", None)
        if once is not None:
            filesystem._request = partial(once, filesystem)  # FsspecStore retries.
        return filesystem

    def delete_directory(self, filesystem: Any, path: str) -> None:
        # gcsfs removes the slash at the end of the key.
        bucket, _, key = path.partition("/")
        sync(filesystem.loop, filesystem._call, "DELETE", "b/{}/o/{}", bucket, f"{key}/")

    def create(self, filesystem: Any, path: str, data: bytes, *, write_id: str) -> None:
        filesystem.pipe_file(path, data, mode="create", metadata={WRITE_ID: write_id})

    def sends_once(self, filesystem: Any) -> bool:
        # aiohttp does not repeat POST.
        return isinstance(filesystem._request, partial)

    def codes_of(self, error: BaseException) -> tuple[str, ...]:
        module = type(error).__module__
        if not module.startswith(("gcsfs", "google")):
            # gcsfs raises an OSError for 403.
            return ("403",) if type(error) is OSError and str(error).startswith("Forbidden") else ()
        code = getattr(error, "code", None)
        return (type(error).__name__,) if code is None else (str(code),)
