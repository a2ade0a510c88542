"""Keys that begin as ours do and that nobody reads are reported once, with what may be meant."""

from __future__ import annotations

import pytest

from gangsched.config import Settings, parse_config
from gangsched.config.documents import file_with
from gangsched.core.framework.profile import Profile
from gangsched.core.groups.own_keys import PREFIX, ignored_on_object, ignored_on_pod
from gangsched.lab.sim.objects import OURS, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.owners import ORDERED
from gangsched.model.pod_group import MIN_MEMBERS_KEY, GroupKey
from gangsched.model.pod_group import OURS as OURS_DIALECT
from gangsched.plugins import IN_TREE, build_profiles
from tests import controllers as made
from tests.core.queued import queued, reconfigured
from tests.docs import meanings
from tests.support.scenario import Cluster, cluster, gang, with_annotations

LIGHTWEIGHT_LABELS = "pod-group.scheduling.sigs.k8s.io"
GANG = GroupKey(OURS_DIALECT, "d", "g")


def events(c: Cluster) -> list[str]:
    return [one.message for one in c.all(ef.RecordEvent) if one.reason == "KeyIgnored"]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("gangsched.io/waltime", "did you mean gangsched.io/walltime?"),
        ("gangsched.io/wall-time", "did you mean gangsched.io/walltime?"),
        ("gangsched.io/min-counts", "did you mean gangsched.io/min-members?"),
        ("gangsched.io/timeout", "did you mean gangsched.io/schedule-timeout?"),
        ("gangsched.io/Queue", "did you mean gangsched.io/queue?"),
        ("gangsched.io/pod-group", "it is read as a label"),
        ("gangsched.io/colour", "there is no such key"),
        ("gangsched.io/" + "x" * 300, "there is no such key"),
    ],
)
def test_a_gang_that_starts_gets_the_warning_too(key: str, said: str) -> None:
    c = cluster().submit(with_annotations(gang("train", pods=3), {key: "4h"})).run()
    assert c.placed("train")
    [event] = events(c)
    assert event.startswith(f"pod d/train-0: annotation {key[:80]} is ignored"), event
    assert event.endswith(said), event
    assert c.cures("train") == (f"Correct what is ignored: {event}{'.' * (event[-1] != '?')}",)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("gangshed.io/walltime", "walltime"),
        ("gangsched.oi/walltime", "walltime"),
        ("gang-sched.io/waltime", "walltime"),
        ("gangsched.com/schedule-timeout", "schedule-timeout"),
        ("gangshed.oi/min-members", "min-members"),
        ("gangsched/queue", "queue"),
    ],
)
def test_a_domain_that_is_nearly_ours_is_a_slip_of_ours(key: str, meant: str) -> None:
    c = cluster().submit(with_annotations(gang("train", pods=2), {key: "4h"})).run()
    assert events(c) == [f"pod d/train-0: annotation {key} is ignored; did you mean gangsched.io/{meant}?"]
    assert c.cures("train") == (f"Correct what is ignored: {events(c)[0]}",)


def test_a_label_of_a_domain_that_is_nearly_ours_makes_no_gang_and_that_is_reported() -> None:
    c = cluster().submit(make_pod("p", labels={"gangshed.io/pod-group": "train"})).run()
    assert events(c) == [
        "pod d/p: label gangshed.io/pod-group is ignored; did you mean gangsched.io/pod-group?"
    ]


@pytest.mark.parametrize(
    "key",
    [
        "gangshed.io/owner-team",  # no key of ours is named so: somebody else's domain
        "gangscheduler.io/walltime",
        "kubesched.io/walltime",
        "sched.io/walltime",
        "gangsched.io.example.org/walltime",
        "gangs/walltime",
        "walltime",
        "x.devices.gangsched.io/gpu",
    ],
)
def test_somebody_elses_keys_are_not_ours_to_judge(key: str) -> None:
    c = cluster().submit(make_pod("p", annotations={key: "x"}, labels={key: "x"})).run()
    assert not events(c)


def test_many_slips_of_the_domain_cost_no_more_than_a_few() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    slips = {f"gangsc{a}{b}d.io/waltime": "" for a in letters for b in letters if a + b != "he"}
    assert len(ignored_on_pod(make_pod("p", annotations=slips), GANG, has_queues=True)) == 16


