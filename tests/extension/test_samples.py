"""config/samples/plugins: what each of them says that it does, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangsched.config import Settings, parse_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ApiError
from gangsched.extension.loading import KnownPlugins
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import ObjectMeta, OwnerReference, PlainObject, Pod
from gangsched.plugin import Code, Status
from gangsched.plugins import build_profiles
from tests.support.scenario import Cluster, gang

SAMPLES = Path(__file__).parents[2] / "config" / "samples" / "plugins"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
KEY = "example.com/first-node"


def cluster_with(
    file: str, name: str, *, sorts: bool = False, args: str = "{}"
) -> tuple[Cluster, KnownPlugins]:
    known = KnownPlugins([str(SAMPLES / file)])
    enabled = f"{{multiPoint: {{enabled: [{{name: {name}}}]}}}}"
    if sorts:
        enabled = f"{{queueSort: {{enabled: [{{name: {name}}}], disabled: [{{name: PrioritySort}}]}}}}"
    own = f"pluginConfig: [{{name: {name}, args: {args}}}], " if args != "{}" else ""
    text = HEAD + f"profiles: [{{schedulerName: gangsched, {own}plugins: {enabled}}}]"

    def make(settings: Settings) -> Scheduler:
        config = parse_config(text, source="", plugins=known)
        return Scheduler(build_profiles(config, known.factories), settings)

    c = Cluster(make=make)
    c.tell(*(ev.KindMissing(kind) for kind in c.scheduler.kinds))
    for i in range(4):
        c.node(make_node(f"n{i}", gpus=8))
    return c, known


@pytest.mark.parametrize("file", sorted(path.name for path in SAMPLES.glob("*.py")))
def test_a_sample_is_short(file: str) -> None:
    assert len((SAMPLES / file).read_text().splitlines()) < 80


class Jobs:
    """An API server that has Jobs, for hooks, and tells the scheduler of what they change."""

    def __init__(self, c: Cluster, known: KnownPlugins) -> None:
        self.c = c
        self.plugin: Any = known.factories["StickyNode"](msgspec.convert({}, _args(known)))
        self.version = 1000
        self.objects: dict[str, dict[str, Any]] = {}
        self.conflicts = 0
        c.hook = self.hook

    def job(self, name: str) -> None:
        meta = {"name": name, "namespace": "d", "uid": f"uid-{name}", "resourceVersion": self.next()}
        self.objects[f"/apis/batch/v1/namespaces/d/jobs/{name}"] = {"metadata": meta}
        self.tell(name)

    def tell(self, name: str) -> None:
        found = self.objects[f"/apis/batch/v1/namespaces/d/jobs/{name}"]
        self.c.tell(ev.ObjectPut("jobs.batch", PlainObject(msgspec.json.decode(msgspec.json.encode(found)))))

    def next(self) -> str:
        self.version += 1
        return str(self.version)

    def hook(self, hook: ef.RunHook) -> Status:
        assert hook.pod is not None
        asyncio.run(self.plugin.post_bind(hook.pod, hook.node_name, self))
        for name in [path.rpartition("/")[2] for path in self.objects]:
            self.tell(name)
        return Status()

    async def get(self, path: str) -> Any:
        return msgspec.json.decode(msgspec.json.encode(self.objects[path]))

    async def patch(self, path: str, body: Any) -> Any:
        meta = self.objects[path]["metadata"]
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError("the object has been modified", code=409)
        assert body["metadata"]["resourceVersion"] == meta["resourceVersion"]
        meta["annotations"] = {**meta.get("annotations", {}), **body["metadata"]["annotations"]}
        meta["resourceVersion"] = self.next()
        return self.objects[path]

    def node_of(self, name: str) -> str | None:
        meta: ObjectMeta = PlainObject(self.objects[f"/apis/batch/v1/namespaces/d/jobs/{name}"]).metadata
        return (meta.annotations or {}).get(KEY)


def _args(known: KnownPlugins) -> Any:
    return known["StickyNode"].args_type


def owned(pod: Pod, job: str) -> Pod:
    owner = OwnerReference(kind="Job", name=job, uid=f"uid-{job}", controller=True)
    meta = msgspec.structs.replace(pod.metadata, owner_references=[owner])
    return msgspec.structs.replace(pod, metadata=meta)


def test_the_next_pod_of_a_job_goes_where_its_first_ran() -> None:
    c, known = cluster_with("sticky_node.py", "StickyNode")
    jobs = Jobs(c, known)
    jobs.job("train")
    c.submit(make_pod("x", gpus=5), owned(make_pod("train-0", gpus=5), "train")).run()
    first = c.pod("train-0").spec.node_name
    assert jobs.node_of("train") == first
    c.delete("train-0", "x")
    c.submit(*(make_pod(f"other-{i}", gpus=3) for i in range(3))).run()
    c.submit(owned(make_pod("train-1", gpus=5), "train")).run()
    assert c.pod("train-1").spec.node_name == first
    known.budget.turn_ended()


def test_it_waits_for_that_node_and_says_so_and_goes_elsewhere_when_the_annotation_is_gone() -> None:
    c, known = cluster_with("sticky_node.py", "StickyNode")
    jobs = Jobs(c, known)
    jobs.job("train")
    c.submit(owned(make_pod("train-0", gpus=8), "train")).run()
    first = c.pod("train-0").spec.node_name
    c.submit(owned(make_pod("train-1", gpus=8), "train")).run()
    assert not c.pod("train-1").spec.node_name
    assert f"3 node(s) were not {first}, where its owner first ran" in c.said("train-1")
    jobs.objects["/apis/batch/v1/namespaces/d/jobs/train"]["metadata"].pop("annotations")
    jobs.objects["/apis/batch/v1/namespaces/d/jobs/train"]["metadata"]["resourceVersion"] = jobs.next()
    jobs.tell("train")
    c.wait(2.0)
    assert c.pod("train-1").spec.node_name not in ("", first)
    known.budget.turn_ended()


def test_pods_of_other_owners_and_of_none_go_anywhere() -> None:
    c, known = cluster_with("sticky_node.py", "StickyNode")
    jobs = Jobs(c, known)
    jobs.job("train")
    jobs.job("serve")
    c.submit(owned(make_pod("train-0", gpus=8), "train")).run()
    c.submit(owned(make_pod("serve-0", gpus=8), "serve"), make_pod("lone", gpus=8)).run()
    nodes = {pod.spec.node_name for pod in c.pods.values()}
    assert len(nodes) == 3
    assert "" not in nodes
    known.budget.turn_ended()


def test_a_change_by_another_writer_does_not_lose_the_mark() -> None:
    """A controller updates the Job's status between our read and our write: read again, write again."""
    c, known = cluster_with("sticky_node.py", "StickyNode")
    jobs = Jobs(c, known)
    jobs.job("train")
    jobs.conflicts = 3
    c.submit(owned(make_pod("train-0", gpus=5), "train")).run()
    assert jobs.node_of("train") == c.pod("train-0").spec.node_name
    assert jobs.conflicts == 0
    assert not c.all(ef.BlamePlugin)
    known.budget.turn_ended()


