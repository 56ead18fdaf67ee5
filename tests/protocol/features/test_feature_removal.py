"""Which features can be dropped from a table, and what stays of them."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.feature_removal import FilesOfTable, without_catalog_managed, without_feature
from cm_delta_dagster.protocol.features.protocol_evolution import catalog_managed_protocol, with_features
from cm_delta_dagster.protocol.features.table_features import FEATURES, FeatureKind, supports
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType, schema_to_json

_NO_FILES, _FILES = FilesOfTable(files=0, deletion_vectors=0), FilesOfTable(files=2, deletion_vectors=0)


def _table(*features: str, properties: dict[str, str] | None = None, **metadata: object) -> TableDefinition:
    schema = StructType((StructField("a", LONG), StructField("b", LONG, True, metadata)))
    return TableDefinition(
        protocol=with_features(catalog_managed_protocol(), features),
        metadata=Metadata(id="x", schema_string=schema_to_json(schema), configuration=properties or {}),
    )


@pytest.mark.requirements("TF-14")
@pytest.mark.parametrize(
    ("feature", "unused", "used", "files", "message"),
    [
        (
            "checkConstraints",
            _table("checkConstraints"),
            _table("checkConstraints", properties={"delta.constraints.positive": "a > 0"}),
            _NO_FILES,
            "has the constraints positive",
        ),
        (
            "allowColumnDefaults",
            _table("allowColumnDefaults"),
            _table("allowColumnDefaults", CURRENT_DEFAULT="1"),
            _NO_FILES,
            "the columns b have defaults",
        ),
        (
            "columnMapping",
            _table("columnMapping"),
            _table("columnMapping", properties={"delta.columnMapping.mode": "name"}),
            _NO_FILES,
            "physical names",
        ),
        (
            "typeWidening",
            _table("typeWidening"),
            _table("typeWidening", **{"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}),
            _FILES,
            "earlier types of b",
        ),
    ],
    ids=["constraints", "defaults", "mapping", "widening"],
)
def test_a_feature_that_the_table_uses_stays(
    feature: str, unused: TableDefinition, used: TableDefinition, files: FilesOfTable, message: str
) -> None:
    changed = without_feature(unused, feature, files).protocol
    assert not supports(changed, feature)
    needs_protection = FEATURES[feature].kind is FeatureKind.READER_WRITER
    assert supports(changed, "checkpointProtection") is needs_protection
    with pytest.raises(InvalidArgumentError, match=f"{message}.*Nothing was changed"):
        without_feature(used, feature, files)


@pytest.mark.requirements("TF-14")
@pytest.mark.parametrize(
    ("feature", "files", "message"),
    [
        ("deletionVectors", FilesOfTable(files=3, deletion_vectors=1), "1 files have a deletion vector"),
        ("clustering", FilesOfTable(files=0, deletion_vectors=0, is_clustered=True), "has clustering columns"),
        ("domainMetadata", FilesOfTable(files=0, deletion_vectors=0, domains=("mine",)), "domains mine"),
        (
            "domainMetadata",
            FilesOfTable(files=0, deletion_vectors=0, domains=("delta.x",)),
            "delta.x belong to features",
        ),
        ("domainMetadata", FilesOfTable(files=0, deletion_vectors=0, domains=("delta.rowTracking",)), "given twice"),
    ],
)
def test_a_feature_that_files_or_domains_need_stays(feature: str, files: FilesOfTable, message: str) -> None:
    assert not supports(without_feature(_table(feature), feature, _FILES).protocol, feature)
    with pytest.raises(InvalidArgumentError, match=message):
        without_feature(_table(feature), feature, files)


@pytest.mark.requirements("TF-11", "TF-14")
@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("unheardOf", "does not know it"),
        ("columnMapping", "the table does not have it"),
        ("inCommitTimestamp", "a catalog-managed table needs it"),
        ("v2Checkpoint", "a catalog-managed table needs it"),
        ("domainMetadata", "rowTracking need"),
        ("timestampNtz", "is not supported"),
    ],
)
def test_other_features_stay(feature: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        without_feature(_table("rowTracking", "timestampNtz", "v2Checkpoint"), feature, _NO_FILES)


def test_dropped_features_leave_nothing_in_the_metadata() -> None:
    table = _table(
        "typeWidening",
        "rowTracking",
        "domainMetadata",
        properties={
            "delta.enableTypeWidening": "true",
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_row-id",
            "mine": "stays",
        },
        **{"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]},
    )
    table = without_feature(without_feature(table, "typeWidening", _NO_FILES), "rowTracking", _NO_FILES)
    assert table.metadata.configuration == {"mine": "stays"}
    assert [item.metadata for item in table.schema.fields] == [{}, {}]


@pytest.mark.requirements("CM-1")
def test_a_table_that_leaves_its_catalog_keeps_its_timestamps() -> None:
    left = without_catalog_managed(_table(properties={"io.unitycatalog.tableId": "x"}))
    assert left.metadata.configuration == {}
    listed = {
        name: supports(left.protocol, name) for name in ("catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp")
    }
    assert listed == {"catalogManaged": False, "vacuumProtocolCheck": False, "inCommitTimestamp": True}