def test_a_label_in_place_of_an_annotation_and_the_other_way_round() -> None:
    c = cluster()
    c.submit(make_pod("p", labels={"gangsched.io/min-members": "2", "gangsched.io/podgroup": "p"})).run()
    assert events(c) == [
        "pod d/p: label gangsched.io/min-members is ignored: it is read as an annotation;"
        " label gangsched.io/podgroup is ignored; did you mean gangsched.io/pod-group?"
    ]


def test_a_number_of_members_without_a_gang_is_ignored() -> None:
    """Each of them starts alone, which is what its user meant to prevent."""
    c = cluster().submit(make_pod("p", annotations={"gangsched.io/min-members": "2"})).run()
    assert events(c) == [
        "pod d/p: annotation gangsched.io/min-members is ignored: the pod has no label"
        " gangsched.io/pod-group that names its gang"
    ]


@pytest.mark.parametrize("key", ["gangsched.io/groups", "gangsched.io/total-members"])
def test_what_would_have_a_gang_wait_is_ignored_on_a_pod_that_is_in_none(key: str) -> None:
    own = {key: '["d/train"]' if key.endswith("groups") else "3"}
    c = cluster().submit(make_pod("p", annotations=own)).run()
    assert events(c) == [
        f"pod d/p: annotation {key} is ignored: the pod has no label"
        " gangsched.io/pod-group that names its gang"
    ]


_IN_OTHER_WORDS: list[tuple[dict[str, str], dict[str, str]]] = [
    ({f"{LIGHTWEIGHT_LABELS}/name": "a", f"{LIGHTWEIGHT_LABELS}/min-available": "2"}, {}),
    ({}, {"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "2"}),
    (
        {"applicationId": "a"},
        {
            "yunikorn.apache.org/task-group-name": "w",
            "yunikorn.apache.org/task-groups": '[{"name": "w", "minMember": 2}]',
        },
    ),
]


@pytest.mark.parametrize(("labels", "words"), _IN_OTHER_WORDS)
def test_our_own_words_are_ignored_in_a_gang_that_states_itself_in_anothers(
    labels: dict[str, str], words: dict[str, str]
) -> None:
    """It starts by what those say: without the groups, the timeout and the number that ours ask for."""
    own = {"gangsched.io/groups": '["d/b"]', "gangsched.io/schedule-timeout": "5m", MIN_MEMBERS_KEY: "3"}
    said = (
        "it is read only in gangs of the label gangsched.io/pod-group; another system's keys make this gang"
    )
    c = (
        cluster()
        .submit(*(make_pod(f"a-{k}", labels=labels, annotations=words | own) for k in range(2)))
        .run()
    )
    assert c.placed("a")
    told = "; ".join(f"annotation {key} is ignored: {said}" for key in own)
    assert events(c) == [f"pod d/a-0: {told}"]
    fine = {MIN_MEMBERS_KEY: "2", "gangsched.io/walltime": "4h"}
    pods = [make_pod(f"a-{k}", labels=labels, annotations=words | fine) for k in range(2)]
    assert not events(cluster().submit(pods).run())


def of_pod_group(own: dict[str, str], name: str = "a", n: int = 2) -> list[Pod]:
    labels = {"scheduling.x-k8s.io/pod-group": "a"}
    return [make_pod(f"{name}-{i}", labels=labels, annotations=own) for i in range(n)]


@pytest.mark.parametrize("text", ["3", "many"])
def test_a_number_of_members_beside_a_pod_group_with_another_number_is_ignored(text: str) -> None:
    c = cluster().object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    c.submit(of_pod_group({MIN_MEMBERS_KEY: text})).run()
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2}, annotations={"x": "y"})).run()
    assert c.placed("a")
    said = f"it says '{text}', but the gang's PodGroup counts, and it says 2"
    assert events(c) == [f"pod d/a-0: annotation {MIN_MEMBERS_KEY} is ignored: {said}"]
    assert c.cures("a") == (f"Correct what is ignored: {events(c)[0]}.",)


def test_the_same_number_beside_a_pod_group_is_no_mistake_and_another_one_is_once_the_object_comes() -> None:
    c = cluster().submit(of_pod_group({MIN_MEMBERS_KEY: "2"})).run()
    assert not events(c)
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2})).run()
    assert not events(c)
    waits = cluster().submit(of_pod_group({MIN_MEMBERS_KEY: "2"})).run()
    waits.object("coscheduling", make_pod_group("a", spec={"minMember": 5})).run()
    assert [event.rpartition(" ")[2] for event in events(waits)] == ["5"]


