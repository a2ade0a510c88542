"""What the Node says of its devices, and when it is written: scenarios in virtual time."""

from __future__ import annotations

import json
from random import Random

import pytest

from gangsched.agent.reporter import MAX_CONFLICTS, SILENT_S, InventoryReporter, WriteInventory
from gangsched.agent.reports import Silence
from gangsched.errors import ApiError
from gangsched.model.devices import Device, inventory_annotation, parse_inventory
from tests.agent.virtual import (
    FILE,
    GPU,
    HEARTBEAT_S,
    Node,
    Virtual,
    devices,
    gone,
    now,
    report,
    there,
)


def settled(*ids: str, node: Node | None = None) -> Virtual:
    """An agent that has written these devices, and knows that no pod holds any."""
    agent = Virtual(node)
    agent.all_pods_known()
    agent.found(*devices(*ids))
    agent.run()
    assert list(agent.written) == list(ids)
    return agent


def test_what_is_found_is_written_once_and_then_only_compared() -> None:
    agent = settled("a", "b")
    agent.run(10 * HEARTBEAT_S, again=devices("a", "b"))
    assert agent.node.n_writes == 1
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


def test_what_somebody_else_writes_is_said_and_written_over_at_the_next_heartbeat() -> None:
    agent = settled("a")
    agent.node.changed_by("'kubectl-annotate' at 12:00", '{"nvidia.com/gpu":[]}')
    agent.run(1.3 * HEARTBEAT_S, again=devices("a"))
    assert agent.written == {"a": "Healthy"}
    assert "changed by 'kubectl-annotate' at 12:00" in agent.said
    assert agent.node.n_writes == 2


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
    agent.run()
    agent.node.down = False
    agent.run(30.0, again=devices("a", "b"))
    assert agent.written == {"a": "Healthy", "b": "Healthy"}
    assert agent.node.n_writes == 2
    assert "changed by" not in agent.said


def test_an_api_server_that_is_away_is_waited_for_and_said_once() -> None:
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
        if isinstance(effect, WriteInventory) and n_conflicts < 3 * MAX_CONFLICTS:
            n_conflicts += 1
            agent.node.revision += 1  # kubelet was here
        agent._do(effect)
    assert n_conflicts == 3 * MAX_CONFLICTS
    assert agent.written == {"a": "Healthy", "b": "Healthy"}


def test_a_node_made_anew_under_its_name_gets_the_inventory() -> None:
    agent = settled("a")
    agent.node.made_anew("uid-2")
    agent.run(1.3 * HEARTBEAT_S, again=devices("a"))
    assert agent.written == {"a": "Healthy"}
    assert "changed by" not in agent.said


def test_a_write_meant_for_the_predecessor_of_a_node_does_not_reach_it() -> None:
    agent = settled("a")
    agent.found(*devices("b"))
    effect = agent.reporter.decide(agent.now_s + 2)
    assert isinstance(effect, WriteInventory)
    agent.node.made_anew("uid-2")
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
    agent.node.made_anew("uid-2")
    agent.run(31.0, again=devices("a"))
    assert agent.written == {"a": "Healthy"}


def test_a_missing_right_is_named_with_its_verb() -> None:
    agent = Virtual()
    assert agent.reporter.decide(agent.now_s) is not None
    agent.reporter.failed("read", ApiError("User x cannot get", code=403), agent.now_s)
    [notice] = agent.reporter.take_notices()
    assert "the verb is get on nodes" in notice.message


# -- devices that are not there any more -----------------------------------------------------------------


def test_a_vanished_device_that_nobody_holds_is_gone_and_its_resource_stays() -> None:
    agent = settled("a")
    agent.found()
    agent.run(2.0)
    assert json.loads(agent.node.value or "") == {GPU: []}
    assert parse_inventory(agent.node.value or "")[GPU].ids == ()


def test_a_vanished_device_is_listed_as_unhealthy_until_its_last_live_pod_is_gone() -> None:
    agent = settled("a", "b", "c")
    agent.pods(there("p", "a", "b"), there("q", "b"))
    agent.found(*devices("c"))
    agent.run(2.0)
    assert agent.written == {"c": "Healthy", "a": "Unhealthy", "b": "Unhealthy"}
    agent.pods(gone("p"))
    agent.run(2.0)
    assert agent.written == {"c": "Healthy", "b": "Unhealthy"}
    agent.pods(now("q", "b", phase="Succeeded"))
    agent.run(2.0)
    assert agent.written == {"c": "Healthy"}


def test_a_vanished_device_that_comes_back_is_as_it_is_found() -> None:
    agent = settled("a")
    agent.pods(there("p", "a"))
    agent.found()
    agent.run(2.0)
    assert agent.written == {"a": "Unhealthy"}
    agent.found(*devices("a"))
    agent.run(2.0)
    assert agent.written == {"a": "Healthy"}


