"""Which planned set is meant, case by case: the table of agent.plugins.hand_off; what is reported and
remembered.
"""

from __future__ import annotations

import json

import pytest

from gangsched.agent.plugins.granted import is_whole, report
from gangsched.agent.plugins.hand_off import Granted, Known, NotPlanned, Prefer, prefer, verify
from gangsched.agent.plugins.plan import Given, Memory, NodePods, PlannedPod
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.devices.report import parse_report
from gangsched.model.events import PodAdded, PodDeleted, PodUpdated
from gangsched.model.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus

GPU, NIC = "example.com/gpu", "example.com/nic"
ALL = frozenset("abcdefgh")
NONE = frozenset[str]()


def pod(name: str, started: bool = False, **containers: str) -> PlannedPod:
    """`pod("a", main="cd")`: container main is to have c and d."""
    planned = {container: {GPU: frozenset(ids)} for container, ids in containers.items()}
    return PlannedPod(f"uid-{name}", "default", name, planned, has_started=started)


def written(name: str, ids: str, *, phase: str = "Running") -> Pod:
    """As the API server has it."""
    notes = {ALLOCATED_KEY: json.dumps({"main": {GPU: list(ids)}})}
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", annotations=notes)
    spec = PodSpec(node_name="n1", containers=[Container(name="main")])
    return Pod(meta, spec, PodStatus(phase=phase))


def given(**pods: dict[str, str]) -> Given:
    return {
        ("default", name): {
            container: {GPU: frozenset(ids)} if ids else {} for container, ids in containers.items()
        }
        for name, containers in pods.items()
    }


def known(*pods: PlannedPod, by_kubelet: bool = False, has: Given | None = None) -> Known:
    return Known(pods, has or {}, by_kubelet)


def preferred(count: int, facts: Known, available: str = "abcdefgh", must: str = "") -> str:
    found = prefer(GPU, count, facts, available=frozenset(available), must_include=frozenset(must))
    return "".join(sorted(found.ids)) if isinstance(found, Prefer) else ""


def test_the_only_one_that_is_due_gets_its_own_set() -> None:
    facts = known(pod("a", main="bd"))
    assert preferred(2, facts) == "bd"
    assert verify(GPU, frozenset("bd"), facts) == Granted(facts.pods[0])


@pytest.mark.parametrize("ids", ["ab", "b", "bde"], ids=str)
def test_a_set_that_is_not_planned_is_refused_and_reported(ids: str) -> None:
    found = verify(GPU, frozenset(ids), known(pod("a", main="bd")))
    assert isinstance(found, NotPlanned)
    assert "default/a main (b, d)" in found.why


def test_a_set_that_is_not_free_whole_is_not_preferred() -> None:
    assert preferred(2, known(pod("a", main="bd")), available="abc") == ""


def test_by_kubelets_list_a_pod_gets_its_own_set_and_not_one_left_by_an_exchange() -> None:
    has = given(a={"main": "cd"}, c={"main": ""})
    facts = known(pod("a", main="ab"), pod("c", main="gh"), by_kubelet=True, has=has)
    assert preferred(2, facts) == "gh"


def test_a_container_whose_set_another_has_gets_that_ones_set() -> None:
    has = given(a={"main": "cd"})
    facts = known(pod("a", started=True, main="ab"), pod("b", main="cd"), has=has)
    assert preferred(2, facts, available="abefgh") == "ab"
    assert verify(GPU, frozenset("ab"), facts) == Granted(facts.pods[0])


def test_devices_of_a_pod_that_has_started_are_in_use_though_kubelet_has_lost_them() -> None:
    facts = known(pod("a", started=True, main="ab"), pod("b", main="cd"))
    assert preferred(2, facts) == "cd"
    assert isinstance(verify(GPU, frozenset("ab"), facts), NotPlanned)


def test_but_not_where_kubelet_offers_them_and_not_those_of_the_pod_that_is_due() -> None:
    facts = known(pod("a", started=True, main="ab"), pod("b", main="cd"))
    assert preferred(2, facts, available="abef") == "ab"
    assert isinstance(verify(GPU, frozenset("ab"), facts, preferred=frozenset("ab")), Granted)


