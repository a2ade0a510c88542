"""A large gang that waits: every member says why or who does, and a change costs a few writes only."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.core.state.reporter import N_SPEAKERS
from gangsched.lab.sim.objects import make_node, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Condition, Pod
from tests.core.test_groups import core_pod, core_spec
from tests.support.scenario import Cluster, cluster, gang, with_annotations

N_PODS = 200
THEN = "; for 60 s at most, then all is given back and tried again"
POINTER = "gang d/a waits as a whole: its first 5 pods by name say why"


def large(n: int, *, first: int = 0, **more: int) -> list[Pod]:
    return gang("a", pods=n, gpus=1, first=first, min_members=more.get("min_members", N_PODS))


def tell_all(c: Cluster, pods: list[Pod]) -> Cluster:
    return c.tell(*(ev.PodUpdated(c.store(pod)) for pod in pods)).run()


def written(c: Cluster) -> dict[str, str]:
    """The conditions written since the last `clear`, by pod."""
    return {c.name: c.message for c in c.all(ef.WritePodCondition)}


def text_of_speakers(c: Cluster) -> str:
    """What the first pods by name say, each the same."""
    infos = sorted(c.group("a").members.values(), key=lambda info: info.pod.metadata.name)
    (text,) = {info.reported for info in infos[:N_SPEAKERS]}
    return text


def test_a_gang_that_does_not_fit_says_why_on_a_few_and_points_there_from_all_others() -> None:
    c = tell_all(cluster(nodes=1), large(N_PODS))
    assert text_of_speakers(c).startswith("gang d/a: 8 of 200 fit; member a-")
    says = written(c)
    assert len(says) == N_PODS, "every pending pod says why, or where it is told"
    assert sorted(says.values()).count(POINTER) == N_PODS - N_SPEAKERS
    assert len(c.all(ef.WritePodCondition)) == N_PODS


def test_each_change_of_the_count_writes_a_few_pods() -> None:
    """A node more each time: 16 fit, 24 fit, …; it wrote all 200 pods for each."""
    c = tell_all(cluster(nodes=1), large(N_PODS))
    for i in range(1, 6):
        c.clear().node(make_node(f"n{i}")).run().wait(20.0)
        assert f"{8 * (i + 1)} of 200 fit" in text_of_speakers(c)
        assert len(c.all(ef.WritePodCondition)) == N_SPEAKERS
        assert c.reasons() == ["FailedScheduling"]


def test_a_gang_that_gathers_writes_each_new_member_once() -> None:
    c = tell_all(cluster(nodes=40), large(100)).wait(6.0)
    assert text_of_speakers(c) == "gang d/a waits for members: 100 of 200 exist"
    for k in range(100, 110):
        c.clear()
        tell_all(c, large(1, first=k)).wait(6.0)
        assert text_of_speakers(c) == f"gang d/a waits for members: {k + 1} of 200 exist"
        assert len(c.all(ef.WritePodCondition)) <= 1 + 2 * N_SPEAKERS
    assert {c.pods[uid].metadata.name for uid in c.pods} == {f"a-{k}" for k in range(110)}


def test_a_gang_that_waits_reserved_for_the_rest_of_it_writes_a_few_for_each_that_comes() -> None:
    total = {"gangsched.io/total-members": str(N_PODS)}
    c = tell_all(cluster(nodes=40), with_annotations(large(100, min_members=50), total))
    assert text_of_speakers(c) == "gang d/a is reserved and waits: 100 of 200 members are here" + THEN
    for k in range(100, 110):
        c.clear()
        tell_all(c, with_annotations(large(1, first=k, min_members=50), total))
        assert text_of_speakers(c) == f"gang d/a is reserved and waits: {k + 1} of 200 members are here{THEN}"
        assert len(c.all(ef.WritePodCondition)) <= 1 + 2 * N_SPEAKERS


def test_the_same_members_have_the_message_after_a_restart() -> None:
    c = tell_all(cluster(nodes=1), large(N_PODS))
    for effect in c.all(ef.WritePodCondition):
        pod = c.pods[effect.uid]
        told = (Condition(effect.type, effect.status, effect.reason, effect.message),)
        c.store(pod, status=replace(pod.status, conditions=told))
    c.clear().restart().run()
    assert not c.all(ef.WritePodCondition)


def test_the_group_has_the_full_text_too() -> None:
    c = cluster(nodes=1).object("core", make_pod_group("a", spec=core_spec(20)))
    tell_all(c, [core_pod(f"a-{k}", "a", gpus=1) for k in range(20)])
    (condition,) = c.all(ef.WritePodGroupStatus)[-1].status["conditions"]
    assert condition["message"] == text_of_speakers(c)
    assert {e.kind for e in c.all(ef.RecordEvent)} == {"PodGroup"}


def test_when_a_member_with_the_message_goes_the_next_one_gets_it() -> None:
    c = tell_all(cluster(nodes=1), large(N_PODS + 50)).clear()
    c.delete("a-0")
    c.node(make_node("n1")).run().wait(20.0)
    assert "16 of 200 fit" in text_of_speakers(c)
    assert len(c.all(ef.WritePodCondition)) == N_SPEAKERS


def test_a_small_gang_says_it_on_every_member() -> None:
    c = tell_all(cluster(nodes=1), gang("a", pods=N_SPEAKERS, gpus=2))
    assert len(set(written(c).values())) == 1
    assert POINTER not in written(c).values()