def test_what_a_pod_group_says_for_all_members_is_not_read_on_its_pods() -> None:
    own = {"gangsched.io/schedule-timeout": "5m", "gangsched.io/total-members": "4"}
    c = cluster().object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    c.submit(gang("ours", pods=1)).run()  # where they are read
    c.submit(with_annotations(gang("ours-too", pods=4), own)).run()
    assert not events(c)
    c.submit(of_pod_group(own)).run()
    assert events(c) == [
        "pod d/a-0: "
        + "; ".join(
            f"annotation {key} is ignored: it is read only on the gang's PodGroup, for all members"
            for key in own
        )
    ]


_QUEUES = "queues: [{name: team, namespaces: [d]}]"
_NO_QUEUES = "gangsched.io/queue is ignored: no queues are configured, so the pod is in none"


def test_a_queue_where_none_are_configured_is_ignored() -> None:
    c = queued("", nodes=2).submit(with_annotations(gang("train", pods=3), {"gangsched.io/queue": "team"}))
    c.submit(make_pod("p", labels={"gangsched.io/queue": "team"})).run()
    c.submit(make_pod("named-nothing", annotations={"gangsched.io/queue": ""})).run()
    assert events(c) == [f"pod d/train-0: annotation {_NO_QUEUES}", f"pod d/p: label {_NO_QUEUES}"]
    assert c.cures("train") == (f"Correct what is ignored: {events(c)[0]}.",)
    quiet = queued(_QUEUES).submit(make_pod("p", annotations={"gangsched.io/queue": "team"})).run()
    assert not events(quiet)


def test_of_lone_pods_that_name_a_queue_where_none_are_configured_the_first_is_reported() -> None:
    def lone(name: str, namespace: str, queue: str) -> list[Pod]:
        return [make_pod(name, gpus=0, namespace=namespace, annotations={"gangsched.io/queue": queue})]

    c = queued("", nodes=2)
    for k in range(3):
        c.submit(lone(f"p{k}", "d", "team"), lone(f"q{k}", "e", "team"), lone(f"r{k}", "d", "other")).run()
    first = ["pod d/p0", "pod e/q0", "pod d/r0"]
    assert [event.partition(":")[0] for event in events(c)] == first
    assert c.cures("p2") == (f"Correct what is ignored: pod d/p2: annotation {_NO_QUEUES}.",)
    reconfigured(c, "").submit(lone("later", "d", "team")).run()
    assert [event.partition(":")[0] for event in events(c)] == [*first, "pod d/later"]


def test_a_queue_counts_once_queues_are_configured_and_no_longer_when_they_are_not() -> None:
    """Also with plugins that read no metadata, for which pods that are alike are looked at once."""
    few = "{multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}]}}"

    def scheduler(queues: str) -> tuple[dict[str, Profile], Settings]:
        text = file_with(queues).replace("}]\n---", f", plugins: {few}}}]\n---")
        config = parse_config(text, source="f.yaml", plugins=IN_TREE)
        return build_profiles(config), config.settings

    def lone(name: str) -> list[Pod]:
        return [make_pod(name, gpus=0, annotations={"gangsched.io/queue": "team"})]

    c = cluster(settings=scheduler(_QUEUES)[1]).submit(lone("a")).run()
    for queues, name in (("", "b"), (_QUEUES, "c")):
        c.effects += c.scheduler.reconfigure(*scheduler(queues), c.now_s)[0]
        c.submit(lone(name)).run()
    assert [event.partition(":")[0] for event in events(c)] == ["pod d/b"]


def test_a_controllers_gang_needs_no_label_for_its_number() -> None:
    job = made.job_set("a", {"workers": (1, 2)})
    c = cluster(nodes=2, settings=Settings(infer_gangs={OURS: ORDERED})).tell(ev.OwnerPut(made.owner(job)))
    pods = with_annotations(made.decoded(made.job_set_pods("a", {"workers": (1, 2)})), {MIN_MEMBERS_KEY: "1"})
    assert not events(c.submit(pods).run())


