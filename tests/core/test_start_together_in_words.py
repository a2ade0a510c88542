"""Groups that start together and are stated in different words: a list has names alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.types.group import Group
from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.lab.sim.world.streams import API_VERSIONS
from gangsched.model import events as ev
from gangsched.model.objects import Pod, SchedulingGroup
from gangsched.model.pod_group import CORE, COSCHEDULING, GROUPS_KEY
from tests import controllers as made
from tests.core.test_owners import ALL
from tests.core.test_start_together import listing
from tests.support.scenario import Cluster, cluster, gang, with_annotations

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def lists(*names: str) -> dict[str, str]:
    return {GROUPS_KEY: json.dumps(names)}


def core(c: Cluster, name: str, *others: str, pods: int = 1, prefix: str = "") -> list[Pod]:
    """A core PodGroup, known to the cluster, and its pods."""
    spec = {"schedulingPolicy": {"gang": {"minCount": pods}}}
    c.object(CORE, make_pod_group(name, uid=f"core-{name}", spec=spec, annotations=lists(name, *others)))
    plain = [make_pod(f"{prefix or name}-{k}") for k in range(pods)]
    return [replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup(name))) for pod in plain]


def coscheduling(c: Cluster, name: str, *others: str, pods: int = 1, prefix: str = "") -> list[Pod]:
    """A PodGroup of Coscheduling, known to the cluster, and its pods."""
    own = lists(name, *others)
    c.object(COSCHEDULING, make_pod_group(name, uid=f"co-{name}", spec={"minMember": pods}, annotations=own))
    return [make_pod(f"{prefix or name}-{k}", labels={POD_GROUP_LABEL: name}) for k in range(pods)]


def job(name: str, *others: str, uid: str) -> list[Pod]:
    """Two pods of an Indexed Job, whose gang is inferred; they state what it starts with."""
    pods = with_annotations(made.decoded(made.job_pods(name, 2, uid=uid)), lists(name, *others))
    named = [f"{name}-{k}-{uid}" for k in range(2)]
    return [replace(p, metadata=replace(p.metadata, name=n, uid=n)) for p, n in zip(pods, named, strict=True)]


def test_a_core_group_and_one_of_coscheduling_wait_for_each_other_and_start_together() -> None:
    c = cluster(nodes=2)
    c.submit(core(c, "a", "b", pods=2)).run()
    assert c.state("a") == "waiting"
    c.submit(coscheduling(c, "b", "a", pods=3)).run()
    assert c.placed("a")
    assert c.placed("b")


def test_a_new_status_that_comes_with_the_first_pods_hides_no_list() -> None:
    c = cluster(nodes=2)
    pods = core(c, "a", "b")
    item = c.objects[CORE, "a"]
    with_status = ev.PodGroupUpdated(CORE, API_VERSIONS[CORE], replace(item, status={"phase": "Pending"}))
    c.tell(*(ev.PodAdded(c.store(pod)) for pod in pods), with_status).run()
    c.submit(listing("b", ["a"])).run()
    assert c.placed("a")
    assert c.placed("b")


def test_whoever_waits_starts_at_once_when_one_that_runs_lists_it() -> None:
    c = cluster(nodes=2)
    c.submit(core(c, "a")).run()
    assert c.placed("a")
    c.submit(core(c, "b", "a")).run()
    assert c.state("b") == "waiting"
    core(c, "a", "b")
    c.run()
    assert c.placed("b")


def test_whoever_waits_starts_at_once_when_one_that_has_lost_members_is_known_again() -> None:
    c = cluster(nodes=2)
    c.submit(core(c, "a", "b", pods=2), core(c, "b", "a")).run()
    assert c.placed("a")
    c.delete("a-1", "b-0")
    known = c.objects.pop((CORE, "a"))
    c.restart().submit(core(c, "b", "a", prefix="b2")).run()
    assert c.state("b") == "waiting"
    c.object(CORE, known).run()
    assert c.state("b") == "bound"


def test_groups_that_wait_for_one_with_unreadable_numbers_report_why() -> None:
    c = cluster(nodes=2)
    c.submit(core(c, "a", "b"), core(c, "b", "a"))
    item = c.objects[CORE, "a"]
    c.object(CORE, replace(item, spec={"schedulingPolicy": {"gang": {"minCount": -1}}})).run()
    assert "list this group (PodGroup d/a: spec.schedulingPolicy.gang.minCount: " in c.said("b-0")
    c.object(CORE, item).run().wait(2.0)
    assert c.placed("a")
    assert c.placed("b")


def test_neither_starts_where_only_one_fits() -> None:
    c = cluster(nodes=1, gpus=4)
    c.submit(core(c, "a", "b", pods=2), coscheduling(c, "b", "a", pods=3)).run()
    assert c.untouched("a")
    assert c.untouched("b")
    c.node(make_node("more", gpus=1)).run().wait(2.0)
    assert c.placed("a")
    assert c.placed("b")


def test_whoever_is_not_listed_by_the_other_waits_for_it_in_any_words() -> None:
    c = cluster(nodes=2)
    c.submit(core(c, "a", "b"), listing("b", ["c"])).run()
    assert c.state("a") == "waiting"
    assert "group d/b does not exist, or does not list this group" in c.said("a-0")


def two_pairs(c: Cluster) -> tuple[list[Pod], ...]:
    """Pairs of the same names, one in the words of the core API and one in Coscheduling's."""
    return (
        core(c, "a", "b", prefix="core-a"),
        core(c, "b", "a", prefix="core-b"),
        coscheduling(c, "a", "b", prefix="co-a"),
        coscheduling(c, "b", "a", prefix="co-b"),
    )


