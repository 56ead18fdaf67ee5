import dagster as dg, pytest
from .log_tables import commit, make_table, report
from .sensor_bench import KEY, NAME, Ticker, a_run, finish, own, record_by_run, sensor_of
from .test_partition_events import launching, requests_of, p, watched, LETTERS
pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

@pytest.fixture
def table(catalog):
    return make_table(catalog.client, NAME, by={"p": "string"})

def test_partial(catalog, table, instance):
    t = launching(catalog, instance)
    run = a_run(instance, tags={"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"})
    version = commit(table, tags={**own(run), "dagster/partition_key": "a,b"}, partitions=p("a", "b"))
    record_by_run(instance, run.run_id, table, version, partition="a")
    first = requests_of(t.tick())
    record_by_run(instance, run.run_id, table, version, partition="b")
    finish(instance, run)
    second = requests_of(t.tick())
    assert {x[1] for x in first + second} == {"a", "b"}

def test_gone_dynamic(catalog, instance):
    tenants = dg.DynamicPartitionsDefinition(name="tenants")
    table = make_table(catalog.client, NAME, by={"p": "string"})
    @dg.asset(key=["s", "down"], partitions_def=tenants, deps=[KEY])
    def down(): ...
    job = dg.define_asset_job("downstream", selection=[down])
    w = watched(tenants)
    sensor = sensor_of(assets=[w], job=job)
    defs = dg.Definitions(assets=[down, w], jobs=[job], sensors=[sensor], resources={"catalog": catalog})
    t = Ticker(sensor, catalog, instance, defs)
    instance.add_dynamic_partitions("tenants", ["acme", "bb"])
    run = a_run(instance, tags={"dagster/partition": "acme"})
    version = commit(table, tags={**own(run), "dagster/partition_key": "acme"}, partitions=p("acme"))
    record_by_run(instance, run.run_id, table, version, partition="acme")
    instance.delete_dynamic_partition("tenants", "acme")
    print(requests_of(t.tick()))

def test_self_feed(catalog, instance):
    table = make_table(catalog.client, NAME)
    other = dg.AssetKey(["s", "u"])
    @dg.asset(key=["s", "down"])
    def down(): ...
    job = dg.define_asset_job("downstream", selection=[down])
    sensor = sensor_of(assets={KEY: NAME, other: NAME}, job=job)
    t = Ticker(sensor, catalog, instance, dg.Definitions(assets=[down], jobs=[job], sensors=[sensor], resources={"catalog": catalog}))
    run = a_run(instance, tags={"dagster/sensor_name": "commits"})
    v = commit(table, tags=own(run))
    record_by_run(instance, run.run_id, table, v)
    assert requests_of(t.tick()) == []

def test_lost_self_feed(catalog, instance):
    table = make_table(catalog.client, NAME)
    @dg.asset(key=["s", "down"])
    def down(): ...
    job = dg.define_asset_job("downstream", selection=[down])
    sensor = sensor_of(job=job)
    t = Ticker(sensor, catalog, instance, dg.Definitions(assets=[down], jobs=[job], sensors=[sensor], resources={"catalog": catalog}))
    run = a_run(instance, tags={"dagster/sensor_name": "commits"})
    v = commit(table, tags=own(run))
    finish(instance, run)
    assert requests_of(t.tick()) == []

def test_dynamic_launch_works(catalog, instance):
    tenants = dg.DynamicPartitionsDefinition(name="tenants")
    table = make_table(catalog.client, NAME, by={"p": "string"})
    @dg.asset(key=["s", "down"], partitions_def=tenants, deps=[KEY])
    def down(): ...
    job = dg.define_asset_job("downstream", selection=[down])
    w = watched(tenants)
    sensor = sensor_of(assets=[w], job=job)
    defs = dg.Definitions(assets=[down, w], jobs=[job], sensors=[sensor], resources={"catalog": catalog})
    t = Ticker(sensor, catalog, instance, defs)
    instance.add_dynamic_partitions("tenants", ["acme", "bb"])
    commit(table, partitions=p("acme"))
    print(requests_of(t.tick()))
