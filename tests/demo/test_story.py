"""The demo's story comes true on the core alone, and says so when it does not."""

from __future__ import annotations

import pytest

from gangsched.core.explaining.reports import view_groups
from gangsched.lab.demo.names import host_list, id_list, seconds
from gangsched.lab.demo.play import Play, StoryFailed
from gangsched.lab.demo.scene import DELETED, RUNNING, Chronicle, promise_of
from gangsched.lab.demo.shows.summary import summary
from gangsched.lab.demo.story import STORY, held_by
from gangsched.lab.sim.objects import make_pod
from gangsched.model import effects as ef
from tests.demo.rehearsal import Rehearsal
from tests.support.scenario import cluster


def words(play: Rehearsal, name: str) -> list[str]:
    """The states that a group was seen in, in order."""
    return list(dict.fromkeys(change.seen.word for change in play.seen.history(name)))


async def test_every_step_happens() -> None:
    play = await Rehearsal().play()
    assert not play.seen.broken
    assert words(play, "lone")[-1] == RUNNING
    assert words(play, "train")[-2:] == [RUNNING, DELETED]
    assert words(play, "learners") == ["waiting", "running"]
    assert words(play, "pretrain") == ["unschedulable", "running", "deleted"]
    assert words(play, "evaluate") == ["waiting", "backoff", "unschedulable", "deleted"]
    assert words(play, "notebook") == ["unschedulable", "bound", "running"]
    assert words(play, "simulate") == ["running", "ended"]
    assert words(play, "finetune") == ["unschedulable", "bound", "running"]
    assert words(play, "probe") == ["running", "ended"]
    assert words(play, "nightly") == ["unschedulable"]
    assert words(play, "rollout")[-1] == RUNNING
    assert words(play, "sweep") == ["unschedulable"]


async def test_it_lasts_as_long_as_people_can_follow() -> None:
    play = await Rehearsal().play()
    assert 20 < play.seen.scene.at_s < 75


async def test_the_story_has_the_numbers_that_were_seen() -> None:
    play = await Rehearsal().play()
    shown = [frame.shows for frame in play.frames]
    assert len(shown) == len(STORY)
    assert all(shown)
    assert "4 nodes in r1, 32 GPUs" in shown[1]
    assert "for 6 s at most" in shown[7]


async def test_the_senders_go_where_links_have_room() -> None:
    play = await Rehearsal().play()
    stream = play.seen.scene.group("stream")
    assert stream is not None
    assert {holding.node for holding in stream.view.holds} <= {f"n{i}" for i in range(9, 17)}


async def test_the_notebook_inherits_what_was_held() -> None:
    play = await Rehearsal().play()
    held = held_by(play.seen, "evaluate")
    heir = play.seen.scene.group("notebook")
    assert heir is not None
    assert len(held) == 8
    assert sorted(held) == sorted(heir.view.ids)


async def test_a_gang_is_promised_a_start_and_small_ones_fill_in_before_it() -> None:
    play = await Rehearsal().play()
    first = {name: play.seen.history(name)[0].at_s for name in ("simulate", "finetune", "probe")}
    told = next(change for change in play.seen.history("finetune") if promise_of(change.seen))
    started = next(change for change in play.seen.history("finetune") if change.seen.word == RUNNING)
    assert first["simulate"] < first["finetune"] < told.at_s <= first["probe"] + 1.0 < started.at_s
    assert promise_of(told.seen) in play.frames[13].shows
    assert started.at_s < first["simulate"] + 16.0, "as promised by what the simulation says of itself"
    probe, gang = (play.seen.scene.group(name) for name in ("probe", "finetune"))
    assert probe is not None
    assert gang is not None
    bound = next(change.seen.view for change in play.seen.history("probe") if change.seen.view.nodes)
    assert set(bound.nodes) < set(gang.view.nodes), "it had two of the nodes that were kept"


