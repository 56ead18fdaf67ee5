"""Settings with a fixed set of values, which YAML names in lower or upper case."""

from enum import StrEnum


class SettingName(StrEnum):
    """A value of a setting: its text in any case, or its name in Python, which is the text in upper case."""

    @classmethod
    def _missing_(cls, value: object) -> "SettingName | None":
        return next((member for member in cls if isinstance(value, str) and member.value == value.lower()), None)
