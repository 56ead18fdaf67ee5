"""Answers of the JVM about names of Java, which do not change while it runs.

For ``jvm.org.apache.spark.sql.functions.col``, py4j asks the JVM at each dot what the name stands for, each time. That is a
twelfth of the time of the tests.
"""

from collections.abc import Callable
from typing import Any

from py4j import protocol
from pyspark.sql import SparkSession

_PACKAGE_OR_CLASS = protocol.REFLECTION_COMMAND_NAME + protocol.REFL_GET_UNKNOWN_SUB_COMMAND_NAME
_MEMBER_OF_CLASS = protocol.REFLECTION_COMMAND_NAME + protocol.REFL_GET_MEMBER_SUB_COMMAND_NAME
_STATIC_METHOD = protocol.SUCCESS + protocol.METHOD_TYPE


def remember_reflection(session: SparkSession) -> None:
    """Ask the JVM of the session only once what a name stands for."""
    client: Any = session.sparkContext._gateway._gateway_client
    client.send_command = remembering(client.send_command)


def remembering(send_command: Callable[..., str]) -> Callable[..., str]:
    """``send_command``, without the commands whose answer is known and lasts.

    Values of fields change. A name that is not known counts as a package until its class is loaded: what looks like a class is
    remembered when it is one.
    """
    answers: dict[str, str] = {}

    def send(command: str, *arguments: Any, **keywords: Any) -> str:
        if not command.startswith((_PACKAGE_OR_CLASS, _MEMBER_OF_CLASS)):
            return send_command(command, *arguments, **keywords)
        answer = answers.get(command)
        if answer is None:
            answer = send_command(command, *arguments, **keywords)
            if _lasts(command, answer):
                answers[command] = answer
        return answer

    return send


def _lasts(command: str, answer: str) -> bool:
    if command.startswith(_MEMBER_OF_CLASS):
        return answer.startswith(_STATIC_METHOD)
    name = command.splitlines()[2].rpartition(".")[2]
    return answer.startswith(protocol.SUCCESS_CLASS) or (answer == protocol.SUCCESS_PACKAGE and name.islower())
