"""When the Node is read and written, and what is said of it: scenarios in virtual time.

Not here: which devices are listed (test_reporter_devices.py).
"""

from __future__ import annotations

from random import Random

from gangsched.agent.report.reports import Silence
from gangsched.agent.reporter import MAX_CONFLICTS, InventoryReporter, WriteNode
from gangsched.errors import ApiError
from gangsched.model.devices.annotations import Device
from tests.agent.virtual import (
    FILE,
    HEARTBEAT_S,
    Node,
    Virtual,
    devices,
    on_node,
    report,
    settled,
)


def test_what_is_found_is_written_once_and_then_only_compared() -> None:
    agent = settled("a", "b")
    agent.run(10 * HEARTBEAT_S, again=devices("a", "b"))
    assert agent.node.n_writes == 1
    assert "changed by" not in agent.said
    assert 8 <= agent.node.n_reads - 1 <= 13
    assert agent.reporter.is_in_step


def test_nothing_is_written_before_every_source_has_spoken() -> None:
    agent = Virtual(silences={FILE: Silence.NOTHING, "NVML": Silence.SICKNESS})
    agent.all_pods_known()
    agent.found(*devices("a"))
    agent.run()
    assert agent.node.n_writes == 0
    agent.found(*devices("b"), source="NVML")
    agent.run()
    assert agent.written == {"a": "Healthy", "b": "Healthy"}


def test_a_device_that_turns_unhealthy_is_written_at_once() -> None:
    agent = settled("a", "b")
    agent.run(10.0, again=devices("a", "b"))
    agent.found(*devices("a", "b", sick=("b",)))
    agent.run()
    assert agent.written == {"a": "Healthy", "b": "Unhealthy"}
    assert "nvidia.com/gpu b Unhealthy" in str(agent.notices[-1].fields["changes"])


def test_a_device_that_flickers_costs_a_write_a_second_at_most() -> None:
    agent = settled("a")
    before = agent.node.n_writes
    for turn in range(100):
        agent.found(*devices("a", sick=("a",) if turn % 2 else ()))
        agent.run(0.1)
    assert agent.node.n_writes - before <= 11


def test_what_somebody_else_writes_is_reported_and_written_over_at_the_next_heartbeat() -> None:
    agent = settled("a")
    agent.node.changed_by("'kubectl-annotate' at 12:00", '{"nvidia.com/gpu":[]}')
    agent.run(1.3 * HEARTBEAT_S, again=devices("a"))
    assert agent.written == {"a": "Healthy"}
    assert "changed by 'kubectl-annotate' at 12:00" in agent.said
    assert agent.node.n_writes == 2


def test_a_stranger_is_noticed_also_by_an_agent_that_had_nothing_to_write() -> None:
    agent = Virtual(on_node("a"))
    agent.found(*devices("a"))
    agent.run(2.0)
    agent.node.changed_by("'kubectl-edit' at 12:00", "{}")
    agent.run(1.3 * HEARTBEAT_S, again=devices("a"))
    assert "changed by 'kubectl-edit' at 12:00" in agent.said
    assert agent.node.n_writes == 1


def test_two_agents_for_one_node_notice_each_other_and_do_not_fight_without_pause() -> None:
    node = Node()
    one, other = settled("a", node=node), settled("b", node=node)
    for _ in range(int(10 * HEARTBEAT_S)):
        one.run(1.0, again=devices("a"))
        other.run(1.0, again=devices("b"))
    assert "one agent, and nobody else" in one.said
    assert "one agent, and nobody else" in other.said
    assert node.n_writes <= 30


def test_an_annotation_that_is_taken_away_comes_back() -> None:
    agent = settled("a")
    agent.node.changed_by("'kubectl-edit' at 12:00", None)
    agent.run(1.3 * HEARTBEAT_S, again=devices("a"))
    assert agent.written == {"a": "Healthy"}


def test_a_write_without_an_answer_is_looked_at_and_not_called_somebody_elses() -> None:
    agent = settled("a")
    agent.node.down = agent.node.lands = True
    agent.found(*devices("a", "b"))
    agent.run(2.0)
    assert "the node cannot be written: connection lost" in agent.said
    agent.node.down = False
    agent.run(30.0, again=devices("a", "b"))
    assert agent.written == {"a": "Healthy", "b": "Healthy"}
    assert agent.node.n_writes == 2
    assert "changed by" not in agent.said


