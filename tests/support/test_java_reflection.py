"""What a name of Java stands for is asked once; values are asked each time."""

from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaPackage
from pyspark.sql import SparkSession

from tests.support.java_reflection import remembering


@pytest.fixture
def commands(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that the JVM gets, by a memory that is empty."""
    client: Any = spark.sparkContext._gateway._gateway_client
    sent: list[str] = []
    send = client.send_command

    def noted(command: str, *arguments: Any, **keywords: Any) -> str:
        sent.append(command)
        return str(send(command, *arguments, **keywords))

    monkeypatch.setattr(client, "send_command", remembering(noted))
    return sent


def test_packages_classes_and_static_methods_are_asked_once(spark: SparkSession, commands: list[str]) -> None:
    jvm: Any = spark.sparkContext._jvm
    assert [jvm.java.lang.Integer.parseInt("7") for _ in range(3)] == [7, 7, 7]
    # Not what py4j says meanwhile about objects that Python no longer has.
    asked = [command[0] for command in commands if command.startswith(("r", "c"))]
    assert asked == ["r"] * 4 + ["c"] * 3


def test_fields_inner_classes_and_unknown_classes_are_asked_each_time(spark: SparkSession, commands: list[str]) -> None:
    jvm: Any = spark.sparkContext._jvm
    for _ in range(2):
        assert jvm.java.lang.Integer.MAX_VALUE == 2**31 - 1
        assert isinstance(jvm.java.util.Map.Entry, JavaClass)
        assert isinstance(jvm.no.such.Name, JavaPackage)
    members = [command for command in commands if command.startswith("r\nm")]
    assert len(members) == 4
    assert len([command for command in commands if "no.such.Name" in command]) == 2
