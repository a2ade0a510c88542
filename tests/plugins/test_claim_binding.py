"""What VolumeBinding's PreBind writes, what it waits for, and which volumes it does not accept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.core.framework.interface import SUCCESS, Code, Status
from gangsched.core.types.group import Group, PodInfo
from gangsched.errors import ApiError, Subject
from gangsched.model import storage as kinds
from gangsched.model.pod_group import GroupKey
from gangsched.model.text.printable import in_full, seen_from
from gangsched.plugins.volumes.claims import BIND_COMPLETED
from gangsched.plugins.volumes.volume_binding import VolumeBinding
from tests.plugins.build import Cluster, node
from tests.plugins.test_volumes import (
    HOST,
    ZONE,
    Json,
    allowed,
    claim,
    cluster,
    local,
    promised,
    put,
    using,
    volume,
)

SELECTED = "volume.kubernetes.io/selected-node"


def only_in(*zones: str) -> Json:
    """The affinity of a volume of these zones."""
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in zones]
    return {"required": {"nodeSelectorTerms": terms}}


class Server:
    """An API server that binds what it is asked to, after a while: "mine" to `gives`, "new" to "made".

    chosen: the node that claims name.
    """

    def __init__(self, *, chosen: str = "a", gives: str = "there") -> None:
        self.log = None
        self.written: list[tuple[str, Json]] = []
        self.refuses = ""
        self.slept = 0
        self.gives = gives
        self.claim: Json = {}
        """Of every claim, beside what it is."""
        self.made: Json = {}
        """The spec of the volume that was made, beside what it is."""
        self.there: Json = {}
        """The spec of the volume that was there, likewise."""
        self.missing: list[ApiError] = []
        """What a volume's GETs end in at first."""
        self.asked: list[str] = []
        self._chosen = chosen

    async def kubernetes(self) -> Any:
        raise AssertionError("not asked for")

    async def ask(self, url: str, body: Any = None) -> Any:
        raise AssertionError("not asked for")

    async def patch(self, path: str, body: Any, *, content_type: str = "") -> Any:
        if self.refuses and self.refuses in path:
            raise ApiError("the object has been modified", code=409)
        self.written.append((path, body))
        return {}

    async def get(self, path: str) -> Any:
        self.asked.append(path)
        kind, name = path.split("/")[-2:]
        if kind == kinds.VOLUMES:
            if self.missing:
                raise self.missing.pop(0)
            of = "new" if name == "made" else "mine"
            spec: Json = {"claimRef": {"namespace": "default", "name": of, "uid": f"uid-{of}"}}
            return {"metadata": {"name": name}, "spec": spec | (self.made if name == "made" else self.there)}
        annotations: Json = {SELECTED: self._chosen} if self._chosen else {}
        if self.slept:
            annotations[BIND_COMPLETED] = "yes"
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
        spec = {"volumeName": self.gives if name == "mine" else "made"} if self.slept else {}
        return {"metadata": meta, "spec": spec} | self.claim

    async def list(self, path: str, *, label_selector: str = "", field_selector: str = "") -> list[Any]:
        return []

    async def post(self, path: str, body: Any) -> Any:
        return {}

    async def sleep(self, seconds: float) -> None:
        self.slept += 1

    def allow(self, group: str) -> bool:
        return False

    def reject(self, group: str, reason: str) -> bool:
        return False


def both_ways() -> tuple[Cluster, VolumeBinding, PodInfo]:
    """A pod with a claim that gets a volume and one for which it is made, promised on node a of zone 1."""
    c = cluster(a="1")
    local(c)
    put(c, kinds.CLASSES, "made", provisioner="d.example.com", volumeBindingMode="WaitForFirstConsumer")
    volume(c, "there", host="a")
    claim(c, "mine")
    claim(c, "new", storage_class="made")
    plugin = VolumeBinding()
    return c, plugin, promised(c, plugin, using("mine", "new"), 0)


