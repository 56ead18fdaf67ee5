"""Calls Unity Catalog's official generated client; a program of the environment ``unitycatalog``.

A request has ``url``, ``token`` and ``calls``: of each the class of the API, the method, its arguments, and optionally the model of
its body. The answers are JSON: what the client parsed, or the status and the body of its error.
"""

import asyncio
import importlib
import json
import pkgutil
import re
import sys
from typing import Any

import unitycatalog.client as client
import unitycatalog.client.models


def main() -> None:
    request = json.load(sys.stdin)
    # The package unitycatalog.delta lacks these modules, which its own classes import; those of the other package serve it.
    for name in ("api_client", "api_response", "rest"):
        sys.modules[f"unitycatalog.delta.{name}"] = importlib.import_module(f"unitycatalog.client.{name}")
    for module in pkgutil.iter_modules(importlib.import_module("unitycatalog.delta.models").__path__):
        model = importlib.import_module(f"unitycatalog.delta.models.{module.name}")
        for name, value in vars(model).items():
            if name.startswith("Delta"):  # The client looks for the classes of answers in the models of its package.
                setattr(unitycatalog.client.models, name, value)
    serde = importlib.import_module("unitycatalog.delta.internal.serde.delta_data_type_module")
    # The generated method loses the fields, and that module corrects it only for the columns within columns.
    serde.DeltaStructType.from_dict = staticmethod(serde._parse_type)
    json.dump(asyncio.run(answers(request)), sys.stdout, default=str)


async def answers(request: dict[str, Any]) -> list[Any]:
    configuration = client.Configuration(host=f"{request['url']}/api/2.1/unity-catalog")
    result = []
    async with client.ApiClient(configuration) as calls:
        calls.set_default_header("Authorization", f"Bearer {request['token']}")
        for call in request["calls"]:
            result.append(await answer(calls, call))
    return result


async def answer(calls: client.ApiClient, call: dict[str, Any]) -> Any:
    kind = call["api"]
    package = "unitycatalog.client" if hasattr(client, kind) else "unitycatalog.delta"
    api = getattr(importlib.import_module(f"{package}.api.{snake_case(kind)}"), kind)(calls)
    arguments = dict(call.get("arguments", {}))
    if "model" in call:
        arguments[snake_case(call["model"])] = built(package, call["model"], call["body"])
    try:
        parsed = await getattr(api, call["method"])(**arguments)
    except client.ApiException as error:
        return {"status": error.status, "body": json.loads(error.body) if error.body else None}
    return parsed.to_dict() if hasattr(parsed, "to_dict") else parsed


def built(package: str, name: str, body: dict[str, Any]) -> Any:
    """The model of a body. ``from_dict`` loses the fields of requirements, and those of updates besides their kind."""
    model = getattr(importlib.import_module(f"{package}.models.{snake_case(name)}"), name)
    if name != "DeltaUpdateTableRequest":
        return model.from_dict(body)
    kinds = {
        "assert-table-uuid": "DeltaAssertTableUUID",
        "assert-etag": "DeltaAssertEtag",
        "add-commit": "DeltaAddCommitUpdate",
        "set-latest-backfilled-version": "DeltaSetLatestBackfilledVersionUpdate",
    }
    models = unitycatalog.client.models
    requirements = [getattr(models, kinds[part["type"]]).model_validate(part) for part in body["requirements"]]
    updates = [getattr(models, kinds[part["action"]]).model_validate(part) for part in body["updates"]]
    return model.model_construct(requirements=requirements, updates=updates)


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


if __name__ == "__main__":
    main()
