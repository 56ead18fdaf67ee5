"""Names of delta-spark and deltalake for methods that have another name here."""

from collections.abc import Mapping

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
