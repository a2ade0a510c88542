"""NodePorts: host ports belong to one pod, and 0.0.0.0 is every address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import Change, ClusterChange
from gangsched.core.types.templates.pod_template import HostPort
from gangsched.model.objects import Pod
from gangsched.plugins.nodes.node_ports import NodePorts
from tests.plugins.build import Cluster, node, pod


def with_ports(name: str, *ports: tuple[str, str, int]) -> Pod:
    """(host IP, protocol, host port) each."""
    spec: list[dict[str, Any]] = [
        {"containerPort": 80, "hostIP": ip, "protocol": protocol, "hostPort": number}
        for ip, protocol, number in ports
    ]
    return pod(name, containers=[{"name": "main", "ports": spec}])


def test_a_pod_without_host_ports_is_not_limited() -> None:
    cluster = Cluster(node("a"))
    assert NodePorts().capacity(cluster.state, cluster.template(), cluster.view) is None
    assert NodePorts().reasons(cluster.state, cluster.template(), cluster.view) == ()


def test_one_pod_a_node_and_none_where_the_port_is_taken() -> None:
    cluster = Cluster(node("free"), node("taken"), node("udp"))
    cluster.run(with_ports("other", ("", "TCP", 8080)), on="taken")
    cluster.run(with_ports("dns", ("", "UDP", 8080)), on="udp")
    plugin, template = NodePorts(), cluster.template(with_ports("p", ("", "TCP", 8080)))
    room = plugin.capacity(cluster.state, template, cluster.view)
    assert room is not None
    assert room.tolist() == [1, 0, 1]
    some = plugin.capacity(cluster.state, template, cluster.view, cluster.rows(["udp", "taken"]))
    assert some is not None
    assert some.tolist() == [1, 0]
    ((reason, rows),) = plugin.reasons(cluster.state, template, cluster.view)
    assert reason == "node(s) didn't have free ports for the requested pod ports"
    assert cluster.names(rows) == ["taken"]


def test_siblings_placed_on_a_trial_take_their_ports() -> None:
    cluster = Cluster(node("a"), node("b"))
    template = cluster.template(with_ports("p", ("10.0.0.1", "TCP", 80)))
    trial = Trial(cluster.view)
    trial.place(0, template)
    room = NodePorts().capacity(cluster.state, template, trial)
    assert room is not None
    assert room.tolist() == [0, 1]


def test_cured_by_freed_ports_and_new_nodes_where_there_is_no_conflict() -> None:
    cluster = Cluster(node("a"), node("b"))
    cluster.run(with_ports("other", ("", "TCP", 80)), on="a")
    plugin, template = NodePorts(), cluster.template(with_ports("p", ("", "TCP", 80)))
    assert not plugin.cures(ClusterChange(Change.ROOM_FREED, 0, ports=True), template, cluster.view)
    assert plugin.cures(ClusterChange(Change.ROOM_FREED, 1, ports=True), template, cluster.view)
    assert not plugin.cures(ClusterChange(Change.ROOM_FREED, 1), template, cluster.view)
    assert plugin.cures(ClusterChange(Change.NODE_ADDED, 1), template, cluster.view)


class Read(dict[HostPort, int]):
    """Counts how often it is gone through."""

    n = 0

    def __iter__(self) -> Iterator[HostPort]:
        self.n += 1
        return super().__iter__()


def test_what_is_taken_is_gone_through_once_however_many_ports_are_wanted() -> None:
    """A pod may list as many as a node has; compared pair by pair, two such pods took minutes."""
    cluster = Cluster(node("a"))
    cluster.run(with_ports("other", *(("", "TCP", 1 + i) for i in range(300))), on="a")
    taken = cluster.cache.nodes.ports[0] = Read(cluster.cache.nodes.ports[0])
    for address in ("", "10.0.0.1"):
        template = cluster.template(with_ports("p", *((address, "TCP", 1001 + i) for i in range(300))))
        room = NodePorts().capacity(cluster.state, template, cluster.view)
        assert room is not None
        assert room.tolist() == [1]
    assert taken.n <= 2


_PORT = st.tuples(
    st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from(["TCP", "UDP"]),
    st.sampled_from([80, 81]),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.lists(_PORT, max_size=3), min_size=1, max_size=5), st.lists(_PORT, min_size=1, max_size=2))
def test_conflicts_as_kube_scheduler_states_them(
    taken: list[list[tuple[str, str, int]]], wanted: list[tuple[str, str, int]]
) -> None:
    """HostPortInfo.CheckConflict: 0.0.0.0 meets every address, another one itself and 0.0.0.0."""
    cluster = Cluster(*(node(f"n{i}") for i in range(len(taken))))
    for i, ports in enumerate(taken):
        cluster.run(with_ports(f"other-{i}", *ports), on=f"n{i}")
    room = NodePorts().capacity(cluster.state, cluster.template(with_ports("p", *wanted)), cluster.view)
    assert room is not None

    def conflicts(ip: str, protocol: str, number: int, ports: list[tuple[str, str, int]]) -> bool:
        at = {(other or "0.0.0.0") for other, p, n in ports if (p, n) == (protocol, number)}
        return bool(at) if ip in ("", "0.0.0.0") else bool(at & {"0.0.0.0", ip})

    assert room.tolist() == [0 if any(conflicts(*want, ports) for want in wanted) else 1 for ports in taken]