def test_as_long_as_nobody_knows_who_holds_it_no_device_is_forgotten() -> None:
    agent = Virtual()
    agent.found(*devices("a", "b"))
    agent.run()
    agent.found(*devices("a"))
    agent.run(2.0)
    assert agent.written == {"a": "Healthy", "b": "Unhealthy"}
    agent.all_pods_known()
    agent.run(2.0)
    assert agent.written == {"a": "Healthy"}


def test_a_pod_that_was_bound_while_its_device_vanished_keeps_it_listed() -> None:
    agent = settled("a", "b")
    agent.found(*devices("a"))
    agent.run(2.0)
    assert agent.written == {"a": "Healthy"}
    agent.pods(there("late", "b"))
    agent.run(2.0)
    assert agent.written == {"a": "Healthy", "b": "Unhealthy"}


def test_a_pod_that_names_what_never_was_changes_nothing() -> None:
    agent = settled("a")
    agent.pods(there("liar", "z"))
    agent.run(10.0, again=devices("a"))
    assert agent.written == {"a": "Healthy"}
    assert agent.node.n_writes == 1


def test_a_pod_whose_annotation_cannot_be_read_keeps_what_it_had_and_is_named() -> None:
    agent = settled("a", "b")
    agent.pods(there("p", "a"))
    agent.pods(now("p", text="{"))
    agent.found(*devices("b"))
    agent.run(2.0)
    assert agent.written == {"b": "Healthy", "a": "Unhealthy"}
    assert "pod default/p: gangsched.io/allocated-devices: is not an allocation" in agent.said


# -- an agent that starts anew ----------------------------------------------------------------------------


def on_node(*ids: str) -> Node:
    node = Node()
    node.value = inventory_annotation({GPU: devices(*ids)})
    return node


def test_a_new_agent_that_finds_what_is_written_writes_nothing() -> None:
    agent = Virtual(on_node("a", "b"))
    agent.found(*devices("a", "b"))
    agent.run(10.0, again=devices("a", "b"))
    assert agent.node.n_writes == 0
    assert agent.reporter.is_in_step


def test_a_device_that_vanished_while_no_agent_ran_is_not_forgotten_while_it_is_held() -> None:
    agent = Virtual(on_node("a", "b"))
    agent.pods(there("p", "a"))
    agent.all_pods_known()
    agent.found(*devices("b"))
    agent.run()
    assert agent.written == {"b": "Healthy", "a": "Unhealthy"}


def test_what_was_written_stays_as_long_as_a_source_cannot_be_read() -> None:
    agent = Virtual(on_node("a", "b"))
    agent.all_pods_known()
    agent.found(problems=("/devices: is not JSON",), whole=False)
    agent.run(10.0)
    assert agent.node.n_writes == 0
    assert "/devices: is not JSON" in agent.said
    agent.found(*devices("b"))
    agent.run(2.0)
    assert agent.written == {"b": "Healthy"}
    assert "in order again: /devices: is not JSON" in agent.said


def test_a_predecessors_nonsense_is_said_and_replaced() -> None:
    node = Node()
    node.value = "nonsense"
    agent = Virtual(node)
    agent.found(*devices("a"))
    agent.run()
    assert agent.written == {"a": "Healthy"}
    assert "is not readable and replaced" in agent.said


def test_a_node_without_devices_is_left_alone_and_it_is_said_where_was_looked() -> None:
    agent = Virtual(silences={FILE: Silence.NOTHING, "NVML": Silence.SICKNESS})
    agent.found(looked="/devices: no such file or directory")
    agent.found(source="NVML", looked="NVML: library not found")
    agent.run(10.0)
    assert agent.node.value is None
    assert (
        "no devices found; looked at: /devices: no such file or directory; NVML: library not found"
        in agent.said
    )


# -- sources that fall silent ----------------------------------------------------------------------------


def two_sources() -> Virtual:
    agent = Virtual(silences={FILE: Silence.NOTHING, "NVML": Silence.SICKNESS})
    agent.all_pods_known()
    agent.found(*devices("fpga"))
    agent.found(*devices("gpu"), source="NVML")
    agent.run()
    assert agent.written == {"fpga": "Healthy", "gpu": "Healthy"}
    return agent


def test_the_devices_of_a_driver_that_does_not_answer_are_unhealthy_those_of_a_file_stay() -> None:
    agent = two_sources()
    agent.run(SILENT_S + 1)
    assert agent.written == {"fpga": "Healthy", "gpu": "Unhealthy"}
    assert "NVML does not answer" in agent.said
    agent.found(*devices("gpu"), source="NVML")
    agent.run(2.0)
    assert agent.written == {"fpga": "Healthy", "gpu": "Healthy"}
    assert "NVML answers again" in agent.said


def test_a_driver_that_never_answers_does_not_hold_up_the_rest_for_ever() -> None:
    agent = Virtual(on_node("gpu"), silences={FILE: Silence.NOTHING, "NVML": Silence.SICKNESS})
    agent.all_pods_known()
    agent.run(SILENT_S + 2, again=devices("fpga"))
    assert agent.written == {"fpga": "Healthy", "gpu": "Unhealthy"}