def test_a_pod_that_a_new_kubelet_admits_again_gets_its_own_set_and_nobody_elses() -> None:
    """Its containers had ended and kubelet had given up their devices; it died before saying so."""
    has = given(a={"main": ""})
    facts = known(pod("a", started=True, main="ab"), has=has)
    assert preferred(2, facts) == "ab"
    facts = known(pod("b", main="cd"), pod("a", started=True, main="ab"), has=has)
    assert preferred(2, facts) == "ab"
    assert verify(GPU, frozenset("ab"), facts, preferred=frozenset("ab")) == Granted(facts.pods[1])


def test_of_several_due_pods_kubelet_admits_the_one_that_it_lists() -> None:
    facts = known(pod("a", main="ab"), pod("b", main="cd"), has=given(b={"main": ""}))
    assert preferred(2, facts) == "cd"


def test_a_pod_in_the_middle_of_its_admission_goes_on_with_its_own() -> None:
    two = PlannedPod(
        "uid-b", "default", "b", {"main": {NIC: frozenset("1"), GPU: frozenset("cd")}}, has_started=False
    )
    has: Given = {("default", "b"): {"main": {NIC: frozenset("1")}}}
    assert preferred(2, known(pod("a", main="ab"), two, has=has)) == "cd"


def test_a_pod_that_was_given_anothers_first_set_is_given_its_other_sets_too() -> None:
    """Whole pods are exchanged: what they ask of their devices as a whole still holds."""
    one, other = pod("a", first="a", second="bc"), pod("b", first="d", second="ef")
    has = given(b={"first": "a", "second": ""}, a={"first": "", "second": ""})
    facts = known(one, other, has=has)
    assert preferred(2, facts) == "bc"
    facts = known(one, other, has=given(b={"first": "a", "second": "bc"}, a={"first": "d", "second": ""}))
    assert preferred(2, facts) == "ef"


def test_an_init_containers_devices_are_its_pods_and_go_to_the_next_container() -> None:
    facts = known(pod("a", setup="ab", main="abcd"))
    assert preferred(2, facts) == "ab"
    has = given(a={"main": ""})
    facts = known(*facts.pods, has=has)
    assert preferred(4, facts, must="ab") == "abcd"
    assert isinstance(verify(GPU, frozenset("ab"), facts), Granted)


def test_kubelet_may_choose_among_the_devices_of_an_init_container() -> None:
    facts = known(pod("a", setup="abc", one="cd", two="ab"), has=given(a={"one": "", "two": ""}))
    assert isinstance(verify(GPU, frozenset("ac"), facts), Granted)
    assert isinstance(verify(GPU, frozenset("ae"), facts), NotPlanned)


def test_no_due_container_is_final_only_by_kubelets_own_list() -> None:
    for by_kubelet in (True, False):
        found = prefer(
            GPU, 3, known(pod("a", main="ab"), by_kubelet=by_kubelet), available=ALL, must_include=NONE
        )
        assert isinstance(found, NotPlanned)
        assert found.is_final is by_kubelet


def test_a_reading_that_lacks_a_running_pod_is_rejected() -> None:
    running = pod("a", started=True, main="ab")
    assert not is_whole({}, [running])
    assert is_whole(given(a={"main": "ab"}), [running, pod("b", main="cd")])


def test_the_report_has_the_planned_resources_alone() -> None:
    has: Given = {("default", "a"): {"main": {GPU: frozenset("ab"), NIC: frozenset("1")}, "side": {}}}
    read = parse_report(report([GPU], has, [pod("a", main="cd"), pod("b", main="ef")]))
    assert read.resources == (GPU,)
    assert [(one.name, one.containers) for one in read.pods] == [("a", {"main": {GPU: ("a", "b")}})]


def test_what_kubelet_chose_for_pods_without_a_plan_is_reported_apart() -> None:
    """Of resources that the node lists, once kubelet has started them."""
    has = given(a={"main": "ab"}, b={"main": "cd"}, c={"main": "ef"})
    pods = [pod("a", started=True, main="ab"), pod("b", started=True), pod("c")]
    read = parse_report(report([NIC], has, pods, listed=[GPU, NIC]))
    assert not read.pods
    assert [(one.name, one.containers) for one in read.others] == [("b", {"main": {GPU: ("c", "d")}})]
    assert not parse_report(report([NIC], has, pods, listed=[NIC])).others, "the node does not list it"


