"""Tables in S3 through Spark at unusual places: odd names, the root of a bucket, two servers, keys that expire.

Prints one JSON object with what it saw.
"""

import json
import sys
import tempfile
import time
import urllib.request
from typing import Any

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.stores.hadoop_options import hadoop_options
from tests.spark.s3_worker import ids, session

ODD = "ä b+c#d?e&f=g/データ"
VALUES = ["a b", "a+b", "a%20b", "a%b", "a#b", "a?b", "a&b=c", "a/b", "ü", "データ", "'", '"', ":", "~", "*"]


def main(jars: str, first: str, second: str, bucket: str) -> None:
    spark = session(jars, "local[2]")
    here = {"key": "AKIDFIRST", "secret": "s", "endpoint_url": first}
    there = {"key": "AKIDSECOND", "secret": "s", "endpoint_url": second}
    with tempfile.TemporaryDirectory() as home:
        seen = {
            "odd names": odd_names(spark, home, bucket, here),
            "root": root(spark, home, f"{bucket}-root", here),
            "two stores": two_stores(spark, home, bucket, here, there),
            "renewed": renewed(spark, home, f"{bucket}-renewed", first),
            "wrong key": wrong_key(spark, f"{bucket}-root", here),
        }
    print(json.dumps(seen))
    spark.stop()


def odd_names(spark: SparkSession, home: str, bucket: str, options: dict[str, Any]) -> list[Any]:
    with connect(
        f"sqlite:///{home}/odd.db", warehouse=f"s3://{bucket}//{ODD}/", storage_options=options, spark=spark
    ) as lake:
        escaped = ", ".join("'{}'".format(value.replace("'", "\\'")) for value in VALUES)
        rows = spark.sql(f"SELECT posexplode(array({escaped})) AS (id, p)").selectExpr("CAST(id AS LONG) id", "p")
        table = lake.create_table_as("main.größe.daten", rows, partition_by=["p"])
        table.append(rows.selectExpr("id + 100 AS id", "p"))
        table.upsert(rows.where("id < 3").selectExpr("id + 200 AS id", "p"), on=["id"])
        table.delete("id >= 100 AND id < 200")
        for value in VALUES:
            assert ids(table.to_df(where="p = '{}'".format(value.replace("'", "''"))))[0] == VALUES.index(value), value
        found = sorted([row["id"], row["p"]] for row in table.to_df().collect())
        by_arrow = sorted([row["id"], row["p"]] for row in table.to_arrow().to_pylist())
        lake.maintenance.set_policy("main", "DATA_REORGANIZATION", reason="a test")
        table.optimize()
        after = sorted([row["id"], row["p"]] for row in table.to_df().collect())
        by_path = [lake.path_table(path).location for path in path_spellings(lake, bucket)]
        return [found, found == by_arrow == after, sorted(set(by_path)) == [f"s3://{bucket}/{ODD}/foreign"]]


def path_spellings(lake: Connection, bucket: str) -> list[str]:
    """Spellings of the location of a table that another writer has copied."""
    store = lake.client.stores.store_for(f"s3://{bucket}")
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": {},
    }
    metadata["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    actions = ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata})
    content = "".join(f"{json.dumps(action)}\n" for action in actions)
    store.write(f"s3://{bucket}/{ODD}/foreign/_delta_log/{0:020}.json", content.encode())
    return [
        f"{scheme}://{bucket}/{ODD}/foreign{end}" for scheme in ("s3", "s3a", "s3n", "S3A") for end in ("", "/")
    ] + [f"s3://{bucket}//{ODD}//foreign"]


def root(spark: SparkSession, home: str, bucket: str, options: dict[str, Any]) -> list[Any]:
    """The warehouse is a whole bucket."""
    for warehouse in (f"s3a://{bucket}/", f"s3://{bucket}"):
        with connect(f"sqlite:///{home}/root.db", warehouse=warehouse, storage_options=options, spark=spark) as lake:
            lake.create_table_as("main.sales.t", spark.range(3))
            found = [lake.table("main.sales.t").location, ids(lake.table("main.sales.t").to_df())]
    return found


def two_stores(spark: SparkSession, home: str, bucket: str, here: dict[str, Any], there: dict[str, Any]) -> list[Any]:
    """One session and one catalog, and tables on two servers with different keys; one is outside of the warehouse."""
    options = {f"s3://{bucket}": here, f"s3://{bucket}-other": there}
    catalog = f"sqlite:///{home}/two.db"
    with connect(catalog, warehouse=f"s3://{bucket}/two", storage_options=options, spark=spark) as lake:
        lake.create_table_as("main.sales.one", spark.range(5).selectExpr("id", "'one' AS name"))
    with connect(catalog, warehouse=f"s3://{bucket}-other/two", storage_options=options, spark=spark) as lake:
        one = lake.table("main.sales.one")
        other = lake.create_table_as("main.sales.other", one.to_df().where("id > 2"))
        other.append(spark.range(7, 9).selectExpr("id", "'other' AS name"))
        one.upsert(other.to_df(), on=["id"])
        other.upsert(one.to_df(), on=["id"])
        joined = one.to_df().join(other.to_df(), "id").count()
        places = [lake.table(name).location.partition("/two/")[0] for name in lake.tables()]
        return [ids(one.to_df()), ids(other.to_df()), joined, places]


def renewed(spark: SparkSession, home: str, bucket: str, endpoint: str) -> list[int]:
    """Keys of a profile whose program issues new ones; each expires after seconds."""
    options = {"profile": "short-lived", "endpoint_url": endpoint}
    catalog = f"sqlite:///{home}/renewed.db"
    with connect(catalog, warehouse=f"s3://{bucket}/w", storage_options=options, spark=spark) as lake:
        table = lake.create_table_as("main.sales.t", spark.range(3))
        for number in range(2):
            time.sleep(3)  # The keys of the session before have to be renewed.
            table.append(spark.range(number + 3, number + 4))
        return ids(table.to_df())


def wrong_key(spark: SparkSession, bucket: str, options: dict[str, Any]) -> str:
    """The error of a read by Spark alone, whose key the server does not know."""
    places = hadoop_options(f"s3://{bucket}/t", {**options, "key": "AKIDWRONG"})
    assert places is not None

    def check_after(requests: str) -> None:
        headers = {"Content-Type": "text/plain"}
        address = f"{options['endpoint_url']}/moto-api/reset-auth"
        urllib.request.urlopen(urllib.request.Request(address, data=requests.encode(), headers=headers)).close()

    check_after("0")
    try:
        with spark_errors("reading rows"):
            reader = spark.read.options(**places.settings, **{"fs.s3a.impl.disable.cache": "true"})
            reader.parquet(f"s3a://{bucket}/main").count()
    except CmDeltaError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        check_after("inf")
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