def test_a_register_speaks_when_the_node_is_read_and_is_not_missed_in_between() -> None:
    agent = Virtual(silences={FILE: Silence.NORMAL})
    agent.found(*devices("a"))
    agent.run(10 * SILENT_S)
    assert agent.written == {"a": "Healthy"}
    assert "does not answer" not in agent.said


# -- limits -----------------------------------------------------------------------------------------------


def test_an_inventory_that_does_not_fit_is_not_written_and_it_is_said_what_to_do() -> None:
    agent = settled("a")
    many = tuple(Device(id=f"{i:04}", model="x" * 60) for i in range(4000))
    agent.found(*many)
    agent.run(10 * HEARTBEAT_S, again=many)
    assert agent.written == {"a": "Healthy"}
    assert agent.said.count("does not fit the Node") == 1
    assert "list fewer devices" in agent.said
    agent.found(*devices("b"))
    agent.run(2.0)
    assert agent.written == {"b": "Healthy"}


def test_the_last_byte_fits() -> None:
    agent = settled("a")
    big = tuple(Device(id=f"{i:04}", model="x" * 30) for i in range(2500))
    agent.found(*big)
    value = agent.reporter.value() or ""
    agent.node.other_bytes = 256 * 1024 - len("gangsched.io/devices") - len(value)
    agent.node.revision += 1
    agent.run(2 * HEARTBEAT_S, again=big)
    assert agent.node.value == value
    agent.node.other_bytes += 1
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
        if isinstance(effect, WriteInventory):
            n_writes += 1
            agent.node.changed_by("policy", '{"nvidia.com/gpu":[]}')
            agent.reporter.written(agent.node.seen(), agent.now_s)
        elif effect is not None:
            agent._do(effect)
        else:
            agent.found(*devices("a"))
            agent.now_s += 1.0
    assert 1 <= n_writes <= 5


# -- all at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_the_node_says_in_the_end_what_is_so(seed: int) -> None:
    """Random devices, pods, outages, strangers and restarts; then quiet, and everything must be right.

    Where a stranger wipes the annotation and the agent starts anew before it has seen that, a vanished device
    is forgotten: nobody knows of it any more. So only agents that lived on must still list what is held.
    """
    rng = Random(seed)
    node = Node()
    agent = Virtual(node, seed=seed)
    names = [f"d{i}" for i in range(6)]
    present: dict[str, bool] = dict.fromkeys(names, True)
    held: dict[str, set[str]] = {}
    has_restarted = False

    def found() -> tuple[Device, ...]:
        return tuple(Device(one, health="Healthy" if fit else "Unhealthy") for one, fit in present.items())

    agent.all_pods_known()
    agent.run(2.0, again=found())
    for step in range(60):
        what = rng.randrange(9)
        name = rng.choice(names)
        if what == 0:
            present.pop(name, None)
        elif what in (1, 2):
            present[name] = rng.random() < 0.7
        elif what == 3 and name in agent.written and not any(name in ids for ids in held.values()):
            held[f"p{step}"] = {name}
            agent.pods(there(f"p{step}", name))
        elif what == 4 and held:
            ended = rng.choice(sorted(held))
            del held[ended]
            agent.pods(gone(ended))
        elif what == 5:
            node.down, node.lands = rng.random() < 0.5, rng.random() < 0.5
        elif what == 6:
            node.changed_by("stranger", rng.choice([None, "{", '{"nvidia.com/gpu":[]}']))
        elif what == 7:
            node.made_anew(f"uid-{step}")
        elif what == 8 and not node.down and json_of(node) is not None and agent.reporter.is_in_step:
            agent, has_restarted = Virtual(node, seed=step), True
            agent.pods(*(there(pod, *ids) for pod, ids in held.items()))
            agent.all_pods_known()
        agent.run(rng.choice([0.3, 3.0, 30.0]), again=found())
    node.down = False
    agent.run(100.0, again=found())
    agent.run(100.0, again=found())
    for name, fit in present.items():
        assert agent.written[name] == ("Healthy" if fit else "Unhealthy")
    for name in set(agent.written) - set(present):
        assert agent.written[name] == "Unhealthy"
        assert any(name in ids for ids in held.values())
    if not has_restarted:
        assert {name for ids in held.values() for name in ids} <= set(agent.written)


def json_of(node: Node) -> object:
    try:
        return json.loads(node.value or "")
    except ValueError:
        return None


def test_a_reporter_asks_for_one_thing_at_a_time() -> None:
    reporter = InventoryReporter("n", {FILE: Silence.NOTHING}, heartbeat_s=60, rng=Random(1))
    assert reporter.decide(0.0) is not None
    assert reporter.decide(0.0) is None
    reporter.source_reported(report(*devices("a")), 0.0)
    assert reporter.decide(1.0) is None