def test_keys_that_were_good_on_one_pod_are_looked_at_again_where_it_matters() -> None:
    c = cluster().submit(gang("train", pods=1)).run().submit(make_pod("p", min_members=2)).run()
    assert [event.partition(":")[0] for event in events(c)] == ["pod d/p"]
    many = [make_pod(f"m-{i}", annotations={f"a/{i}-{k}": "" for k in range(3000)}) for i in range(3)]
    c.submit(many, make_pod("q", annotations={"gangsched.io/waltime": ""})).run()
    assert [event.partition(":")[0] for event in events(c)] == ["pod d/p", "pod d/q"]


def test_a_gang_without_its_number_learns_under_which_name_it_is_there() -> None:
    pod = make_pod("p", labels={"gangsched.io/pod-group": "g"}, annotations={"gangsched.io/min-member": "2"})
    c = cluster().submit(pod).run()
    assert c.said("p").endswith(
        "as a string; annotation gangsched.io/min-member is ignored; did you mean gangsched.io/min-members?"
    )


def test_a_pod_group_gets_the_warning_even_before_it_has_pods() -> None:
    own = {"gangsched.io/waltime": "4h", "gangsched.io/queue": "a", "gangsched.io/walltime": "4h"}
    c = cluster().object("coscheduling", make_pod_group("a", spec={"minMember": 1}, annotations=own)).run()
    [event] = c.all(ef.RecordEvent)
    assert (event.kind, event.name) == ("PodGroup", "a")
    assert event.message == (
        "PodGroup d/a: annotation gangsched.io/waltime is ignored; did you mean gangsched.io/walltime?;"
        " annotation gangsched.io/queue is ignored: it is read on pods"
    )
    c.submit(make_pod("a-0", labels={"scheduling.x-k8s.io/pod-group": "a"})).run()
    assert c.cures("a") == (f"Correct what is ignored: {event.message}.",)
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2}, annotations=own)).run()
    assert len(events(c)) == 1


def test_it_is_reported_once_a_group_and_again_for_another_slip_after_an_edit() -> None:
    c = cluster(nodes=1, gpus=1).submit(gang("train", pods=1, gpus=8)).run()
    for key in ("gangsched.io/waltime", "gangsched.io/waltime", "gangsched.io/topologie"):
        c.submit(with_annotations([c.pod("train-0")], {key: "x"})).run()
    assert [event.rpartition("mean ")[2] for event in events(c)] == [
        "gangsched.io/walltime?",
        "gangsched.io/topology?",
    ]


def test_many_are_named_in_a_bounded_sentence_and_no_edit_makes_an_endless_stream() -> None:
    c = cluster()
    c.submit(with_annotations(gang("g", pods=1), {f"gangsched.io/x{i}": "" for i in range(5000)})).run()
    [event] = events(c)
    assert event.endswith("; and 13 more")
    assert all(len(cure) <= 1024 for cure in c.cures("g"))
    for i in range(30):
        c.submit(with_annotations([c.pod("g-0")], {f"gangsched.io/y{i}": ""})).run()
    assert len(events(c)) == 1


def test_what_runs_when_the_scheduler_starts_is_not_reported_again() -> None:
    c = cluster().submit(with_annotations(gang("train", pods=1), {"gangsched.io/waltime": "4h"})).run()
    assert len(events(c.restart().run())) == 1


def test_each_key_of_the_reference_is_read_where_it_says() -> None:
    """docs/annotations.md has what is read, and what the scheduler itself writes."""
    places = {
        "Pod or PodGroup": {"Pod", "PodGroup"},
        "Pod": {"Pod"},
        "Pod, ResourceClaim": {"Pod"},
        "Pod, label": {"Pod, label"},
        "Pod, annotation or label": {"Pod", "Pod, label"},
    }
    for key, (on, _, _) in meanings.KEYS.items():
        found = {
            "Pod": ignored_on_pod(make_pod("p", annotations={key: "x"}), GANG, has_queues=True),
            "Pod, label": ignored_on_pod(make_pod("p", labels={key: "x"}), GANG, has_queues=True),
            "PodGroup": ignored_on_object(make_pod_group("g", annotations={key: "x"}).metadata),
        }
        if key.startswith(PREFIX):
            assert {place for place, ignored in found.items() if not ignored} == places.get(on, set()), key
        else:
            assert not any(found.values()), key
