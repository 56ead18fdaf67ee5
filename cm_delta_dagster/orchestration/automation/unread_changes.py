"""The automation condition that holds while an upstream asset has data that the asset has not read.

Dagster's conditions hold if something changed since the previous evaluation, and forget it when the asset is requested or
materialized. A change that is stored while the run works, after the run has read, is forgotten with it. This condition compares
what the last materialization has read with the newest events of the upstream assets. A change that one evaluation does not see
is seen by the next one.

All partitions are compared at the first evaluation and after the partitions or the upstream assets have changed. Otherwise those
are compared that have new events, or depend on upstream partitions that have.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
from dagster._core.definitions.events import AssetKeyPartitionKey

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.runs.asset_events import AssetEvents, Consumption, NewestEvents, Partition
from cm_delta_dagster.orchestration.runs.versions_read import TableVersion

_LATE_EVENTS = 1000
"""Events are stored concurrently, so one can become visible after others with a higher id. So many ids before the newest one that
the previous evaluation saw, events count as new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """What the condition knows from the previous evaluation.

    Attributes:
        baseline: the id of the newest event at the first evaluation. Earlier changes do not count for a partition that was never
            materialized.
        seen: the last event of each asset at the previous evaluation.
        partitions: identifies the partitions that the asset had.
        unread: for the partitions with unread data, the id of the newest event that was not read.
        requested: for those that were requested, the id at the request: another request needs a later event.
    """

    baseline: int
    seen: Mapping[str, int] = field(default_factory=dict)
    partitions: str = ""
    unread: Mapping[Partition, int] = field(default_factory=dict)
    requested: Mapping[Partition, int] = field(default_factory=dict)

    @classmethod
    def load(cls, cursor: str | None, newest_id: int) -> "_Memory":
        """What the cursor stores; a new memory for none, and for one that another release has stored in another form."""
        try:
            stored = json.loads(cursor or "{}")
            return cls(
                baseline=stored["baseline"],
                seen=stored["seen"],
                partitions=stored["partitions"],
                unread=dict(stored["unread"]),
                requested=dict(stored["requested"]),
            )
        except (KeyError, TypeError, ValueError):
            return cls(baseline=newest_id)

    def dump(self) -> str:
        pairs = {"unread": list(self.unread.items()), "requested": list(self.requested.items())}
        others = {"baseline": self.baseline, "seen": self.seen, "partitions": self.partitions}
        return json.dumps({**others, **pairs}, separators=(",", ":"))


@dataclass(frozen=True, eq=False)
class UnreadChanges(dg.AutomationCondition[dg.AssetKey]):
    """Holds for the partitions whose upstream partitions have data that they have not read and were not yet requested for.

    Attributes:
        upstream: the upstream assets that count; None for all.
    """

    upstream: dg.AssetSelection | None = None

    @property
    def name(self) -> str:
        return "unread_changes"

    @property
    def description(self) -> str:
        return "An upstream asset has data that the last materialization has not read"

    def evaluate(self, context: Any) -> dg.AutomationResult[dg.AssetKey]:
        """Compare the events. If there is no new event, what the previous evaluation found still holds."""
        view, key = context.asset_graph_view, context.key
        memory = _with_requests(_Memory.load(context.cursor, context.max_storage_id or 0), context)
        comparison = _ReadComparison.begin(context, self._parents(context))
        if (comparison.seen, comparison.partitions) != (memory.seen, memory.partitions):
            unread = dict(comparison.unread(memory))
            memory = replace(
                memory,
                seen=comparison.seen,
                partitions=comparison.partitions,
                unread=unread,
                requested={partition: at for partition, at in memory.requested.items() if partition in unread},
            )
        due = {
            AssetKeyPartitionKey(key, partition)
            for partition, newest in memory.unread.items()
            if newest > memory.requested.get(partition, -1)
        }
        subset = view.get_asset_subset_from_asset_partitions(key, due, validate_existence=True)
        due_subset = context.candidate_subset.compute_intersection(subset)
        return dg.AutomationResult(context, due_subset, cursor=memory.dump())

    def _parents(self, context: Any) -> list[dg.AssetKey]:
        graph = context.asset_graph
        parents = {key for key in graph.get(context.key).parent_keys if graph.has(key) and key != context.key}
        if self.upstream is not None:
            parents &= self.upstream.resolve(graph, allow_missing=True)
        return sorted(parents)


def holds_unread_changes(condition: dg.AutomationCondition[Any]) -> bool:
    """Whether the condition contains :class:`UnreadChanges`, which only a sensor of the code location can evaluate."""
    return isinstance(condition, UnreadChanges) or any(map(holds_unread_changes, condition.children))