def test_of_two_pods_bound_at_once_one_is_the_first() -> None:
    c, known = cluster_with("sticky_node.py", "StickyNode")
    jobs = Jobs(c, known)
    jobs.job("train")
    jobs.conflicts = 1
    c.submit([owned(pod, "train") for pod in gang("train", pods=2)]).run()
    assert jobs.node_of("train") in {pod.spec.node_name for pod in c.pods.values()}
    assert not c.all(ef.BlamePlugin)
    known.budget.turn_ended()


def test_quiet_nodes_are_taken_first() -> None:
    c, known = cluster_with("quiet_nodes.py", "QuietNodes")
    for i in (0, 1, 3):
        pod = make_pod(f"busy-{i}", cpu="4", gpus=0)
        c.update(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=f"n{i}")))
    c.submit(make_pod("new", gpus=0)).run()
    assert c.pod("new").spec.node_name == "n2"
    known.budget.turn_ended()


def test_what_no_node_could_hold_is_kept_out_until_one_can() -> None:
    c, known = cluster_with("fits_somewhere.py", "FitsSomewhere")
    c.submit(make_pod("a", gpus=16), make_pod("b", gpus=8)).wait(1.0).run()
    assert c.binds() == ["b"]
    assert c.said("a") == "FitsSomewhere: needs 16 nvidia.com/gpu on one node, the largest has 8"
    c.node(make_node("large", gpus=16)).wait(1.0).run()
    assert c.binds() == ["b", "a"]
    known.budget.turn_ended()


