"""What the metrics say of a gang's life, in virtual time; and their names, as dashboards know them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY, parse_inventory
from gangsched.model.events import StartsEstimated
from gangsched.model.objects import Node
from gangsched.web.metrics.measures import Distribution, exponential
from gangsched.web.metrics.page import OPENMETRICS, format_for
from tests.support.scenario import gang, with_annotations
from tests.web.measured import MeasuredCluster


async def test_a_gang_that_fits_is_scheduled_at_its_first_attempt() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.submit(gang("a", pods=4, gpus=2)).run()
    values = await c.values()
    assert values["scheduler_schedule_attempts_total{result=scheduled}"] == 4
    assert values["scheduler_podgroup_schedule_attempts_total{result=scheduled}"] == 1
    assert values["scheduler_scheduling_attempt_duration_seconds_count{result=scheduled}"] == 4
    assert values["scheduler_scheduling_algorithm_duration_seconds_count"] == 4
    assert values["scheduler_podgroup_scheduling_algorithm_duration_seconds_count"] == 1
    assert values["scheduler_pod_scheduling_attempts_sum"] == 4
    assert values["scheduler_pod_scheduling_sli_duration_seconds_count{attempts=1}"] == 4
    assert values["scheduler_queue_incoming_pods_total{event=UnscheduledPodAdd,queue=active}"] == 4
    assert values["gangsched_device_free{node=n0,resource=nvidia.com/gpu}"] == 0
    assert values["gangsched_reservations"] == values["gangsched_partial_gangs"] == 0
    for point in ("PreFilter", "Filter", "Reserve", "Permit"):
        key = f"extension_point={point},status=Success"
        assert values[f"scheduler_framework_extension_point_duration_seconds_count{{{key}}}"] >= 1, point


async def test_a_lone_pod_is_no_pod_group() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.submit(make_pod("one", gpus=1)).run()
    values = await c.values()
    assert values["scheduler_schedule_attempts_total{result=scheduled}"] == 1
    assert "scheduler_podgroup_schedule_attempts_total{result=scheduled}" not in values


async def test_what_does_not_fit_is_counted_and_shown_until_it_does() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=4))
    c.submit(gang("a", pods=2, gpus=4)).run()
    values = await c.values()
    assert values["scheduler_schedule_attempts_total{result=unschedulable}"] == 2
    assert values["scheduler_pending_pods{queue=unschedulable}"] == 2
    assert values["scheduler_unschedulable_pods{plugin=NodeResourcesFit}"] == 2
    assert (
        values["scheduler_queue_incoming_pods_total{event=ScheduleAttemptFailure,queue=unschedulable}"] == 2
    )
    c.wait(5.0)
    c.node(make_node("n1", gpus=4)).run()
    values = await c.values()
    assert values["scheduler_pending_pods{queue=unschedulable}"] == 0
    assert values["scheduler_pod_scheduling_attempts_sum"] == 4, "each of the two took two"
    assert values["scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=2}"] == 10.0, "5 s each"
    assert "scheduler_unschedulable_pods{plugin=NodeResourcesFit}" not in values


async def test_a_wait_in_permit_is_timed_by_how_it_ends() -> None:
    total = {"gangsched.io/total-members": "3"}
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.submit(with_annotations(gang("a", pods=2), total)).run()
    assert (await c.values())["gangsched_reservations"] == 2
    c.wait(60.5)  # its time is over: given back, in backoff
    values = await c.values()
    assert values["scheduler_permit_wait_duration_seconds_count{result=Unschedulable}"] == 2
    assert values["scheduler_permit_wait_duration_seconds_sum{result=Unschedulable}"] == 120.0
    assert values["scheduler_pending_pods{queue=backoff}"] == 2
    c.wait(10.0)  # tried again: waits again
    c.submit(with_annotations(gang("a", pods=1, min_members=2, first=2), total)).run()
    values = await c.values()
    assert values["scheduler_permit_wait_duration_seconds_count{result=Success}"] >= 2
    assert values["scheduler_schedule_attempts_total{result=scheduled}"] == 3
    assert values["scheduler_queue_incoming_pods_total{event=BackoffComplete,queue=active}"] == 2


async def test_each_plugin_is_counted_and_one_attempt_in_ten_is_timed() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    for i in range(12):
        c.submit(make_pod(f"p{i}", gpus=0)).run()
    values = await c.values()
    calls = values["scheduler_plugin_evaluation_total{extension_point=Score,plugin=NodeResourcesFit}"]
    key = "extension_point=Score,plugin=NodeResourcesFit,status=Success"
    timed = values[f"scheduler_plugin_execution_duration_seconds_count{{{key}}}"]
    assert 0 < timed * 6 <= calls


async def test_preemption_is_counted_with_its_victims() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8)).submit(gang("low", pods=2, gpus=4)).run()
    c.evictions = "slow"
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    c.submit(gang("more", pods=1, gpus=8, priority=10)).run()
    values = await c.values()
    assert values["scheduler_preemption_attempts_total"] == 2
    assert values["scheduler_preemption_victims_count"] == 1
    assert values["scheduler_preemption_victims_sum"] == 2


async def test_pods_that_wait_for_their_victims_are_pending_and_grow_old() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8)).submit(gang("low", pods=2, gpus=4)).run()
    c.evictions = "slow"
    c.submit(gang("high", pods=2, gpus=4, priority=10)).run().wait(20.0)
    values = await c.values()
    assert values["scheduler_pending_pods{queue=unschedulable}"] == 2
    assert values["gangsched_oldest_waiting_seconds{queue=unschedulable}"] == 20.0


async def test_a_plugin_that_raises_is_an_error() -> None:
    class Broken:
        name = "Broken"

        def capacity(self, *_: Any) -> Any:
            raise ZeroDivisionError("oops")

        def reasons(self, *_: Any) -> Any:
            return ()

    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    profile = c.profiles()["gangsched"]
    profile.filtering.capacities = (*profile.filtering.capacities, Broken())
    c.submit(gang("a", pods=2)).run()
    values = await c.values()
    assert values["scheduler_schedule_attempts_total{result=error}"] == 2
    assert (
        values[
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=Filter,status=Error}"
        ]
        == 1
    )


async def test_a_bind_that_fails_for_good_is_an_error() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.answer = lambda bind: "403"
    c.submit(gang("a", pods=1)).run()
    assert (await c.values())["scheduler_schedule_attempts_total{result=error}"] == 1


async def test_members_that_wait_for_their_gang_or_a_gate_are_seen() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.submit(gang("a", pods=2, min_members=3), make_pod("gated", gated=True)).run()
    values = await c.values()
    assert values["scheduler_pending_pods{queue=incomplete}"] == 2
    assert values["scheduler_pending_pods{queue=gated}"] == 1


def ids_of(node: Node) -> tuple[str, ...]:
    return parse_inventory((node.metadata.annotations or {})[INVENTORY_KEY])["nvidia.com/gpu"].ids


async def test_a_device_on_two_live_pods_is_a_violation_for_all_to_see() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    [device_id, *_] = ids_of(make_node("n0", gpus=8))
    claim = {ALLOCATED_KEY: '{"main":{"nvidia.com/gpu":["%s"]}}' % device_id}  # noqa: UP031
    for name, scheduler in (("one", "gangsched"), ("two", "another")):
        [pod] = with_annotations([make_pod(name, scheduler=scheduler)], claim)
        c.submit(replace(pod, spec=replace(pod.spec, node_name="n0")))
    values = await c.values()
    assert values["gangsched_invariant_violations_total{invariant=one_owner}"] == 1


async def test_a_slow_gang_is_found_by_the_trace_beside_its_bucket() -> None:
    c = MeasuredCluster(is_traced=True)
    c.node(make_node("n0", gpus=8))
    c.submit(gang("quick", pods=2, gpus=1), gang("slow", pods=2, gpus=8)).run().wait(5.0)
    c.node(make_node("n1", gpus=8)).node(make_node("n2", gpus=8)).run()
    page = await c.page(accept="application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
    found = {
        (sample.name, sample.exemplar.labels["trace_id"]): sample.exemplar.value
        for family in parse_openmetrics(page)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None
    }
    assert found["scheduler_pod_scheduling_sli_duration_seconds_bucket", "slow"] == 5.0
    assert found["scheduler_pod_scheduling_sli_duration_seconds_bucket", "quick"] == 0.0
    assert ("scheduler_podgroup_scheduling_attempt_duration_seconds_bucket", "slow") in found
    assert "trace_id" not in await c.page(), "the older format has no exemplars"


async def test_the_age_of_the_oldest_in_each_queue_is_shown() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=4))
    c.submit(gang("large", pods=2, gpus=4)).run().wait(30.0)
    c.submit(gang("later", pods=2, gpus=4)).run()
    c.submit(gang("part", pods=1, min_members=2)).run().wait(5.0)
    values = await c.values()
    assert values["gangsched_oldest_waiting_seconds{queue=unschedulable}"] == 35.0
    assert values["gangsched_oldest_waiting_seconds{queue=incomplete}"] == 5.0
    assert values["gangsched_oldest_waiting_seconds{queue=active}"] == 0.0


async def test_a_member_that_came_just_now_has_not_waited_as_long_as_its_gang_has_run() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.submit(gang("a", pods=2, gpus=4)).run().wait(7 * 3600.0)
    c.submit(gang("a", pods=1, first=2, gpus=4, min_members=2)).run().wait(20.0).run()
    assert (await c.values())["gangsched_oldest_waiting_seconds{queue=unschedulable}"] == 20.0


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.3", False),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3", True),
        (" Application/OpenMetrics-Text", True),
        ("application/openmetrics-text;version=" + "9" * 9000, True),
        (",;,;;" * 100, False),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept: str, is_openmetrics: bool) -> None:
    assert (format_for(accept) == OPENMETRICS) is is_openmetrics


async def test_what_users_and_strangers_write_does_not_get_out_of_a_label() -> None:
    c = MeasuredCluster()
    page = await c.page(device_free=[('n"0\n# HELP forged', "a\\b", 1)], leader={"lease": 1})
    [line] = [line for line in page.splitlines() if line.startswith("gangsched_device_free{")]
    assert line == 'gangsched_device_free{node="n\\"0\\n# HELP forged",resource="a\\\\b"} 1.0'
    assert 'leader_election_master_status{name="lease"} 1.0' in page


async def test_bypasses_and_walltimes_are_counted_where_there_is_queueing() -> None:
    c = MeasuredCluster(Settings(queueing=QueueingSettings(2))).node(make_node("n0")).node(make_node("n1"))
    assert (await c.values())["gangsched_walltime_groups{source=never}"] == 0
    c.submit(make_pod("holds", gpus=4)).run().submit(gang("large", pods=2, gpus=8)).run()
    c.submit(*(make_pod(f"small-{k}", gpus=1) for k in range(3))).run()
    values = await c.values()
    assert values["gangsched_bypasses_most"] == 3
    assert values["gangsched_would_be_claimed_total"] == values["gangsched_at_bound"] == 1
    assert values["gangsched_walltime_groups{source=never}"] == 5
    c.delete("holds", "small-0", "small-1", "small-2").run().wait(15.0)
    values = await c.values()
    assert (values["gangsched_bypasses_count"], values["gangsched_bypasses_sum"]) == (1, 3)
    assert (values["gangsched_at_bound"], values["gangsched_would_be_claimed_total"]) == (0, 1)
    assert "gangsched_bypasses" not in await MeasuredCluster().page()


async def test_estimates_are_compared_with_what_became_of_them() -> None:
    c = MeasuredCluster(Settings(queueing=QueueingSettings())).node(make_node("n0"))
    c.submit(make_pod("holds", gpus=8)).run().submit(make_pod("next", gpus=8)).run()
    c.tell(StartsEstimated(c.now_s, ((c.group("next").key, c.now_s + 100.0),)))
    c.wait(200.0).delete("holds").run().wait(15.0)
    values = await c.values()
    assert values["gangsched_estimate_ratio_count"] == 1
    assert 2.0 <= values["gangsched_estimate_ratio_sum"] <= 2.2


async def test_buckets_are_kube_schedulers() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.submit(gang("a", pods=1)).run()
    page = await c.page()
    for line in (
        'scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"} 1.0',
        'scheduler_scheduling_algorithm_duration_seconds_bucket{le="16.384"} 1.0',
        'framework_extension_point_duration_seconds_bucket{extension_point="Filter",le="0.2048",',
        'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="5242.88"} 1.0',
        'scheduler_pod_scheduling_attempts_bucket{le="16"} 1.0',
        "# TYPE scheduler_schedule_attempts_total counter",
        "# TYPE scheduler_pending_pods gauge",
        "# TYPE scheduler_permit_wait_duration_seconds histogram",
    ):
        assert line in page, line


@pytest.mark.parametrize(("value", "bucket"), [(0.0005, 0), (0.001, 0), (0.0011, 1), (5.0, 3)])
def test_a_value_on_a_bound_is_in_its_bucket(value: float, bucket: int) -> None:
    distribution = Distribution(exponential(0.001, 2, 3))
    distribution.observe(value, 3)
    assert distribution.counts[bucket] == distribution.n == 3
    assert distribution.total == pytest.approx(3 * value)


async def test_memory_for_groups_is_bounded() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=0))
    for k in range(20):
        c.submit(make_pod(f"p{k}", cpu="1m")).run()
        c.delete(f"p{k}")
    c.submit(make_pod("never", cpu="1000")).run().wait(400.0)
    c.delete("never")
    assert not c.measures._tries
    assert not c.measures._timed


async def test_pods_whose_devices_are_not_as_written_are_seen() -> None:
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8)).submit(make_pod("one")).run()
    pod = c.pod("one")
    own = {**(pod.metadata.annotations or {}), ALLOCATED_KEY: "{}"}
    c.update(pod, metadata=replace(pod.metadata, annotations=own))
    values = await c.values()
    assert values["gangsched_device_drift{kind=edited}"] == 1
    assert values["gangsched_device_drift{kind=kubelet}"] == 0
    assert values["gangsched_device_drift_found_total{kind=edited}"] == 1
    assert values["gangsched_device_repairs_total{result=repaired}"] == 0


async def test_configurations_read_while_running_and_failures_of_plugins_are_counted() -> None:
    c = MeasuredCluster()
    page = await c.page(counters={"plugin_errors": 3, "plugin_errors/Own/Permit": 3})
    assert 'gangsched_config_reloads_total{result="taken"} 2.0' in page
    assert 'gangsched_config_reloads_total{result="refused"} 1.0' in page
    assert "gangsched_config_is_right 0.0" in page
    assert 'gangsched_plugin_failures_total{extension_point="Permit",plugin="Own"} 3.0' in page


async def test_what_became_of_resource_claims_is_counted() -> None:
    counters = {"claims_allocated": 5, "claims_taken_back": 3, "claims_swept": 1, "claim_conflicts": 2}
    values = await MeasuredCluster().values(counters=counters)
    found = {name: n for name, n in values.items() if name.startswith("gangsched_resource_claims")}
    assert found == {
        "gangsched_resource_claims_allocated_total": 5,
        "gangsched_resource_claims_taken_back_total": 3,
        "gangsched_resource_claims_swept_total": 1,
        "gangsched_resource_claims_conflicts_total": 2,
    }