def test_an_api_server_that_is_away_is_waited_for_and_reported_once() -> None:
    agent = settled("a")
    agent.node.down = True
    agent.found(*devices("a", sick=("a",)))
    agent.run(300.0, again=devices("a", sick=("a",)))
    assert agent.said.count("the node cannot be written") == 1
    assert agent.said.count("the node cannot be read") == 1
    assert agent.node.n_reads < 30, "backing off"
    agent.node.down = False
    agent.run(31.0, again=devices("a", sick=("a",)))
    assert agent.written == {"a": "Unhealthy"}
    assert agent.said.count("the node is read again") == 1


def test_a_node_that_changes_all_the_time_is_written_in_the_end() -> None:
    agent = settled("a")
    agent.found(*devices("a", "b"))
    n_conflicts = 0
    for _ in range(200):
        effect = agent.reporter.decide(agent.now_s)
        if effect is None:
            agent.now_s += 0.5
            continue
        if isinstance(effect, WriteNode) and n_conflicts < 3 * MAX_CONFLICTS:
            n_conflicts += 1
            agent.node.revision += 1  # kubelet was here
        agent._do(effect)
    assert n_conflicts == 3 * MAX_CONFLICTS
    assert agent.written == {"a": "Healthy", "b": "Healthy"}


def test_a_node_that_can_never_be_written_is_not_asked_without_pause() -> None:
    agent = settled("a")
    agent.node.n_tried = 0
    agent.node.is_contested = True
    agent.run(60.0, again=devices("a", "b"))
    assert MAX_CONFLICTS < agent.node.n_tried < 12 * MAX_CONFLICTS
    assert "the node cannot be written: 409" in agent.said


def test_after_a_long_outage_a_short_one_is_over_soon() -> None:
    agent = settled("a")
    agent.node.down = True
    agent.run(600.0, again=devices("a", sick=("a",)))
    agent.node.down = False
    agent.run(31.0, again=devices("a", sick=("a",)))
    agent.node.down = True
    agent.run(0.1, again=devices("a"))
    agent.node.down = False
    agent.run(1.0, again=devices("a"))
    assert agent.written == {"a": "Healthy"}


def test_a_node_recreated_under_its_name_gets_the_inventory() -> None:
    agent = settled("a")
    agent.node.made_again("uid-2")
    agent.run(1.3 * HEARTBEAT_S, again=devices("a"))
    assert agent.written == {"a": "Healthy"}
    assert "changed by" not in agent.said


def test_a_write_meant_for_the_predecessor_of_a_node_does_not_reach_it() -> None:
    agent = settled("a")
    agent.found(*devices("b"))
    effect = agent.reporter.decide(agent.now_s + 2)
    assert isinstance(effect, WriteNode)
    agent.node.made_again("uid-2")
    agent.node.revision -= 1
    agent._do(effect)
    assert agent.node.value is None
    agent.run(5.0, again=devices("b"))
    assert agent.written == {"b": "Healthy"}


def test_a_node_that_is_gone_is_waited_for() -> None:
    agent = settled("a")
    agent.node.exists = False
    agent.run(2 * HEARTBEAT_S, again=devices("a"))
    assert "there is no node 'n1' now" in agent.said
    agent.node.exists = True
    agent.node.made_again("uid-2")
    agent.run(31.0, again=devices("a"))
    assert agent.written == {"a": "Healthy"}


def test_a_missing_right_is_named_with_its_verb() -> None:
    agent = Virtual()
    assert agent.reporter.decide(agent.now_s) is not None
    agent.reporter.failed("read", ApiError('User "x" cannot get resource "nodes"', code=403), agent.now_s)
    [notice] = agent.reporter.take_notices()
    assert "the verb is get on nodes" in notice.message


# -- limits -----------------------------------------------------------------------------------------------


def test_an_inventory_that_does_not_fit_is_not_written_and_the_cure_is_reported() -> None:
    agent = settled("a", "b")
    many = (*devices("a"), *(Device(id=f"{i:04}", model="x" * 60) for i in range(4000)))
    agent.found(*many)
    agent.run(10 * HEARTBEAT_S, again=many)
    assert agent.written == {"a": "Healthy", "b": "Unhealthy"}, "b is found no more"
    assert agent.node.n_writes == 2
    assert agent.said.count("does not fit the Node") == 1
    assert "changed by" not in agent.said
    assert "list fewer devices" in agent.said
    agent.found(*devices("b"))
    agent.run(2.0)
    assert agent.written == {"b": "Healthy"}