async def test_all_claims_are_reserved_before_the_first_pod_is_bound() -> None:
    """As the story tells; the gang after it writes none."""
    play = await Rehearsal().play()
    sent = [one for one in play.world.effects if isinstance(one, ef.PatchClaim | ef.BindPod)]
    first = next(i for i, one in enumerate(sent) if isinstance(one, ef.BindPod) and "rollout" in one.name)
    claimed = [i for i, one in enumerate(sent) if isinstance(one, ef.PatchClaim) and one.is_status]
    assert len(claimed) == 4
    assert max(claimed) < first
    assert {one.name for one in play.world.all(ef.PatchClaim)} == {f"rollout-{k}-gpu" for k in range(4)}


async def test_a_step_that_does_not_happen_ends_it_and_says_what_is_missing() -> None:
    play = Rehearsal(nodes=3)
    with pytest.raises(StoryFailed) as failed:
        await play.play()
    said = str(failed.value)
    assert said.startswith("step 2, “A training gang of 4 pods with 8 GPUs each: all four start, or none”: ")
    assert "train is unschedulable (0 reserved, 0 bound, 0 running of 4), it should be running" in said
    assert "2 of 4 fit" in said, "the lone pod has a node too"
    assert "\n" not in said


async def test_a_gang_seen_bound_in_part_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Rehearsal()
    play.world.answer = lambda bind: "500" if bind.name == "train-3" and bind.attempt == 1 else "ok"
    with pytest.raises(
        StoryFailed, match=r"a promise was seen broken: default/train was bound in part: 3 of 4"
    ):
        await Play(play, play.lines, clock=lambda: play.world.now_s, sleep=half_a_turn(play)).perform(
            STORY[:2]
        )


def half_a_turn(play: Rehearsal):  # type: ignore[no-untyped-def]
    """One group's turn at a look, so that what is between two turns can be seen."""

    async def sleep(seconds: float) -> None:
        play.world._done(play.world.scheduler.schedule_next(play.world.now_s) or [])
        play.world.now_s += seconds
        for pod in list(play.world.pods.values()):
            if pod.spec.node_name and pod.status.phase != "Running":
                play.world.phase(pod.metadata.name, "Running")
        play.world._done(play.world.scheduler.advance(play.world.now_s))

    return sleep


async def test_faster_means_shorter_pauses_and_the_same_story() -> None:
    slow, fast = await Rehearsal().play(), Rehearsal()
    await Play(fast, fast.lines, speed=20, clock=lambda: fast.world.now_s, sleep=fast.pass_time).perform(
        STORY
    )
    assert fast.world.now_s < slow.world.now_s / 2
    assert [f.title for f in fast.frames] == [f.title for f in slow.frames]


async def test_lines_tell_one_thing_after_the_other() -> None:
    play = await Rehearsal().play()
    stamps = [float(line[:6]) for line in play.said if line]
    assert stamps == sorted(stamps)
    told = [" ".join(line[6:].split()) for line in play.said if line]
    for expected in (
        "2 of 19: A training gang of 4 pods with 8 GPUs each: all four start, or none.",
        "$ kubectl apply -f config/samples/gang-ours.yaml",
        "train running 4 of 4",
        "learners waiting 2 of 2 reserved on n[4,8], 16 GPUs; "
        "group default/actors does not exist, or does not list this group",
        "learners running 2 of 2",
        "pretrain unschedulable 5 of 8 fit; member pretrain-5: "
        "0/16 nodes are available: 16 Insufficient nvidia.com/gpu. "
        "Of these, 5 had room until its other members were placed there.",
        "$ kubectl delete job train",
        "train deleted its room is free again",
        "pretrain running 8 of 8",
        "evaluate waiting 2 of 2 reserved on n12, 8 GPUs; "
        "group default/judge does not exist, or does not list this group",
        "evaluate backoff gave its reservations back: WaitOnPermit timed out "
        "(group default/judge does not exist, or does not list this group); "
        "it is tried again in 1 s",
        "notebook running 1 of 1",
        "$ gangsched agent --bandwidth # on each node",
        "stream running 2 of 2",
        "$ kubectl delete job evaluate pretrain",
        "simulate running 4 of 4",
        "$ kubectl apply -f config/samples/demo/promised.yaml # probe, nightly only",
        "probe running 2 of 2",
        "simulate ended 4 of 4",
        "finetune running 8 of 8",
        "$ kubectl apply -f config/samples/demo/claims-nodes.yaml",
        "rollout running 4 of 4",
        "First all four claims were reserved, then the pods bound: 4 GPUs of node-16.",
        "sweep unschedulable 4 of 6 fit; member sweep-4: 0/18 nodes are available: "
        "17 node(s) without the devices for request gpu (class gpu.nvidia.com), "
        "1 cannot allocate all claims.",
        "$ gangsched explain default/sweep",
    ):
        assert expected in told, (expected, told)
        told = told[told.index(expected) :]


