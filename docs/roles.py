"""Griffe extension of the docs site: Sphinx's roles in docstrings, such as ``:meth:`close```, become code."""

import re

import griffe

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`(?:[^`<]*<)?(?P<short>~)?(?P<name>[^`>]+)>?`")


class Roles(griffe.Extension):
    """Rewrites the docstring of each object."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Called by griffe for each object that it has loaded."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(lambda role: f"`{_shown(role)}`", obj.docstring.value)


def _shown(role: re.Match[str]) -> str:
    """The last part of the name after a tilde, as in Sphinx, else the whole name."""
    return role["name"].rpartition(".")[2] if role["short"] else role["name"]