def _with_requests(memory: _Memory, context: Any) -> _Memory:
    """The memory, with what the previous evaluation requested."""
    requested = context.get_previous_requested_subset(context.key)
    if requested is None or not memory.unread:
        return memory
    keys = _keys(requested)
    handled = {partition: newest for partition, newest in memory.unread.items() if partition in keys}
    return replace(memory, requested={**memory.requested, **handled})


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadComparison:
    """What the partitions of an asset have read, against the events of its upstream assets.

    Attributes:
        seen: the last event of each asset. It is read before the events themselves: an event that is stored in between makes the
            next evaluation compare again.
    """

    context: Any
    parents: list[dg.AssetKey]
    events: AssetEvents
    seen: Mapping[str, int]
    partitions: str

    @classmethod
    def begin(cls, context: Any, parents: list[dg.AssetKey]) -> "_ReadComparison":
        events = AssetEvents(context.asset_graph_view.instance, context.asset_graph)
        last = events.last_ids([context.key, *parents])
        return cls(
            context=context,
            parents=parents,
            events=events,
            seen={key.to_user_string(): event_id for key, event_id in last.items()},
            partitions=_identity_of_partitions(context.asset_graph_view, context.key),
        )

    def unread(self, memory: _Memory) -> Iterator[tuple[Partition, int]]:
        """The partitions with unread data, and the id of the newest event of it.

        Raises:
            InvalidArgumentError: an upstream asset has events of partitions, and is defined here without partitions.
        """
        own = self.events.newest(self.context.key).ids
        newest = {parent: self._newest(parent) for parent in self.parents}
        compared = self._compared(memory, own, newest)
        reads = self.events.consumption(self.context.key, {key: own[key] for key in compared if key in own})
        upstream_of = {parent: self._mapping(parent) for parent in self.parents}
        for partition in compared:
            read = reads.get(partition)
            ids = [
                newest[parent].ids[upstream]
                for parent in self.parents
                for upstream in upstream_of[parent](partition)
                if upstream in newest[parent].ids and _is_unread(self.events, parent, newest[parent], upstream, read)
            ]
            newest_id = max(ids, default=memory.baseline)
            if read is not None and read.is_partial:
                # The rest was requested before and is due again: the materialization that left it unread is an event too.
                newest_id = max(newest_id, read.event_id)
            if ids and (read is not None or newest_id > memory.baseline):
                yield partition, newest_id

    def _newest(self, parent: dg.AssetKey) -> NewestEvents:
        newest = self.events.newest(parent)
        if newest.undefined is not None and self.events.is_partitioned(self.context.key):
            name, own = parent.to_user_string(), self.context.key.to_user_string()
            raise InvalidArgumentError(
                f"The newest event of {name} is of its partition {newest.undefined!r}, and {name} is defined in this code location "
                f"without partitions, so that each change would request all partitions of {own}. Nothing was requested. Define "
                f"{name} in this code location with its partitions, e.g. dg.AssetSpec(..., partitions_def=...), or leave it out "
                "with 'upstream'."
            )
        return newest

    def _compared(
        self, memory: _Memory, own: Mapping[Partition, int], newest: Mapping[dg.AssetKey, NewestEvents]
    ) -> set[Partition]:
        """The partitions for which the answer can differ from that of the previous evaluation, and those with unread data."""
        view, key = self.context.asset_graph_view, self.context.key
        if self.partitions != memory.partitions or self.seen.keys() != memory.seen.keys():
            return _keys(view.get_full_subset(key=key))
        floor = max(memory.seen.values()) - _LATE_EVENTS
        partitions = _keys(
            self._subset(key, {*memory.unread, *(partition for partition, last in own.items() if last > floor)})
        )
        for parent, events in newest.items():
            changed = self._subset(parent, (partition for partition, last in events.ids.items() if last > floor))
            if not changed.is_empty:
                partitions |= _keys(changed.compute_mapped_subset(key, direction="down"))
        return partitions if self.events.is_partitioned(key) else {None}

    def _mapping(self, parent: dg.AssetKey) -> Callable[[Partition], set[Partition]]:
        """Returns the partitions of an upstream asset that a partition depends on.

        An asset without partitions also depends on changes of unknown partitions, whose events have none.
        """

        def upstream_of(partition: Partition) -> set[Partition]:
            subset = self._subset(self.context.key, (partition,))
            upstream = _keys(subset.compute_mapped_subset(parent, direction="up"))
            return {None, *upstream} if partition is None else upstream

        return upstream_of

    def _subset(self, key: dg.AssetKey, partitions: Iterable[Partition]) -> Any:
        """Those of the partitions that the asset still has."""
        partitioned = self.events.is_partitioned(key)
        pairs = {
            AssetKeyPartitionKey(key, partition) for partition in partitions if (partition is not None) is partitioned
        }
        view = self.context.asset_graph_view
        return view.get_asset_subset_from_asset_partitions(key, pairs, validate_existence=True)


def _identity_of_partitions(view: Any, key: dg.AssetKey) -> str:
    """Changes with the partitions of the asset: Dagster's identifier of a time-partitioned asset does not change with time."""
    definition = view.asset_graph.get(key).partitions_def
    if definition is None:
        return ""
    return f"{view.get_full_subset(key=key).size}:{definition.get_serializable_unique_identifier()}"


def _keys(subset: Any) -> set[Partition]:
    if subset.is_empty:
        return set()
    return set(subset.expensively_compute_partition_keys()) if subset.is_partitioned else {None}


def _is_unread(
    events: AssetEvents, parent: dg.AssetKey, newest: NewestEvents, partition: Partition, read: Consumption | None
) -> bool:
    """Whether the newest event of an upstream partition has data that a materialization has not read."""
    if read is None:
        return True
    event_id, data_version = newest.ids[partition], newest.data_versions.get(partition)
    name = parent.to_user_string()
    version, current = read.versions.get(name), TableVersion.of_data_version(data_version)
    if version is not None and current is not None:
        return not version.includes(current)
    # A materialization that does not say what it has read is taken to have read what was stored before it.
    known = read.events.get(name, read.event_id)
    if event_id <= known or (read.run_id and events.run_of(parent, event_id) == read.run_id):
        return False
    return data_version is None or data_version != events.data_versions_before(parent, known).get(partition)