def test_a_device_that_turns_unhealthy_is_written_though_the_new_list_does_not_fit() -> None:
    agent = settled("a", "b")
    many = tuple(Device(id=f"{i:04}", model="x" * 60) for i in range(4000))
    agent.run(10.0, again=(*devices("a", "b"), *many))
    agent.run(10.0, again=(*devices("a", "b", sick=("b",)), *many))
    assert agent.written == {"a": "Healthy", "b": "Unhealthy"}
    assert agent.notices[-1].fields["changes"] == "nvidia.com/gpu b Unhealthy"
    agent.run(10.0, again=(*devices("a", "b"), *many))
    assert agent.written == {"a": "Healthy", "b": "Healthy"}


def test_a_note_that_does_not_fit_keeps_no_device_from_being_unhealthy() -> None:
    agent = settled("a")
    agent.reporter.note("gangsched.io/device-report", "x" * 300_000)
    agent.run(10.0, again=devices("a"))
    assert "does not fit the Node" in agent.said
    agent.run(10.0, again=devices("a", sick=("a",)))
    assert agent.written == {"a": "Unhealthy"}
    assert agent.node.n_writes == 2
    agent.reporter.note("gangsched.io/device-report", "{}")
    agent.run(10.0, again=devices("a", sick=("a",)))
    assert agent.node.annotations["gangsched.io/device-report"] == "{}"


def test_the_last_byte_fits() -> None:
    agent = settled("a")
    big = tuple(Device(id=f"{i:04}", model="x" * 30) for i in range(2500))
    agent.found(*big)
    value = agent.reporter.value() or ""
    room = 256 * 1024 - len("gangsched.io/devices") - len(value)
    agent.node.others_take(room)
    agent.node.revision += 1
    agent.run(2 * HEARTBEAT_S, again=big)
    assert agent.node.value == value
    agent.node.others_take(room + 1)
    agent.found(*big[:-1], Device(id="last", model="x" * 30))
    agent.run(2 * HEARTBEAT_S, again=(*big[:-1], Device(id="last", model="x" * 30)))
    assert agent.node.value == value
    assert "does not fit" in agent.said


def test_two_places_with_one_device_are_both_named_and_the_worse_health_counts() -> None:
    agent = Virtual(silences={FILE: Silence.NOTHING, "NVML": Silence.SICKNESS})
    agent.found(*devices("a", "b"))
    agent.found(*devices("b", "c", sick=("b",)), source="NVML")
    agent.run()
    assert agent.written == {"a": "Healthy", "b": "Unhealthy", "c": "Healthy"}
    assert "nvidia.com/gpu b is listed by /devices and by NVML" in agent.said


def test_an_api_server_that_stores_something_else_is_not_written_to_again_and_again() -> None:
    agent = Virtual()
    agent.found(*devices("a"))
    n_writes = 0
    end_s = agent.now_s + HEARTBEAT_S * 3
    while agent.now_s < end_s:
        effect = agent.reporter.decide(agent.now_s)
        if isinstance(effect, WriteNode):
            n_writes += 1
            agent.node.changed_by("policy", '{"nvidia.com/gpu":[]}')
            agent.reporter.written(agent.node.seen(), agent.now_s)
        elif effect is not None:
            agent._do(effect)
        else:
            agent.found(*devices("a"))
            agent.now_s += 1.0
    assert 1 <= n_writes <= 5


def test_a_reporter_asks_for_one_thing_at_a_time() -> None:
    reporter = InventoryReporter("n", {FILE: Silence.NOTHING}, heartbeat_s=60, rng=Random(1))
    assert reporter.decide(0.0) is not None
    assert reporter.decide(0.0) is None
    reporter.source_reported(report(*devices("a")), 0.0)
    assert reporter.decide(1.0) is None


def test_a_note_of_another_room_is_written_beside_the_inventory_and_again_when_it_is_changed() -> None:
    agent = settled("a")
    agent.reporter.note("gangsched.io/load", "1")
    agent.run(3.0, again=devices("a"))
    assert agent.node.annotations["gangsched.io/load"] == "1"
    n_writes = agent.node.n_writes
    agent.run(2 * HEARTBEAT_S, again=devices("a"))
    assert agent.node.n_writes == n_writes
    agent.node.annotations["gangsched.io/load"] = "forged"
    agent.node.revision += 1
    agent.run(2 * HEARTBEAT_S, again=devices("a"))
    assert agent.node.annotations["gangsched.io/load"] == "1"
    assert agent.written == {"a": "Healthy"}


def test_a_note_is_written_on_a_node_that_has_no_devices() -> None:
    agent = Virtual()
    agent.found()
    agent.reporter.note("gangsched.io/load", "1")
    agent.run(3.0, again=())
    assert agent.node.annotations["gangsched.io/load"] == "1"
    assert agent.node.value is None
    assert "altered" not in agent.said
    assert "another" not in agent.said
