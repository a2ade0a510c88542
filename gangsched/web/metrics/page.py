"""Metrics: all counts under the names, labels and buckets that dashboards know.

Lives here: one table from numbers to Prometheus families, and their text. Not here: how a family is made
(`families`), counting (`measures`), reading state (`reading`). Nothing is kept between two scrapes.
Changing numbers are copied on the scheduler's loop; the text is made in a thread, because in a large cluster
that may take longer than a turn.
Sources of the names: kubernetes `pkg/scheduler/metrics`, component-base `metrics/prometheus`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from gangsched import __version__
from gangsched.web.metrics.families import counter_family, gauge_family, histogram_family
from gangsched.web.metrics.loads import Loads
from gangsched.web.metrics.measures import Measures
from gangsched.web.metrics.queueing_families import queueing_families
from gangsched.web.metrics.queues_families import queues_families
from gangsched.web.metrics.reading import Reading

PLAIN_TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class _Taken:
    """A collector of values copied earlier."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def measured(measures: Measures) -> list[Metric]:
    """The measures' current values."""
    return [*_attempts(measures), *_group_attempts(measures), *_points_and_queues(measures)]


def format_for(accept: str) -> str:
    """Returns the format of /metrics for an Accept header; only OpenMetrics has exemplars."""
    asked = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return OPENMETRICS if "application/openmetrics-text" in asked else PLAIN_TEXT