async def outcome(server: Server) -> Status:
    _, plugin, info = both_ways()
    return await plugin.pre_bind(info.pod, "a", server)


def no_volume(kind: str = kinds.VOLUMES, name: str = "made") -> ApiError:
    return ApiError("not found", code=404, reason="NotFound", subject=Subject(kind, name))


# -- what is written and waited for ----------------------------------------------------------------------


async def test_what_was_promised_is_written_down_and_waited_for() -> None:
    c, plugin, info = both_ways()
    server = Server()
    assert await plugin.pre_bind(info.pod, "a", server) is SUCCESS
    assert server.slept == 1, "it looks again until both are bound"
    (there, given), (new, asked) = server.written
    assert there == "/api/v1/persistentvolumes/there"
    assert given["spec"]["claimRef"]["uid"] == "uid-mine"
    assert given["metadata"]["resourceVersion"] == "7"
    assert new == "/api/v1/namespaces/default/persistentvolumeclaims/new"
    assert asked["metadata"]["annotations"] == {SELECTED: "a"}
    claim(c, "other")
    assert allowed(c, plugin, using("other")) == [], (
        "the watch has not told of it, and it is taken all the same"
    )


async def test_a_claim_that_got_another_volume_meanwhile_costs_the_attempt() -> None:
    """As a process that has died since may have chosen: its node need not be this one."""
    status = await outcome(Server(gives="elsewhere"))
    assert status.code is Code.UNSCHEDULABLE
    assert status.reason == "binding volumes: PVC 'mine' got elsewhere instead"


async def test_a_volume_that_cannot_be_made_costs_the_attempt() -> None:
    _, plugin, info = both_ways()
    plugin._to_bind[info.uid] = msgspec.structs.replace(plugin._to_bind[info.uid], volumes=())
    status = await plugin.pre_bind(info.pod, "a", Server(chosen=""))
    assert "provisioning failed for PVC 'new'" in status.reason


async def test_members_that_share_a_claim_which_is_made_do_not_refuse_each_other() -> None:
    """The first one's request changes the claim that the second one has seen, perhaps for another node."""
    for chosen in ("a", "b"):
        server = Server(chosen=chosen)
        server.refuses = "persistentvolumeclaims/new"
        assert await outcome(server) is SUCCESS, "it is made"
        server.made = {"nodeAffinity": only_in("2")}
        assert "node a does not reach made" in (await outcome(server)).reason


async def test_members_that_share_a_claim_for_a_volume_that_is_there_do_not_refuse_each_other() -> None:
    server = Server()
    server.refuses = "persistentvolumes/there"
    assert await outcome(server) is SUCCESS


async def test_a_volume_that_somebody_else_has_got_costs_the_attempt() -> None:
    server = Server()
    server.refuses = "persistentvolumes/there"
    server.there = {"claimRef": {"namespace": "default", "name": "mine", "uid": "another"}}
    status = await outcome(server)
    assert (status.code, "has been modified" in status.reason) == (Code.UNSCHEDULABLE, True)


async def test_a_claim_that_somebody_else_has_changed_costs_the_attempt() -> None:
    server = Server(chosen="")
    server.refuses = "persistentvolumeclaims/new"
    assert "has been modified" in (await outcome(server)).reason
    server = Server()
    server.refuses = "persistentvolumeclaims/new"
    server.claim = {"metadata": {"name": "new", "uid": "another", "annotations": {SELECTED: "a"}}}
    assert "has been modified" in (await outcome(server)).reason


# -- what it may not be ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_made", [False, True])
async def test_a_volume_is_not_given_to_a_claim_that_was_deleted_while_its_gang_waited(is_made: bool) -> None:
    """It would be released with the claim, and be nobody's until somebody mends it."""
    c, plugin, info = both_ways()
    c.cache.objects.remove(kinds.CLAIMS, "default", "mine", "uid-mine")
    if is_made:
        claim(c, "mine", metadata={"uid": "uid-anew"})
    server = Server()
    status = await plugin.pre_bind(info.pod, "a", server)
    assert status.reason == "binding volumes: PVC 'mine' was deleted meanwhile"
    assert server.written == []