def test_a_label_moves_a_pod_in_the_queue_and_a_wrong_one_keeps_it_out() -> None:
    c, known = cluster_with("boost_label.py", "BoostLabel")
    label = "example.com/boost"
    texts = ("-1", "x", "1001", "9" * 99)
    wrong = [make_pod(f"wrong{i}", labels={label: text}) for i, text in enumerate(texts)]
    c.submit(make_pod("a"), make_pod("b", priority=5), make_pod("c", labels={label: "9"}), *wrong).run()
    assert c.binds() == ["c", "b", "a"]
    assert c.said("wrong0") == "BoostLabel: label example.com/boost is not a number within 0..1000"
    known.budget.turn_ended()


class Budget:
    """The budget service as a hook's handle reaches it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def ask(self, url: str, body: Any) -> Any:
        self.asked.append((url, body))
        return self.answer


def test_a_service_is_asked_for_a_budget_and_asked_again_when_it_says_no() -> None:
    c, known = cluster_with("ask_budget.py", "AskBudget", args="{url: 'http://b/ask', againSeconds: 60}")
    args = msgspec.convert({"url": "http://b/ask", "againSeconds": 60}, known["AskBudget"].args_type)
    budget, plugin = Budget({"allowed": False, "reason": "spent"}), known.factories["AskBudget"](args)

    def hook(effect: ef.RunHook) -> Status:
        try:
            status: Status = asyncio.run(plugin.pre_enqueue(effect.pod, c.queue_view(), budget))
        except ValueError as error:
            return Status(Code.ERROR, str(error))
        return status

    c.hook = hook
    c.submit(make_pod("a", gpus=2)).run()
    [(url, about)] = budget.asked
    assert (url, about["requests"]["nvidia.com/gpu"], about["used"]) == ("http://b/ask", 2, {})
    assert c.said("a") == "AskBudget: spent"
    budget.answer = ["nonsense"]
    c.wait(61.0).run()
    assert "the service did not answer" in c.said("a")
    budget.answer = {"allowed": True}
    c.wait(2.0).run()
    assert c.binds() == ["a"]
    known.budget.turn_ended()


def test_gpu_jobs_are_first_whatever_the_priority() -> None:
    c, known = cluster_with("gpu_first.py", "GpuFirst", sorts=True)
    c.submit(make_pod("cpu", gpus=0, priority=100), make_pod("gpu", gpus=1)).run()
    assert c.binds() == ["gpu", "cpu"]
    known.budget.turn_ended()


def test_fair_tenants_take_turns_by_their_weights() -> None:
    c, known = cluster_with("fair_tenants.py", "FairTenants", sorts=True, args="{weights: {a: 2}}")
    c.submit([make_pod(f"{team}{i}", namespace=team, gpus=1) for team in "ab" for i in range(12)])
    c.run()
    first = [name[0] for name in c.binds()][:12]
    assert (first.count("a"), first.count("b")) == (8, 4)
    known.budget.turn_ended()


def test_users_take_turns_by_what_they_hold_in_all_namespaces() -> None:
    c, known = cluster_with("user_share.py", "UserShare", sorts=True)
    own = [("ann", 6), ("bob", 6), ("", 2)]
    c.submit(make_pod("large", namespace="y", gpus=4, labels={"example.com/user": "ann"})).run()
    for user, n in own:
        marks = {"example.com/user": user} if user else {}
        c.submit([make_pod(f"{user or 'nobody'}{k}", namespace=f"x{k}", labels=marks) for k in range(n)])
    c.run()
    first = [name.rstrip("0123456789") for name in c.binds()][1:11]
    assert (first.count("bob"), first.count("nobody"), first.count("ann")) == (6, 2, 2)
    known.budget.turn_ended()
