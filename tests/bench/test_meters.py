"""Statistics, the disturbance marker and the counting of writes, on made-up readings."""

from __future__ import annotations

import os

import pytest

from gangsched.lab.bench.figures import Spread, pair_ratios, percentile, spread
from gangsched.lab.bench.rounds import meters
from gangsched.lab.bench.rounds.meters import Sample


def test_a_spread_is_median_and_range() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert spread([4.0, 1.0]) == Spread(2.5, 1.0, 4.0, 2)
    assert spread([]) is None


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50, 99, 100)
    assert percentile([7.0], 0.99) == 7.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_ratios_are_made_of_rounds_that_both_have() -> None:
    assert pair_ratios({1: 10.0, 2: 9.0, 3: 8.0}, {1: 5.0, 3: 2.0, 4: 1.0}) == Spread(3.0, 2.0, 4.0, 2)
    assert pair_ratios({1: 10.0}, {1: 0.0}) is None


def test_other_load_is_what_the_machine_did_and_we_did_not() -> None:
    before = Sample(100.0, 50.0, {"apiserver": 5.0, "bench": 1.0})
    after = Sample(110.0, 65.0, {"apiserver": 12.0, "bench": 2.0, "scheduler": 3.0})
    assert meters.others_cores(before, after) == pytest.approx(0.4)
    assert meters.is_disturbed(0.4)


def test_clock_ticks_that_do_not_add_up_are_no_disturbance() -> None:
    before = Sample(100.0, 50.0, {"apiserver": 5.0})
    after = Sample(110.0, 55.0, {"apiserver": 10.05})
    assert meters.others_cores(before, after) == 0.0
    assert not meters.is_disturbed(0.15)


METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",group="",resource="pods",subresource="binding",verb="POST"} 7000
apiserver_request_total{code="409",group="",resource="pods",subresource="binding",verb="POST"} 3
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="LIST"} 4
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 9
apiserver_request_total{code="201",group="authorization.k8s.io",resource="subjectaccessreviews",verb="POST"} 5
apiserver_request_total{code="200",group="x",resource="podgroups",subresource="status",verb="APPLY"} 1.2e+01
apiserver_request_duration_seconds_count{verb="POST",resource="pods"} 1
"""


def test_writes_are_counted_by_resource_whatever_was_answered() -> None:
    assert meters.count_writes(METRICS) == {
        "POST pods/binding": 7003,
        "PUT leases": 9,
        "APPLY podgroups/status": 12,
    }


def test_only_what_was_added_counts_and_leases_are_known() -> None:
    grown = meters.new_writes(
        {"POST events": 5, "PUT leases": 1}, {"POST events": 5, "PUT leases": 3, "A b": 1}
    )
    assert grown == {"PUT leases": 2, "A b": 1}
    assert [key for key in grown if meters.is_lease(key)] == ["PUT leases"]


def test_this_process_can_be_read() -> None:
    reading = meters.sample({"self": os.getpid()})
    assert 0 < reading.cpu_s["self"] <= reading.machine_cpu_s
    assert meters.peak_memory_bytes(os.getpid()) > 2**20


SYNCS = """\
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.016"} 4000
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.032"} 4127
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.064"} 4139
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 4147
etcd_disk_wal_fsync_duration_seconds_sum 7.1
etcd_disk_wal_fsync_duration_seconds_count 4147
"""


def test_slow_syncs_are_those_above_the_bound() -> None:
    assert meters.count_slow_syncs(SYNCS) == 20
    with pytest.raises(ValueError, match="no etcd_disk_wal_fsync"):
        meters.count_slow_syncs(METRICS)
