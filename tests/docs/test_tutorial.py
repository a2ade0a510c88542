"""docs/writing-plugins.md: each file that it shows loads and does what the page says, in virtual time."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.command.cli import main
from gangsched.config import Settings, parse_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ApiError
from gangsched.extension.loading import KnownPlugins
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, Pod
from gangsched.plugin import Status
from gangsched.plugins import build_profiles
from tests.docs.pages import DOCS, ROOT, blocks, commands
from tests.support.scenario import Cluster, gang

PAGE = DOCS / "writing-plugins.md"
SHOWN = [block.text for block in blocks(PAGE, "python")]
FILTER, SCORE, PERMIT, KUBERNETES, SORT, LANES, USERS, ENQUEUE, BUDGET, AT_ONCE, TYPED, ADDRESSES = SHOWN
CONFIGS = [block.text for block in blocks(PAGE, "yaml") if "TeamNodes" in block.text]
[SORT_CONFIG] = [block.text for block in blocks(PAGE, "yaml") if "GpuFirst" in block.text]
# The page names the third plugin in a profile as it does the first.
PERMIT_CONFIG = CONFIGS[0].replace("TeamNodes", "Freeze")


def cluster(tmp_path: Path, plugin: str, config: str) -> tuple[Cluster, KnownPlugins]:
    """Four nodes with the plugin as its file, in the profile as the page has it."""
    file = tmp_path / "shown.py"
    file.write_text(plugin)
    known = KnownPlugins([str(file)])

    def make(settings: Settings) -> Scheduler:
        read = parse_config(config, source=str(PAGE), plugins=known)
        return Scheduler(build_profiles(read, known.factories), settings)

    c = Cluster(make=make)
    c.tell(*(ev.KindMissing(kind) for kind in c.scheduler.kinds))
    return c, known


def labelled(node: Node, **labels: str) -> Node:
    return replace(node, metadata=replace(node.metadata, labels=labels))


def team_pod(name: str, label: str, team: str) -> Pod:
    return make_pod(name, labels={label: team})


def test_the_filter_leaves_out_nodes_of_other_teams_and_says_so_as_the_page_does(tmp_path: Path) -> None:
    c, _ = cluster(tmp_path, FILTER, CONFIGS[0])
    for i in range(4):
        c.node(labelled(make_node(f"n{i}"), team="blue"))
    c.submit(team_pod("a", "team", "red"), team_pod("b", "team", "blue")).run()
    assert not c.pod("a").spec.node_name
    assert c.pod("b").spec.node_name
    [said] = [block.text.strip() for block in blocks(PAGE, "text")]
    assert c.said("a").startswith(said)
    c.node(make_node("common")).wait(2.0)
    assert c.pod("a").spec.node_name == "common"


@pytest.mark.parametrize(("plugin", "config"), [(FILTER, CONFIGS[0]), (SCORE, CONFIGS[1])])
def test_check_config_lists_the_plugin_as_the_page_says(
    plugin: str, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "team_nodes.py").write_text(plugin)
    (tmp_path / "scheduler.yaml").write_text(config)
    paths = {"team_nodes.py", "scheduler.yaml"}
    [line] = [one for block in blocks(PAGE, "sh") for one in commands(block) if "check-config" in one]
    words = [str(tmp_path / word) if word in paths else word for word in line.split()[1:]]
    assert main(words) == 0
    [filters] = [one for one in capsys.readouterr().out.splitlines() if one.strip().startswith("filter ")]
    assert "TeamNodes" in filters


def test_the_score_prefers_the_teams_own_nodes_by_the_label_of_its_arguments(tmp_path: Path) -> None:
    c, _ = cluster(tmp_path, SCORE, CONFIGS[1])
    label = "example.com/team"
    for i in range(3):
        c.node(make_node(f"common-{i}"))
    c.node(labelled(make_node("own"), **{label: "red"}))
    c.submit(*(team_pod(f"p-{i}", label, "red") for i in range(4))).run()
    assert {c.pod(f"p-{i}").spec.node_name for i in range(4)} == {"own"}
    c.submit(team_pod("other", label, "blue")).run()
    assert c.pod("other").spec.node_name.startswith("common")


class Server:
    """The API server as the hook sees it: whether there is a ConfigMap."""

    def __init__(self) -> None:
        self.code = 404
        self.asked: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if self.code:
            raise ApiError("no", code=self.code)
        return {}


@pytest.mark.parametrize(("code", "is_bound"), [(404, True), (0, False)])
def test_permit_asks_and_holds_nothing_unless_the_namespace_is_frozen(
    code: int, is_bound: bool, tmp_path: Path
) -> None:
    c, known = cluster(tmp_path, PERMIT, PERMIT_CONFIG)
    server, plugin = Server(), known.factories["Freeze"]()
    server.code = code

    def hook(effect: ef.RunHook) -> Status:
        assert effect.group is not None
        group = c.group(effect.group.name)
        answer: Status = asyncio.run(plugin.permit(group, {}, server))
        return answer

    c.hook = hook
    c.node(make_node("n0")).submit(gang("a", pods=2)).run()
    assert server.asked == ["/api/v1/namespaces/d/configmaps/freeze"]
    assert c.placed("a") is is_bound
    if not is_bound:
        assert "the namespace is frozen by its ConfigMap freeze" in c.said("a-0")
        assert c.scheduler.statistics()["reservations"] == 0


async def test_permit_passes_on_what_it_cannot_understand(tmp_path: Path) -> None:
    _, known = cluster(tmp_path, PERMIT, PERMIT_CONFIG)
    server = Server()
    server.code = 500
    c = Cluster().submit(gang("a", pods=1))
    with pytest.raises(ApiError):
        await known.factories["Freeze"]().permit(c.group("a"), {}, server)


class Patched:
    """An API server that takes patches."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []

    async def patch(self, path: str, body: Any) -> None:
        self.patches.append((path, body))


