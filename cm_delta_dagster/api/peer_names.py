"""Names of delta-spark and deltalake that this package spells otherwise; the AttributeError says how."""

import typing
from collections.abc import Mapping


class PeerNames:
    """A base of classes whose users may know another name of a method."""

    _peer_names: typing.ClassVar[Mapping[str, str]]
    """For each name of the others, what to write here."""

    if not typing.TYPE_CHECKING:  # Type checkers would take every name for a method.

        def __getattr__(self, name: str) -> typing.NoReturn:
            here = self._peer_names.get(name)
            hint = "" if here is None else f"; write {here}"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)


TABLE_NAMES: Mapping[str, str] = {
    "toDF": "to_df()",
    "alias": "merge(frame, on, source_alias=..., target_alias=...)",
    "executeCompaction": "optimize()",
    "executeZOrderBy": "optimize(z_order_by=[...])",
    "restoreToVersion": "restore(version)",
    "restoreToTimestamp": "restore(timestamp=...)",
    "detail": "lake.sql('DESCRIBE DETAIL ...')",
    "addFeatureSupport": "alter.enable_feature(...)",
    "dropFeatureSupport": "alter.drop_feature(...)",
    "cloneAtVersion": "clone(name, version=...)",
    "cloneAtTimestamp": "clone(name, timestamp=...)",
    "to_pyarrow_table": "to_arrow()",
    "to_pandas": "to_arrow().to_pandas()",
    "load_cdf": "changes_arrow(starting_version=...)",
    "load_as_version": "snapshot(version=...), or give version= to a read",
    "create_checkpoint": "checkpoint()",
    "cleanup_metadata": "clean_log()",
    "compact_logs": "compact_log(start, end)",
    "repair": "doctor(repair=True)",
    "metadata": "snapshot().metadata",
    "protocol": "snapshot().protocol",
}
MERGE_NAMES: Mapping[str, str] = {
    "whenMatchedUpdate": "when_matched_update(assignments, condition)",
    "whenMatchedUpdateAll": "when_matched_update_all(condition)",
    "whenMatchedDelete": "when_matched_delete(condition)",
    "whenNotMatchedInsert": "when_not_matched_insert(values, condition)",
    "whenNotMatchedInsertAll": "when_not_matched_insert_all(condition)",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update(assignments, condition)",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete(condition)",
    "withSchemaEvolution": "with_schema_evolution()",
}
