"""Modules that are imported when an attribute of them is first used, because most processes never use them."""

import importlib
from types import ModuleType
from typing import Any


class DeferredModule(ModuleType):
    """Stands for the module of its name, and imports it when an attribute is read.

    Only for modules that take long to import and that few commands need. Give type checkers the import under ``TYPE_CHECKING``,
    so that the contracts of imports see it too.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
