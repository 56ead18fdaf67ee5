"""Frames of the files that polars reads itself, with the partition values of each file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cm_delta_dagster.arrow.plain_files import PlainColumn

if TYPE_CHECKING:
    from polars import DataFrame, Expr, LazyFrame
else:
    DataFrame = Expr = LazyFrame = Any  # So that the hints can be evaluated without the package.

_MOST_FRAMES = 128
"""A frame costs about 0.3 ms, and a value that is looked up for each row 35 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFrames:
    """Files that store the columns as they are.

    Attributes:
        dtypes: the types of the columns of the table, by name.
        columns: what to read of each file.
        values: the partition values to add, a row for each of ``paths``.
    """

    polars: ModuleType
    dtypes: Mapping[str, Any]
    columns: Sequence[PlainColumn]
    paths: Sequence[str]
    values: DataFrame

    def frames(self, conditions: Sequence[Expr]) -> Iterator[LazyFrame]:
        """The rows that satisfy the conditions, with the stored and the partition columns."""
        partitions = frozenset(self.values.columns)
        # polars applies a condition on a column that is added to the frame after all others, which then skip no row groups.
        on_stored = [item for item in conditions if not partitions & set(item.meta.root_names())]
        on_values = [item for item in conditions if partitions & set(item.meta.root_names())]
        for part, literals in self._parts():
            frame = part._stored() if literals is not None else part._looked_up()
            if on_stored:
                frame = frame.filter(*on_stored)
            if literals:
                frame = frame.with_columns(literals)
            yield frame.filter(*on_values) if on_values else frame

    def _parts(self) -> "Iterator[tuple[FileFrames, Sequence[Expr] | None]]":
        """The files with the same values and these as constants; all files and None if there are too many such parts."""
        if not self.values.columns:
            yield self, ()
            return
        groups: dict[str, list[int]] = {}
        try:
            for number, row in enumerate(self.values.iter_rows()):
                groups.setdefault(repr(row), []).append(number)
                if len(groups) > _MOST_FRAMES:
                    break
        except (OverflowError, ValueError):
            groups = {}  # Python does not have such a value.
        if not 0 < len(groups) <= _MOST_FRAMES:
            yield self, None
            return
        for numbers in groups.values():
            part = replace(self, paths=[self.paths[number] for number in numbers], values=self.values[numbers])
            yield (
                part,
                [
                    self.polars.lit(value, self.dtypes[name]).alias(name)
                    for name, value in zip(self.values.columns, self.values.row(numbers[0]), strict=True)
                ],
            )

    def _stored(self, **options: Any) -> LazyFrame:
        frame: LazyFrame = self.polars.scan_parquet(
            self.paths,
            schema={item.stored: self.dtypes[item.field.name] for item in self.columns},
            extra_columns="ignore",
            # Files of pandas and Arrow may name a category or a time zone, in which their values are stored as all others.
            cast_options=self.polars.ScanCastOptions(categorical_to_string="allow", datetime_cast="convert-timezone"),
            hive_partitioning=False,
            glob=False,
            **options,
        )
        names = {item.stored: item.field.name for item in self.columns if item.stored != item.field.name}
        return frame.rename(names) if names else frame

    def _looked_up(self) -> LazyFrame:
        """The rows with their partition values, looked up by the path of the file of each row."""
        path = "__cm_delta_file"
        while any(path in (item.stored, item.field.name) for item in self.columns) or path in self.values.columns:
            path += "_"
        values = self.values.lazy().with_columns(self.polars.Series(path, self.paths))
        return self._stored(include_file_paths=path).join(values, on=path, how="left").drop(path)