def text(families: Iterable[Metric], reading: Reading, *, content_type: str = PLAIN_TEXT) -> bytes:
    """The body of /metrics; may be called from a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Taken([*families, *_read(reading)]))
    ProcessCollector(registry=registry)
    if content_type == OPENMETRICS:
        body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return body
    return generate_latest(registry)


BY_RESULT = ("result", "profile")


def _attempts(measures: Measures) -> Iterator[Metric]:
    attempts = measures.attempts
    yield counter_family(
        "scheduler_schedule_attempts",
        "Attempts to schedule pods, by result: scheduled, unschedulable, or error (ours or a plugin's).",
        BY_RESULT,
        {labels: of.n for labels, of in attempts.items()},
    )
    yield histogram_family(
        "scheduler_scheduling_attempt_duration_seconds",
        "From the start of an attempt to its verdict, or to the answer to the pod's bind.",
        BY_RESULT,
        attempts,
    )
    yield histogram_family(
        "scheduler_scheduling_algorithm_duration_seconds",
        "Deciding about a pod; the members of a group share the time that their decision took.",
        (),
        {(): measures.algorithm},
    )
    yield histogram_family(
        "scheduler_pod_scheduling_attempts",
        "Attempts that it took to schedule a pod.",
        (),
        {(): measures.pod_attempts},
    )
    yield histogram_family(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "From the moment a pod could be scheduled (its group was complete) to the answer to its bind.",
        ("attempts",),
        {(label,): of for label, of in measures.sli.items()},
    )


def _group_attempts(measures: Measures) -> Iterator[Metric]:
    groups = measures.group_attempts
    yield counter_family(
        "scheduler_podgroup_schedule_attempts",
        "Attempts to schedule pod groups, by result.",
        BY_RESULT,
        {labels: of.n for labels, of in groups.items()},
    )
    yield histogram_family(
        "scheduler_podgroup_scheduling_attempt_duration_seconds",
        "From the start of a pod group's attempt to its verdict.",
        BY_RESULT,
        groups,
    )
    yield histogram_family(
        "scheduler_podgroup_scheduling_algorithm_duration_seconds",
        "Deciding about a pod group.",
        (),
        {(): measures.group_algorithm},
    )


def _points_and_queues(measures: Measures) -> Iterator[Metric]:
    yield histogram_family(
        "scheduler_framework_extension_point_duration_seconds",
        "Running all plugins of an extension point, for all nodes at once.",
        ("extension_point", "status", "profile"),
        measures.points,
    )
    yield histogram_family(
        "scheduler_plugin_execution_duration_seconds",
        "One call of a plugin, for all nodes that it is asked about; of one attempt in ten.",
        ("plugin", "extension_point", "status"),
        measures.plugins,
    )
    yield counter_family(
        "scheduler_plugin_evaluation",
        "Calls of a plugin.",
        ("plugin", "extension_point", "profile"),
        measures.evaluations,
    )
    yield counter_family(
        "scheduler_queue_incoming_pods",
        "Pods that came into a queue, by what brought them there.",
        ("queue", "event"),
        measures.incoming,
    )
    yield counter_family(
        "scheduler_preemption_attempts",
        "Searches for pods of lower priority to preempt.",
        (),
        {(): measures.n_preemption_attempts},
    )
    yield histogram_family(
        "scheduler_preemption_victims",
        "Victims of one preemption, by a pod or a gang.",
        (),
        {(): measures.victims},
    )
    yield histogram_family(
        "scheduler_permit_wait_duration_seconds",
        "How long pods were reserved and waited in Permit, by how that ended.",
        ("result",),
        {(label,): of for label, of in measures.permit_wait.items()},
    )
    yield histogram_family(
        "gangsched_event_loop_lag_seconds",
        "How late the event loop was for a timer, four times a second.",
        (),
        {(): measures.lag},
    )


def _read(reading: Reading) -> Iterator[Metric]:
    yield gauge_family(
        "scheduler_pending_pods",
        "Pods that wait: active, backoff, unschedulable (also while their victims leave), gated, incomplete"
        " (their gang still gathers).",
        ("queue",),
        {(queue,): n for queue, n in reading.pending.items()},
    )
    yield gauge_family(
        "gangsched_oldest_waiting_seconds",
        "Age of the oldest group that waits, by queue: since all its members existed, or since it began to"
        " gather; of one that runs already, since the first member that waits was created.",
        ("queue",),
        {(queue,): age_s for queue, age_s in reading.oldest_s.items()},
    )
    yield gauge_family(
        "scheduler_unschedulable_pods",
        "Unschedulable pods by the plugins that rejected them; a pod counts for each of them.",
        ("plugin", "profile"),
        reading.unschedulable,
    )
    sizes = {"nodes": reading.n_nodes, "pods": reading.n_pods, "assumed_pods": reading.n_assumed}
    yield gauge_family(
        "scheduler_cache_size",
        "Nodes, pods and assumed pods in the cache.",
        ("type",),
        {(kind,): n for kind, n in sizes.items()},
    )
    yield gauge_family(
        "leader_election_master_status",
        "1 on the replica that leads, by the Lease's name.",
        ("name",),
        {(name,): n for name, n in reading.leader.items()},
    )
    yield counter_family(
        "rest_client_requests",
        "Answers to requests to the API server; the code is <error> where there was none.",
        ("code", "method", "host"),
        {(*labels, reading.host): n for labels, n in reading.requests.items()},
    )
    yield from _promises(reading)
    yield from _devices(reading)
    yield from _resource_claims(reading)
    yield from _configuration(reading)
    yield from load_families(reading.loads)
    if reading.queueing is not None:
        yield from queueing_families(reading.queueing)
    if reading.queues.queues:
        yield from queues_families(reading.queues)


def _promises(reading: Reading) -> Iterator[Metric]:
    """Metrics of gangs and their binds, and of broken guarantees."""
    yield gauge_family(
        "gangsched_reservations",
        "Pods that hold a node and devices and are not known to be bound yet.",
        (),
        {(): reading.n_assumed},
    )
    yield gauge_family(
        "gangsched_partial_gangs",
        "Gangs bound in part with no bind in flight: must be 0, except for moments.",
        (),
        {(): reading.n_partial_gangs},
    )
    yield gauge_family(
        "gangsched_wounded_gangs",
        "Gangs that have started, and have lost members: they run with fewer than they need.",
        (),
        {(): reading.n_wounded_gangs},
    )
    yield counter_family(
        "gangsched_rank_distance",
        "Distances from rank to rank, added up as gangs start: of their ranks, and the least that the places"
        " allow. The first divided by the second is 1 where ranks lie along the fabric.",
        ("of",),
        {
            ("ranks",): reading.counters.get("rank_distance", 0),
            ("least",): reading.counters.get("rank_distance_least", 0),
        },
    )
    yield gauge_family(
        "gangsched_watch_age_seconds",
        "Time since the last message about a kind; a quiet server sends a bookmark about once a minute.",
        ("kind",),
        {(kind,): age_s for kind, age_s in reading.watch_age_s.items()},
    )
    yield counter_family(
        "gangsched_bind_unknown",
        "Binds of unknown outcome, which a read had to settle.",
        (),
        {(): reading.n_bind_unknown},
    )
    yield counter_family(
        "gangsched_doubtful_answers",
        "Answers that did not come from the API server, or were not about the requested object.",
        ("method",),
        {(method,): n for method, n in reading.doubtful_answers.items()},
    )
    yield counter_family(
        "gangsched_invariant_violations",
        "Invariants found violated: a device on two live pods (one_owner), whatever the cause; faults of this"
        " program that an object triggered and that were contained (contained).",
        ("invariant",),
        {
            ("one_owner",): reading.counters.get("device_clashes", 0),
            ("contained",): reading.counters.get("defects", 0),
        },
    )
    yield counter_family(
        "gangsched_objects_refused",
        "Objects that do not parse, or that this program failed on: each is left out until it changes.",
        ("kind",),
        {
            (kind,): n
            for name, n in reading.counters.items()
            for what, _, kind in (name.partition("/"),)
            if what == "objects_refused"
        },
    )


def _devices(reading: Reading) -> Iterator[Metric]:
    """Free devices, and differences from the plan."""
    yield gauge_family(
        "gangsched_device_free",
        "Healthy devices that no pod holds, and that are not kept for a group whose victims leave; of nodes"
        " where it is known which pod has which.",
        ("node", "resource"),
        {(node, resource): n for node, resource, n in reading.device_free},
    )
    yield gauge_family(
        "gangsched_device_drift",
        "Pods with other devices than planned: edited annotations, kubelet's choice, unusable for the pod.",
        ("kind",),
        {(kind,): n for kind, n in reading.device_drift.items()},
    )
    yield counter_family(
        "gangsched_device_drift_found",
        "Pods found with other devices than planned, since the start.",
        ("kind",),
        {(kind,): reading.counters.get(f"device_drift_{kind}", 0) for kind in reading.device_drift},
    )
    yield counter_family(
        "gangsched_device_failures",
        "Running pods with a device found to have failed, by the word of their node's list, of a taint on a"
        " claim's device, or of their kubelet.",
        ("by",),
        {(by,): reading.counters.get(f"device_failures_{by}", 0) for by in ("list", "taint", "kubelet")},
    )
    yield counter_family(
        "gangsched_device_repairs",
        "Pods whose annotations were corrected, and attempts for which the right is missing.",
        ("result",),
        {
            ("repaired",): reading.counters.get("device_repairs", 0),
            ("forbidden",): reading.counters.get("device_repairs_forbidden", 0),
        },
    )


def _resource_claims(reading: Reading) -> Iterator[Metric]:
    """Metrics of what became of the claims of Dynamic Resource Allocation."""
    totals = (
        ("claims_allocated", "allocated", "Resource claims that were given devices."),
        (
            "claims_taken_back",
            "taken_back",
            "Resource claims whose devices were given back: unused, or left by victims and not freed since.",
        ),
        (
            "claims_swept",
            "swept",
            "Of these, resource claims that were found allocated though no pod of theirs had started.",
        ),
        (
            "claim_conflicts",
            "conflicts",
            "Resource claims that could not be had since another scheduler had given out the device, or the"
            " claim.",
        ),
    )
    for name, suffix, words in totals:
        yield counter_family(
            f"gangsched_resource_claims_{suffix}", words, (), {(): reading.counters.get(name, 0)}
        )


def _journal(reading: Reading) -> Iterator[Metric]:
    """Metrics of the journal of the core's inputs."""
    if reading.journal is None:
        return
    counted = reading.journal
    totals = (
        ("records", "Records written to the journal.", counted.n_records),
        ("bytes", "Bytes written to the journal, compressed.", counted.n_bytes),
        (
            "dropped_records",
            "Records that the journal lacks, since the disk was too slow or refused.",
            counted.n_dropped,
        ),
        ("gaps", "Gaps in the journal, each of records that it lacks.", counted.n_gaps),
        ("tries", "Tries to resume the journal after a gap, each by writing a file.", counted.n_tries),
    )
    for name, words, n in totals:
        yield counter_family(f"gangsched_journal_{name}", words, (), {(): n})
    yield gauge_family(
        "gangsched_journal_goes_on",
        "1 while everything is recorded; 0 in a gap, until it goes on: the log says why.",
        (),
        {(): int(counted.goes_on)},
    )


