"""The Java sources of this package, compiled in the Java process of a session by Janino, Spark's compiler of generated code."""

from collections.abc import Sequence
from importlib.resources import files as resources
from typing import Any

from cm_delta_dagster.spark.library import py4j_errors


def jvm_errors() -> tuple[type[Exception], ...]:
    """Errors of a platform whose JVM is not accessible, or is not the one that the sources were written for."""
    return py4j_errors.Py4JError, AttributeError, TypeError


def compiled(jvm: Any, sources: Sequence[str]) -> Any:
    """A class loader with the classes of ``sources``, names of files in ``jvm`` without their extension. Raises ``jvm_errors``."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_joined(sources))
    return compiler.getClassLoader()


def _joined(sources: Sequence[str]) -> str:
    """The sources as one, because Janino compiles one at a time: the package, all imports, then the classes."""
    folder = resources("cm_delta_dagster.spark").joinpath("jvm")
    lines = [
        line
        for name in sources
        for line in folder.joinpath(f"{name}.java").read_text(encoding="utf-8").splitlines()
        if not line.startswith("package ")
    ]
    imports = sorted({line for line in lines if line.startswith("import ")})
    return "\n".join(
        ["package cm_delta_dagster;", *imports, *(line for line in lines if not line.startswith("import "))]
    )