def test_what_was_chosen_before_a_reload_is_written_after_it(tmp_path: Path) -> None:
    config = CONFIGS[0].replace("TeamNodes", "Addresses")
    c, known = cluster(tmp_path, ADDRESSES, config)
    server = Patched()
    c.hook = lambda hook: None
    c.node(make_node("n0")).submit(gang("a", pods=2)).run()
    profiles = build_profiles(parse_config(config, source="", plugins=known), known.factories)
    c.reconfigure(c.settings, profiles)
    plugin: Any = profiles["gangsched"].plugin("Addresses")
    for hook in list(c.held_hooks):
        assert asyncio.run(plugin.pre_bind(hook.pod, hook.node_name, server)).is_success
    own = [body["metadata"]["annotations"]["team.example.com/address"] for _, body in server.patches]
    assert sorted(own) == ["10.0.0.253", "10.0.0.254"]
    assert server.patches[0][0] == "/api/v1/namespaces/d/pods/a-0"


def test_the_plugin_by_kubernetes_asyncio_is_the_sample_that_runs_elsewhere(
    tmp_path: Path,
) -> None:
    """What it does is tested on a real API server; here, that the page makes the same calls."""
    cluster(tmp_path, KUBERNETES, CONFIGS[0].replace("TeamNodes", "FrozenNamespaces"))
    sample = (ROOT / "config" / "samples" / "plugins" / "frozen_namespaces.py").read_text()
    shown = KUBERNETES[KUBERNETES.index("        api = await") : KUBERNETES.index("        if any(")]
    assert [line for line in shown.splitlines() if line.split("  #")[0] not in sample] == []


def test_the_queue_sort_puts_gpus_first(tmp_path: Path) -> None:
    c, _ = cluster(tmp_path, SORT, SORT_CONFIG)
    c.node(make_node("n0"))
    c.submit(make_pod("cpu", gpus=0, priority=9), make_pod("gpu", gpus=1)).run()
    assert c.binds() == ["gpu", "cpu"]


def test_the_lanes_let_tenants_take_turns(tmp_path: Path) -> None:
    c, _ = cluster(tmp_path, LANES, SORT_CONFIG.replace("GpuFirst", "FairTenants"))
    c.node(make_node("n0", gpus=8))
    pods = [make_pod(f"{team}{i}", namespace=team, gpus=1) for team in "ab" for i in range(3)]
    c.submit(pods).run()
    assert [name[0] for name in c.binds()] == list("ababab")