async def test_the_summary_tells_every_life_with_its_end() -> None:
    play = await Rehearsal().play()
    lines = summary(play.seen)
    text = "\n".join(lines)
    assert [line.split()[0] for line in lines[1:-1] if line[2] != " "] == [
        *("lone", "train", "mpi", "learners", "actors", "pretrain", "evaluate", "notebook", "stream"),
        *("simulate", "finetune", "nightly", "probe", "rollout", "sweep"),
    ]
    assert "bound after 0 ms: 4 pods, 32 GPUs on n[1,5,9,13]" in text
    assert "deleted; what it had is free" in text
    assert "held 16 GPUs on n[4,8]: group default/actors does not exist\n" in text
    assert "gave all of it back, after 6.0 s in Permit" in text
    assert "35.0 s  It starts by 2026-01-01 00:01 UTC: room is kept for it on 8 nodes\n" in text
    assert "bound after 0 ms: 4 pods, 4 GPUs on node-16" in text
    assert max(map(len, lines)) <= 90, max(lines, key=len)
    assert lines[-1] == "At no moment was a gang bound in part, or a GPU given to two pods."


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], "-"),
        (["node-04"], "node-04"),
        ([f"node-{i:02}" for i in (4, 5, 6, 9, 10)], "node-[04-06,09-10]"),
        (["n1", "n2", "m7"], "n[1-2],m7"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n08", "n10", "n100"], "n[08,10],n100"),
        (["gpu-a", "gpu-b"], "gpu-a,gpu-b"),
        (["n1", "n1"], "n1"),
    ],
)
def test_host_lists(names: list[str], short: str) -> None:
    assert host_list(names) == short


def test_device_ids_without_numbers_are_cut_short() -> None:
    assert id_list([f"GPU-n4-{k}" for k in range(8)]) == "GPU-n4-[0-7]"
    assert id_list(["GPU-6f1c2a9e-51c2", "GPU-9a2e0000-77aa", "GPU-c"]) == "GPU-6f1c2a9… GPU-9a2e000… +1"
    assert id_list([]) == "-"


def test_lengths_of_time() -> None:
    assert [seconds(s) for s in (0.0042, 0.25, 12.34, 125, 2000)] == [
        *("4 ms", "0.25 s", "12.3 s", "125 s", "33 min")
    ]


def test_what_is_long_gone_is_forgotten() -> None:
    world, seen = cluster(nodes=1), Chronicle()
    for k in range(150):
        world.submit(make_pod(f"p{k}", gpus=0)).run()
        seen.see(view_groups(world.scheduler), [], at_s=float(k), now_s=world.now_s)
        world.delete(f"p{k}")
    seen.see([], [], at_s=150.0, now_s=world.now_s)
    assert [group.short for group in seen.scene.groups] == [f"p{k}" for k in range(50, 150)]
    assert all(group.gone for group in seen.scene.groups)
