"""What messages say of taints: a slip where it is a user's, and never what Kubernetes itself has added."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node
from gangsched.model.objects import Pod, Taint, Toleration
from tests.support.scenario import Cluster, gang

GPU = "nvidia.com/gpu"
UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"
ADMISSION = [Toleration(key, "Exists", "", "NoExecute", 300) for key in (NOT_READY, UNREACHABLE)]
"""What the API server's admission gives to every pod."""
DAEMON = [
    *(Toleration(key, "Exists", "", "NoExecute") for key in (NOT_READY, UNREACHABLE)),
    *(
        Toleration(f"node.kubernetes.io/{one}", "Exists", "", "NoSchedule")
        for one in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
]
"""What the DaemonSet controller gives to its pods."""


def tainted(*taints: Taint, name: str = "n0", gpus: int = 8, c: Cluster | None = None) -> Cluster:
    node = make_node(name, gpus=gpus)
    return (c or Cluster()).node(replace(node, spec=replace(node.spec, taints=[*taints])))


def tolerating(name: str, *tolerations: Toleration, pods: int = 1, gpus: int = 0) -> list[Pod]:
    found = gang(name, pods=pods, gpus=gpus)
    return [replace(p, spec=replace(p.spec, tolerations=[*tolerations])) for p in found]


def dead(c: Cluster | None = None) -> Cluster:
    """A node that does not answer has the taint twice; only the second is tolerated, for 300 s."""
    return tainted(Taint(UNREACHABLE, "", "NoSchedule"), Taint(UNREACHABLE, "", "NoExecute"), c=c)


def test_a_toleration_that_comes_near_a_taint_is_named_with_it() -> None:
    c = tainted(Taint(GPU, "a100", "NoSchedule"))
    c.submit(tolerating("key", Toleration("nvidia.com/gpus", "Exists"))).run()
    assert c.said("key-0").endswith(
        "No node has the taint nvidia.com/gpus that is tolerated; did you mean nvidia.com/gpu?"
    )
    c.submit(tolerating("value", Toleration(GPU, "Equal", "a10"))).run()
    assert c.said("value-0").endswith(
        "The toleration nvidia.com/gpu=a10 does not cover the taint nvidia.com/gpu=a100:NoSchedule."
    )
    c.submit(tolerating("effect", Toleration(GPU, "Exists", "", "NoExecute"))).run()
    assert "The toleration nvidia.com/gpu:NoExecute does not cover" in c.said("effect-0")
    assert c.cures("effect")[0].startswith("Correct what is named in the pods' template")


def test_tolerations_that_resemble_no_taint_are_not_named() -> None:
    c = tainted(Taint(GPU, "", "NoSchedule"))
    c.submit(tolerating("train", *ADMISSION)).run()
    assert c.said("train-0").endswith("1 node(s) had untolerated taint(s) {nvidia.com/gpu:NoSchedule}.")


def test_a_dead_node_is_nobodys_slip() -> None:
    c = dead().submit(tolerating("train", *ADMISSION)).run()
    assert c.said("train-0").endswith(f"1 node(s) had untolerated taint(s) {{{UNREACHABLE}:NoSchedule}}.")
    assert c.cures("train") == (
        "Bring back node n0 that Kubernetes itself has tainted: its conditions say why (kubectl describe node"
        " n0), and the taint goes when they are good again.",
    )


def test_names_of_kubernetes_own_taints_are_not_taken_for_one_another() -> None:
    c = tainted(Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"))
    c.submit(tolerating("daemon", *DAEMON)).run()
    assert c.said("daemon-0").endswith(
        "untolerated taint(s) {node.kubernetes.io/network-unavailable:NoSchedule}."
    )
    c = tainted(Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule"))
    c.submit(tolerating("new", Toleration("node.cloudprovider.kubernetes.io/shutdown", "Exists"))).run()
    assert "did you mean" not in c.said("new-0")


def test_the_toleration_that_admission_adds_for_a_resource_is_nobodys_slip() -> None:
    c = tainted(Taint(GPU, "", "NoExecute"))
    c.submit(tolerating("train", Toleration(GPU, "Exists", "", "NoSchedule"), gpus=1)).run()
    assert "does not cover" not in c.said("train-0")
    assert c.cures("train")[0].startswith("Give the pods a toleration for the taint that is named")


def test_a_dead_node_is_named_beside_what_else_would_help() -> None:
    c = dead(tainted(name="n1"))
    c.submit(tolerating("train", *ADMISSION, pods=2, gpus=8)).run()
    bring, larger = c.cures("train")
    assert bring.startswith("Bring back node n0 ")
    assert larger.startswith("Or add 1 such node (")
    assert "Waiting does not help" not in larger


def test_the_cure_is_about_what_excludes_the_most_nodes_that_are_up() -> None:
    c = dead()
    for name in ("n1", "n2"):
        tainted(name=name, c=c)
    tainted(Taint("team", "a", "NoSchedule"), name="n3", c=c)
    pods = tolerating("train", *ADMISSION)
    c.submit([replace(p, spec=replace(p.spec, node_selector={"rack": "r7"})) for p in pods]).run()
    assert c.cures("train")[0].startswith("Correct what is named in the pods' template")
    labelled = make_node("n9")
    c.node(
        replace(
            labelled,
            metadata=replace(labelled.metadata, labels={"rack": "r7"}),
            spec=replace(labelled.spec, taints=[Taint(UNREACHABLE, "", "NoSchedule")]),
        )
    ).wait(400.0)
    compare, bring = c.cures("train")
    assert compare.startswith("Compare the pods' nodeSelector")
    assert bring.startswith("Bring back the 2 nodes, n")