async def test_a_claim_that_is_recreated_while_its_volume_is_bound_is_not_waited_for() -> None:
    """Its name is not bound yet, and never will be to the volume that was given to the one before."""
    for changed in ({"uid": "uid-anew"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        server = Server()
        server.claim = {"metadata": {"name": "mine", "uid": "uid-mine"} | changed}
        assert (await outcome(server)).reason == "binding volumes: PVC 'mine' was deleted meanwhile"
        assert server.slept == 0


async def test_a_volume_that_was_made_where_the_node_does_not_reach_it_costs_the_attempt() -> None:
    server = Server()
    server.made = {"nodeAffinity": only_in("2", "3")}
    status = await outcome(server)
    assert status.code is Code.UNSCHEDULABLE
    assert status.reason == (
        "binding volumes: node a does not reach made, the volume of PVC 'new': "
        f"it is for nodes with {ZONE} In 2 or {ZONE} In 3"
    )
    server.made = {"nodeAffinity": only_in("2", "1")}
    assert await outcome(server) is SUCCESS, "one term of several is enough"
    server.made = {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}
    assert (await outcome(server)).reason.endswith(": it is for no node")
    server.made = {"nodeAffinity": only_in("2" * 5000)}
    assert len((await outcome(server)).reason) < 500, "an affinity of any length is told in part"


async def test_the_node_is_asked_as_it_is_when_the_volume_is_there() -> None:
    """A driver may take minutes, in which somebody labels the node, or deletes it."""
    server = Server()
    server.made = {"nodeAffinity": only_in("2")}
    c, plugin, info = both_ways()
    c.put(node("a", labels={HOST: "a", ZONE: "2"}))
    assert await plugin.pre_bind(info.pod, "a", server) is SUCCESS
    c, plugin, info = both_ways()
    c.cache.remove_node("a")
    assert (await plugin.pre_bind(info.pod, "a", server)).reason == "node a is gone"


async def test_claims_that_are_seen_bound_before_prebind_begins_are_looked_at_too() -> None:
    """Hooks of a large gang wait for each other, and an earlier attempt has asked for its volumes."""
    server = Server()
    server.made = {"nodeAffinity": only_in("2")}
    c, plugin, info = both_ways()
    changed: Json = {"resourceVersion": "8"}
    bound = changed | {"annotations": {BIND_COMPLETED: "yes"}}
    for name, volume_name in (("mine", "there"), ("new", "made")):
        put(c, kinds.CLAIMS, name, metadata=bound, spec={"volumeName": volume_name})
    owner = {"name": "mine", "uid": "uid-mine"}
    put(c, kinds.VOLUMES, "there", metadata=changed, spec={"claimRef": owner})
    claim(c, "other", storage_class="made")
    assert allowed(c, plugin, using("other")) == ["a"]
    assert not plugin._promised, "they hold nothing back any more"
    assert "does not reach made" in (await plugin.pre_bind(info.pod, "a", server)).reason


async def test_a_volume_whose_claim_is_another_costs_the_attempt() -> None:
    server = Server()
    server.made = {"claimRef": {"namespace": "d", "name": "theirs", "uid": "u"}}
    said = "binding volumes: PVC 'new' names made as its volume, whose claim is "
    reason = (await outcome(server)).reason
    assert in_full(reason) == said + "d/theirs"
    assert seen_from("default", reason) == said + "a claim of another namespace"
    server.made = {"claimRef": {"namespace": "default", "name": "new", "uid": "former"}}
    assert in_full((await outcome(server)).reason) == said + "default/new (former)"
    server.made = {"claimRef": None}
    assert (await outcome(server)).reason == said + "none"


async def test_a_volume_that_is_not_there_yet_is_waited_for() -> None:
    server = Server()
    server.missing = [no_volume(name="there"), no_volume(name="there")]
    assert await outcome(server) is SUCCESS
    assert server.slept == 3


@pytest.mark.parametrize(
    "error",
    [
        ApiError("404 page not found"),
        no_volume(name=""),
        no_volume(kinds.CLAIMS),
        ApiError("no", code=403, reason="Forbidden", subject=Subject(kinds.VOLUMES, "there")),
    ],
    ids=["a proxy's", "of the kind", "of another kind", "a refusal"],
)
async def test_what_does_not_say_that_the_volume_is_missing_costs_the_attempt(error: ApiError) -> None:
    server = Server()
    server.missing = [error]
    status = await outcome(server)
    assert (status.code, status.reason) == (Code.UNSCHEDULABLE, f"binding volumes: {error}")


async def test_a_claim_whose_volume_is_lost_is_not_waited_for() -> None:
    server = Server()
    server.claim = {"status": {"phase": "Lost"}}
    server.missing = [no_volume()]
    said = 'persistentvolumeclaim "mine" bound to non-existent persistentvolume "there"'
    assert (await outcome(server)).reason == said


async def test_the_name_of_a_volume_is_no_way_to_other_objects() -> None:
    """A user may write any text there."""
    _, plugin, info = both_ways()
    plugin._to_bind[info.uid] = msgspec.structs.replace(plugin._to_bind[info.uid], volumes=())
    server = Server()
    name = "../namespaces/kube-system/secrets/key"
    annotations = {BIND_COMPLETED: "", SELECTED: "a"}
    claimed = {"metadata": {"name": "new", "uid": "uid-new", "annotations": annotations}}
    server.claim = {**claimed, "spec": {"volumeName": name}}
    status = await plugin.pre_bind(info.pod, "a", server)
    assert status.reason == f"binding volumes: {name!r} is not the name of a volume"
    assert not any("secrets" in path for path in server.asked)


@pytest.mark.parametrize(
    "made", [{"nodeAffinity": "everywhere"}, {"nodeAffinity": {"required": [1]}}, {"claimRef": 5}]
)
async def test_an_answer_that_cannot_be_read_costs_the_attempt(made: Json) -> None:
    server = Server()
    server.made = made
    status = await outcome(server)
    assert status.code is Code.UNSCHEDULABLE
    assert status.reason.startswith("binding volumes: /api/v1/persistentvolumes/made cannot be read: ")


async def test_while_a_volume_may_be_written_for_a_claim_that_is_gone_nobody_else_is_given_it() -> None:
    class GoneMeanwhile(Server):
        """Somebody deletes the claim once its volume has been asked for."""

        async def patch(self, path: str, body: Any, *, content_type: str = "") -> Any:
            c.cache.objects.remove(kinds.CLAIMS, "default", "mine", "uid-mine")
            c.cache.objects.remove(kinds.CLAIMS, "default", "new", "uid-new")
            assert allowed(c, plugin, using("next", name="q")) == []
            raise ApiError("the object has been modified", code=404)

    c, plugin, info = both_ways()
    claim(c, "next")
    assert (await plugin.pre_bind(info.pod, "a", GoneMeanwhile())).code is Code.UNSCHEDULABLE
    assert allowed(c, plugin, using("next", name="q")) == ["a"]


async def test_nothing_is_kept_of_pods_whose_claims_are_bound() -> None:
    """Each of a StatefulSet's pods is of a template of its own, as it has claims of its own."""
    c, plugin, info = both_ways()
    assert await plugin.pre_bind(info.pod, "a", Server()) is SUCCESS
    for k in range(5):
        claim(c, f"data-{k}", storage_class="made")
        info = promised(c, plugin, using(f"data-{k}", name=f"db-{k}"), 0)
        assert plugin.pre_bind_pre_flight(info.template) is SUCCESS
        plugin.unreserve(Group(GroupKey("pod", "default", f"db-{k}"), "gangsched"), [info])
    assert len(plugin._waiting) == 1
