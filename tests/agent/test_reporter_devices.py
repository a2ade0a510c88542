"""Which devices the Node says there are, and how they are: scenarios in virtual time.

Not here: when it is read and written (test_reporter.py).
"""

from __future__ import annotations

import json
from random import Random

import pytest

from gangsched.agent.report.reports import Silence
from gangsched.agent.report.source_reports import SILENT_S
from gangsched.model.devices.annotations import Device, parse_inventory
from gangsched.model.events import ObjectRefused
from tests.agent.virtual import (
    FILE,
    GPU,
    HEARTBEAT_S,
    Node,
    Virtual,
    devices,
    gone,
    now,
    on_node,
    settled,
    there,
)

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


def test_a_pod_that_cannot_be_read_at_all_keeps_what_it_had_and_is_named_once_until_it_can() -> None:
    agent = settled("a", "b")
    agent.pods(there("p", "a"))
    for _ in range(3):
        agent.pods(ObjectRefused("Pod", "default", "p", "uid-p", "Expected `object`, got `int`"))
        agent.run(2.0)
    agent.found(*devices("b"))
    agent.run(2.0)
    assert agent.written == {"b": "Healthy", "a": "Unhealthy"}
    assert agent.said.count("pod default/p cannot be read: Expected `object`, got `int`") == 1
    agent.pods(now("p"))
    agent.run(2.0)
    assert agent.written == {"b": "Healthy"}
    assert "resolved: pod default/p cannot be read" in agent.said


# -- an agent that restarts ----------------------------------------------------------------------------


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
    assert "resolved: /devices: is not JSON" in agent.said


def test_an_id_that_no_source_could_list_is_not_taken_over_from_the_node() -> None:
    """Whoever may patch Nodes may have written it: as a part of a path it leads out of its directory."""
    agent = Virtual(on_node("a", "../../..", "a,b"))
    agent.pods(there("p", "a", "../../..", "a,b"))
    agent.all_pods_known()
    agent.found(problems=("/devices: is not JSON",), whole=False)
    agent.run()
    assert agent.written == {"a": "Healthy"}


def test_a_predecessors_nonsense_is_reported_and_replaced() -> None:
    node = Node()
    node.annotations["gangsched.io/devices"] = "nonsense"
    agent = Virtual(node)
    agent.found(*devices("a"))
    agent.run()
    assert agent.written == {"a": "Healthy"}
    assert "is not readable and replaced" in agent.said


def test_a_node_without_devices_is_left_alone_and_the_searched_places_are_reported() -> None:
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


# -- all at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_the_node_says_in_the_end_what_is_so(seed: int) -> None:
    """Random devices, pods, outages, strangers and restarts; then quiet, and everything must be right.

    Where a stranger wipes the annotation and the agent restarts before it has seen that, a vanished device
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
            node.made_again(f"uid-{step}")
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


def test_a_device_that_fails_while_the_api_server_is_away_is_known_as_sick_on_the_node_itself() -> None:
    """kubelet gets its list from here, and still admits pods that were bound before."""
    agent = settled("a", "b")
    agent.node.down = True
    agent.run(2 * HEARTBEAT_S, again=devices("a", "b"))
    agent.run(1.0, again=devices("a", "b", sick=("b",)))
    listed = agent.reporter.listed
    assert listed is not None
    assert [device.health for device in listed[GPU].values()] == ["Healthy", "Unhealthy"]
    agent.node.down = False
    agent.run(40.0, again=devices("a", "b", sick=("b",)))
    assert agent.written == {"a": "Healthy", "b": "Unhealthy"}


def test_before_the_node_was_read_nothing_is_listed() -> None:
    """Devices that a predecessor listed may be held still."""
    agent = Virtual()
    agent.node.down = True
    agent.found(*devices("a"))
    agent.run(30.0)
    assert agent.reporter.listed is None