def test_a_pod_in_the_middle_of_its_admission_is_not_reported_yet() -> None:
    """The scheduler takes who is in the report for admitted."""
    two = pod("a", first="a", second="bc")
    some, all_ = given(a={"first": "a", "second": ""}), given(a={"first": "a", "second": "bc"})
    assert not parse_report(report([GPU], some, [two])).pods
    assert len(parse_report(report([GPU], all_, [two])).pods) == 1
    started = pod("a", started=True, first="a", second="bc")
    assert len(parse_report(report([GPU], some, [started])).pods) == 1


def test_an_ended_pods_devices_are_reported_until_its_annotation_is_right() -> None:
    """It was given another's set, read once, and ended before the scheduler could write that."""
    pods, memory = NodePods(), Memory()
    pods.apply([PodAdded(written("a", "ab")), PodAdded(written("b", "cd"))])
    memory.completed(given(a={"main": "cd"}, b={"main": ""}), pods.all())
    pods.apply([PodUpdated(written("a", "ab", phase="Succeeded"))])
    assert [one.name for one in pods.all()] == ["b"]
    has = memory.completed(given(b={"main": "ab"}), pods.all())
    read = parse_report(report([GPU], has, pods.all(), memory.had(pods.ended())))
    assert [(one.name, one.containers) for one in read.pods] == [("b", {"main": {GPU: ("a", "b")}})]
    assert [(one.name, one.containers) for one in read.ended] == [("a", {"main": {GPU: ("c", "d")}})]
    pods.apply([PodUpdated(written("a", "cd", phase="Succeeded"))])
    assert not parse_report(report([GPU], has, pods.all(), memory.had(pods.ended()))).ended


def test_an_ended_pod_that_had_its_own_or_was_never_read_whole_or_is_deleted_is_not_spoken_of() -> None:
    pods, memory = NodePods(), Memory()
    pods.apply([PodAdded(written(name, ids)) for name, ids in (("a", "ab"), ("b", "cd"), ("c", "ef"))])
    memory.completed(given(a={"main": "ab"}, b={"main": ""}, c={"main": "gh"}), pods.all())
    pods.apply([PodUpdated(written(name, "xy", phase="Failed")) for name in "bc"])
    pods.apply([PodUpdated(written("a", "ab", phase="Failed")), PodDeleted(written("c", "ef"))])
    assert not parse_report(report([GPU], {}, (), memory.had(pods.ended()))).ended


def test_what_a_pod_had_is_remembered_until_it_is_gone_or_another_has_it() -> None:
    memory, running = Memory(), pod("a", started=True, main="cd")
    has = given(a={"main": "ab"})
    assert memory.completed(has, [running]) == has
    assert memory.completed({}, [running]) == has
    successor = PlannedPod("uid-new", "default", "a", running.planned)
    assert memory.completed({}, [successor]) == {}
    assert memory.completed(has, [running]) == has
    other = given(b={"main": "bc"})
    assert memory.completed(other, [running, pod("b", main="bc")]) == other


def test_what_kubelet_lists_of_a_former_pod_is_not_its_successors() -> None:
    """The API server has the pod that was made again; kubelet is busy and has not seen the former one go."""
    memory = Memory()
    former = pod("a", started=True, main="ab")
    assert memory.completed(given(a={"main": "ab"}), [former])
    successor = PlannedPod("uid-new", "default", "a", {"main": {GPU: frozenset("cd")}})
    for _ in range(2):
        has = memory.completed(given(a={"main": "ab"}), [successor])
        assert not parse_report(report([GPU], has, [successor])).pods
    assert memory.completed(given(a={"main": ""}), [successor])
    has = memory.completed(given(a={"main": "cd"}), [successor])
    [one] = parse_report(report([GPU], has, [successor])).pods
    assert (one.uid, one.containers) == ("uid-new", {"main": {GPU: ("c", "d")}})


def test_a_successor_that_has_started_with_the_former_pods_devices_is_reported() -> None:
    memory = Memory()
    memory.completed(given(a={"main": "ab"}), [pod("a", started=True, main="ab")])
    for has_started in (False, True):
        successor = PlannedPod("uid-new", "default", "a", {"main": {GPU: frozenset("ab")}}, has_started)
        has = memory.completed(given(a={"main": "ab"}), [successor])
        assert len(parse_report(report([GPU], has, [successor])).pods) == has_started
