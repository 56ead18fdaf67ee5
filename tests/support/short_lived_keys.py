"""A profile whose program issues keys that expire, as a company's tool for signing in does."""

from pathlib import Path

KEY_PREFIX = "AKIDSHORT"

_PROGRAM = """#!/bin/sh
echo >> "{count}"
number=$(wc -l < "{count}")
expires=$(date -u -d "+{seconds} seconds" +%Y-%m-%dT%H:%M:%SZ)
echo "{{\\"Version\\": 1, \\"AccessKeyId\\": \\"{prefix}$number\\", \\"SecretAccessKey\\": \\"s\\", \\"SessionToken\\": \\"t\\","
echo "\\"Expiration\\": \\"$expires\\"}}"
"""


def short_lived_keys(folder: Path, *, seconds: int) -> dict[str, str]:
    """Environment variables with which the profile ``short-lived`` exists; each call of its program issues another key."""
    program, profiles = folder / "issue-keys", folder / "credentials"
    program.write_text(_PROGRAM.format(count=folder / "count", seconds=seconds, prefix=KEY_PREFIX))
    program.chmod(0o755)
    profiles.write_text(f"[short-lived]\ncredential_process = {program}\n")
    return {"AWS_SHARED_CREDENTIALS_FILE": str(profiles), "AWS_CONFIG_FILE": str(folder / "no-config")}