def _configuration(reading: Reading) -> Iterator[Metric]:
    """What runs here, its configuration, and the state of out-of-tree plugins."""
    yield gauge_family(
        "gangsched_build_info",
        "1, with the versions as labels.",
        ("version", "python_version"),
        {(__version__, platform.python_version()): 1},
    )
    if reading.reloads is not None:
        taken, refused, is_right = reading.reloads
        yield counter_family(
            "gangsched_config_reloads",
            "Configurations read while running: taken over, or refused as wrong.",
            ("result",),
            {("taken",): taken, ("refused",): refused},
        )
        yield gauge_family(
            "gangsched_config_is_right",
            "1 where the configuration file was right when it was last read; else the old one stays.",
            (),
            {(): int(is_right)},
        )
    yield from _journal(reading)
    yield counter_family(
        "gangsched_plugin_failures",
        "Calls of plugins that raised, answered nonsense or took too long.",
        ("plugin", "extension_point"),
        {
            (plugin, point): n
            for name, n in reading.counters.items()
            for kind, _, rest in (name.partition("/"),)
            for plugin, _, point in (rest.rpartition("/"),)
            if kind == "plugin_errors" and plugin
        },
    )


def load_families(loads: Loads) -> Iterator[Metric]:
    """Metrics of H, its spread and the nodes' links, if a plugin tracks them."""
    yield gauge_family(
        "gangsched_load_h",
        "A node's measured load against its performance, relative to the cluster's averages: 1 is even.",
        ("node",),
        {(node,): h for node, h in loads.h},
    )
    yield gauge_family(
        "gangsched_load_h_spread",
        "The standard deviation of gangsched_load_h over the cluster: 0 is perfectly even.",
        (),
        {} if loads.spread is None else {(): loads.spread},
    )
    yield gauge_family(
        "gangsched_bandwidth_bytes_per_second",
        "Bandwidth of a node's links in one direction: total, measured use, and promised to pods on top.",
        ("node", "direction", "what"),
        {(node, direction, what): value for node, direction, what, value in loads.bandwidth},
    )
