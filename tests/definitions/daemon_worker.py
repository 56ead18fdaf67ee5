"""What the daemon would do next on the demo's instance. Prints one JSON object."""

import json

import dagster as dg

from definitions.definitions import defs
from definitions.defs.automation import commit_sensor
from definitions.defs.flights import flights_enriched


def main() -> None:
    loaded = defs()
    with dg.DagsterInstance.get() as instance:
        (state,) = [state for state in instance.all_instigator_state() if state.instigator_name == commit_sensor.name]
        with dg.build_sensor_context(
            instance=instance,
            cursor=state.instigator_data.cursor,
            resources=dict(loaded.resources or {}),
            definitions=loaded,
        ) as context:
            tick = commit_sensor.evaluate_tick(context)
        selection = dg.AssetSelection.assets(flights_enriched.key)
        follow = dg.evaluate_automation_conditions(loaded, instance, asset_selection=selection)
        seen = {
            "running": state.is_running,
            "events": len(tick.asset_events),
            "runs": len(tick.run_requests or ()),
            "joined": follow.total_requested,
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