def test_a_name_means_the_group_in_the_same_words_first() -> None:
    c = cluster(nodes=2)
    core_a, core_b, co_a, co_b = two_pairs(c)
    c.submit(core_a, co_b).run()
    assert c.placed("core-a"), "the only other one of that name"
    assert c.placed("co-b")
    c = cluster(nodes=2)
    core_a, core_b, co_a, co_b = two_pairs(c)
    c.submit(core_a, co_a, co_b).run()
    assert not c.placed("core-a")
    assert c.placed("co-a")
    assert c.placed("co-b")
    c.submit(core_b).run()
    assert c.placed("core-a")
    assert c.placed("core-b")


def test_which_of_two_in_other_words_is_meant_is_known_when_one_is_gone() -> None:
    c = cluster(nodes=2)
    c.submit(listing("a", ["b"]), core(c, "b", "a", prefix="core-b"))
    c.submit(coscheduling(c, "b", "a", prefix="co-b")).run()
    assert not any(c.placed(name) for name in ("a", "core-b", "co-b"))
    c.delete("co-b-0").run()
    assert c.placed("a")
    assert c.placed("core-b")


def with_two_of_a_name(c: Cluster) -> Sequence[list[Pod]]:
    """a - b - c - a': the first two are of the core API, the others are not. When the last is gone, c means
    the first."""
    return (
        core(c, "a", "b", "c", prefix="core-a"),
        core(c, "b", "a", "c"),
        coscheduling(c, "c", "b", "a"),
        coscheduling(c, "a", "c", prefix="co-a"),
    )


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (3, 0, 2, 1), (2, 0, 3, 1), (1, 3, 0, 2)])
def test_a_set_in_which_two_have_one_name_is_refused_until_one_is_gone(order: tuple[int, ...]) -> None:
    c = cluster(nodes=2, settings=Settings(permit_wait_s=5.0))
    groups = with_two_of_a_name(c)
    for i in order:
        c.submit(groups[i]).run()
    c.wait(40.0)
    for pods in groups:
        assert c.said(pods[0].metadata.name).endswith(
            "starts together with two groups named d/a, a core one and a coscheduling one, and "
            "gangsched.io/groups cannot tell them apart: rename one of them"
        )
    assert not any(pod.spec.node_name for pod in c.pods.values())
    c.five_more_turns_change_nothing()
    c.delete("co-a-0").run().wait(1.0)
    assert all(c.placed(name) for name in ("core-a", "b", "c"))