def test_users_share_what_is_there(tmp_path: Path) -> None:
    c, _ = cluster(tmp_path, USERS, SORT_CONFIG.replace("GpuFirst", "UserShare"))
    c.node(make_node("n0", gpus=8))
    for user in ("ann", "bob"):
        own = {"example.com/user": user}
        c.submit([make_pod(f"{user}{k}", namespace=f"x{k}", gpus=1, labels=own) for k in range(3)])
    c.run()
    assert [name[0] for name in c.binds()] == list("ababab")


def test_pre_enqueue_keeps_out_what_no_node_could_hold_until_one_can(tmp_path: Path) -> None:
    c, _ = cluster(tmp_path, ENQUEUE, CONFIGS[0].replace("TeamNodes", "FitsSomewhere"))
    c.node(make_node("n0", gpus=4)).submit(make_pod("a", gpus=8), make_pod("b", gpus=1)).wait(1.0).run()
    assert c.binds() == ["b"]
    assert c.said("a") == "FitsSomewhere: no node has 8 nvidia.com/gpu"
    c.node(make_node("n1", gpus=8)).wait(1.0).run()
    assert c.binds() == ["b", "a"]


class Service:
    """The budget service as the hook sees it."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.asked: list[tuple[str, Any]] = []

    async def ask(self, url: str, body: Any) -> dict[str, bool]:
        self.asked.append((url, body))
        return {"allowed": self.allowed}


def test_pre_enqueue_asks_a_service_and_waits_for_its_yes(tmp_path: Path) -> None:
    c, known = cluster(tmp_path, BUDGET, CONFIGS[0].replace("TeamNodes", "AskBudget"))
    service, plugin = Service(allowed=False), known.factories["AskBudget"]()

    def hook(effect: ef.RunHook) -> Status:
        answer: Status = asyncio.run(plugin.pre_enqueue(effect.pod, c.queue_view(), service))
        return answer

    c.hook = hook
    c.node(make_node("n0")).submit(make_pod("a")).run()
    assert not c.binds()
    assert c.said("a") == "AskBudget: the budget of its namespace is spent"
    service.allowed = True
    c.wait(31.0).run()
    assert c.binds() == ["a"]
    assert service.asked == [("http://budget.finance:8080/ask", {"namespace": "d", "name": "a"})] * 2


def test_the_score_of_all_nodes_fills_the_node_with_the_fewest_free_gpus(tmp_path: Path) -> None:
    c, _ = cluster(
        tmp_path, AT_ONCE, CONFIGS[1].replace("TeamNodes", "FullestGpus").partition("  pluginC")[0]
    )
    c.node(make_node("a", gpus=8)).node(make_node("b", gpus=4)).node(make_node("z", gpus=8))
    c.submit(*(make_pod(f"p{i}", gpus=1) for i in range(5))).run()
    assert [c.pod(f"p{i}").spec.node_name for i in range(4)] == ["b"] * 4
    assert c.pod("p4").spec.node_name != "b"


def test_the_plugin_with_types_does_what_it_says(tmp_path: Path) -> None:
    c, _ = cluster(tmp_path, TYPED, CONFIGS[0].replace("TeamNodes", "Zones"))
    zone = "topology.kubernetes.io/zone"
    c.node(labelled(make_node("a"), **{zone: "a"})).node(labelled(make_node("b"), **{zone: "b"}))
    c.submit(*(make_pod(f"p{i}", labels={zone: "b"}) for i in range(3))).run()
    assert {c.pod(f"p{i}").spec.node_name for i in range(3)} == {"b"}


def test_the_page_names_each_subject_of_a_view() -> None:
    named = re.findall(r"^\| `(\w+\.py)` \|", PAGE.read_text(), re.MULTILINE)
    files = (ROOT / "gangsched" / "core" / "cache" / "view").glob("[a-z]*.py")
    assert sorted(named) == sorted(file.name for file in files)


def test_the_entry_point_names_the_plugin() -> None:
    [block] = blocks(PAGE, "toml")
    points = tomllib.loads(block.text)["project"]["entry-points"]
    assert points == {"gangsched.plugins": {"TeamNodes": "team_nodes:TeamNodes"}}
