"""What is mutated, and by which tests."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A package and its tests.

    Attributes:
        root: the directory of the package, of its tests and of the settings of pytest.
        package: name of the package.
        test_package: name of the directory of the tests.
        targets: files and directories whose modules are mutated, relative to ``root``.
        pytest_arguments: which tests are run.
    """

    root: Path
    package: str
    test_package: str
    targets: tuple[str, ...]
    pytest_arguments: tuple[str, ...]

    def target_files(self) -> list[str]:
        """The modules that are mutated, relative to ``root``. Raises ValueError for a target that does not exist."""
        return sorted({file for target in self.targets for file in self._files_of(target)})

    def package_files(self) -> list[str]:
        """All modules of the package, relative to ``root``."""
        return sorted(self._files_of(self.package))

    def _files_of(self, target: str) -> Iterator[str]:
        path = self.root / target
        if not path.exists():
            raise ValueError(f"{path} does not exist; name files and directories of {self.root}.")
        files = [path] if path.is_file() else path.rglob("*.py")
        yield from (str(file.relative_to(self.root)) for file in files if "versions" not in file.parts)


RATIFICATION = (
    "cm_delta_dagster/catalog/ratification.py",
    "cm_delta_dagster/catalog/commit_policy.py",
    "cm_delta_dagster/catalog/commit_rules.py",
    "cm_delta_dagster/catalog/holds.py",
    "cm_delta_dagster/catalog/rules",
    *(
        f"cm_delta_dagster/catalog/sql/{name}"
        for name in (
            "access/guard.py",
            "database/prepared.py",
            "policies/commit_policies.py",
            "policies/leases.py",
            "ratification",
            "rows/commits.py",
            "rows/definitions.py",
            "rows/effective_policy.py",
            "rows/active_checks.py",
            "rules",
        )
    ),
)
"""The modules that decide whether a commit is ratified, with which record, and under which rules."""


def this_project() -> Project:
    """The modules of this package whose mistakes lose or invent data, and the tests that start no JVM and no server."""
    protocol = tuple(f"cm_delta_dagster/protocol/{name}" for name in ("commits", "log", "features"))
    return Project(
        root=Path(__file__).parents[2],
        package="cm_delta_dagster",
        test_package="tests",
        targets=(*protocol, *RATIFICATION),
        pytest_arguments=("-m", "fast", "tests"),
    )