def test_a_refused_set_that_a_third_group_of_a_name_parts_is_tried_at_once() -> None:
    """a - b - z - a': b means the only z. With two it is not known which, and a and b are a set without."""
    c = cluster(nodes=4, settings=Settings(permit_wait_s=5.0))
    c.submit(core(c, "a", "b", prefix="core-a"), core(c, "b", "a", "z"))
    c.submit(coscheduling(c, "z", "b", "a", prefix="co-z"))
    c.submit(coscheduling(c, "a", "z", prefix="co-a")).run().wait(20.0)
    assert "two groups named d/a" in c.said("core-a-0")
    c.submit(listing("z", ["b"])).run().wait(8.0)
    for name in ("core-a", "b"):
        assert "two groups named" not in c.said(f"{name}-0"), name
    c.delete("z-0").run()
    assert "two groups named d/a" in c.said("core-a-0"), "one z is left, and means a'"


def inferring() -> Cluster:
    """Each pod takes a node, and two generations have room."""
    c = cluster(nodes=8, settings=ALL)
    for name in ("a", "b"):
        c.tell(ev.OwnerPut(made.owner(made.job(name, parallelism=2))))
    return c


def test_two_jobs_whose_gangs_are_inferred_start_together() -> None:
    c = inferring().submit(job("a", "b", uid="1")).run()
    assert c.state("a") == "waiting"
    c.submit(job("b", "a", uid="2")).run()
    assert c.placed("a")
    assert c.placed("b")


@pytest.mark.parametrize("uids", [("5", "6"), ("5", "3"), ("0", "3"), ("0", "6")])
def test_recreated_jobs_start_together_at_the_latest_when_their_predecessors_are_gone(
    uids: tuple[str, str],
) -> None:
    """Four gangs of two names: whose UIDs come first is by chance."""
    c = inferring().submit(job("a", "b", uid="1"), job("b", "a", uid="4")).run()
    assert c.placed("a")
    assert c.placed("b")
    old = [pod.metadata.name for pod in c.pods.values()]
    for name in old:
        c.leave(name)
    c.submit(job("a", "b", uid=uids[0]), job("b", "a", uid=uids[1])).run()
    c.wait(3.0).delete(*old).run().wait(3.0)
    assert c.placed("a")
    assert c.placed("b")


def meant(groups: Sequence[Group], name: str, dialect: str) -> Group | None:
    """By the rule as the docs have it."""
    named = [one for one in groups if str(one.key) == name and one.start_together]
    own = [one for one in named if one.key.dialect == dialect]
    return own[0] if own else named[0] if len(named) == 1 else None


def together(groups: Sequence[Group], group: Group) -> list[Group]:
    """All that it is tied to, directly or through others, itself first."""
    found = [group]
    for one in found:
        for name in one.start_together:
            other = meant(groups, name, one.key.dialect)
            if other is None or str(one.key) not in other.start_together or other in found:
                continue
            if meant(groups, str(one.key), other.key.dialect) is one:
                found.append(other)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_whoever_comes_goes_or_is_edited_sets_are_those_of_the_rule(seed: int) -> None:
    rng = Random(f"words {seed}")
    c = cluster(nodes=1, gpus=0)
    n_tied = n_refused = 0
    for step in range(120):
        pods = [pod.metadata.name for pod in c.pods.values()]
        if len(pods) > 9 or (pods and rng.random() < 0.3):
            c.delete(rng.choice(pods))
        else:
            name, *others = rng.sample("abcd", rng.randint(1, 4))
            stated = rng.choice((core, coscheduling))
            if rng.random() < 0.3:
                own = listing(name, others, first=step) if others else gang(name, pods=1, first=step)
                c.submit(own)
            else:
                c.submit(stated(c, name, *others, prefix=f"{stated.__name__}-{name}-{step}"))
        shared = c.scheduler.shared
        groups = c.groups()
        for group in groups:
            tied = together(groups, group)
            names = [str(one.key) for one in tied]
            is_refused = len(set(names)) < len(names)
            n_refused += is_refused
            assert bool(shared.start_together.problem(group)) == is_refused, (
                f"seed {seed}, step {step}: {group}"
            )
            expected = {} if is_refused else {str(one.key): one for one in tied[1:]}
            n_tied += len(expected)
            assert dict(shared.siblings(group)) == expected, f"seed {seed}, step {step}: {group}"
    assert n_tied
