"""A bound pod's way on a simulated node, as a person watching it sees it."""

from __future__ import annotations

import pytest

from tests.apiserver.simulated.scenario import World, pod

NODE = "node-0"


def test_a_bound_pod_is_created_runs_and_succeeds() -> None:
    world = World(1).submit(pod("a", run_s=10), on=NODE).run(0)
    assert (world.phase("a"), world.waiting("a")) == ("Pending", "ContainerCreating")
    assert world.condition("pods", "a", "Ready")["reason"] == "ContainersNotReady"

    world.run(1)
    status = world.get("pods", "a")["status"]
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["ready"]
    assert status["podIP"] == "10.0.0.2"
    assert status["hostIP"] == world.get("nodes", NODE)["status"]["addresses"][0]["address"]
    assert world.condition("pods", "a", "Ready")["status"] == "True"
    assert world.condition("pods", "a", "PodScheduled")["status"] == "True"

    world.run(10)
    state = world.get("pods", "a")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert world.phase("a") == "Succeeded"
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    assert state["startedAt"] == "2026-01-01T00:00:01Z"
    assert state["finishedAt"] == "2026-01-01T00:00:11Z"
    assert world.condition("pods", "a", "Ready")["reason"] == "PodCompleted"
    assert world.events("a") == ["Pulled", "Created", "Started"]
    started = world.event("a", "Started")
    assert started["source"] == {"component": "kubelet", "host": NODE}
    assert "simulated" in started["message"]


def test_a_sidecar_runs_on_while_the_others_are_restarted() -> None:
    sidecar = [{"name": "side", "image": "busybox", "restartPolicy": "Always"}]
    world = World(1).submit(
        pod("a", run_s=5, exit_code=1, restart="OnFailure", initContainers=sidecar), on=NODE
    )
    side = world.run(8).get("pods", "a")["status"]["initContainerStatuses"][0]
    assert side["state"]["running"]["startedAt"] == "2026-01-01T00:00:01Z"
    assert side["restartCount"] == 0
    assert world.get("pods", "a")["status"]["containerStatuses"][0]["restartCount"] == 1


def test_an_exit_code_fails_the_pod() -> None:
    world = World(1).submit(pod("a", run_s=1, exit_code=3), on=NODE).run(3)
    state = world.get("pods", "a")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (world.phase("a"), state["exitCode"], state["reason"]) == ("Failed", 3, "Error")


@pytest.mark.parametrize(
    ("command", "runs_s"),
    [(["sleep", "60"], 60), (["sh", "-c", "echo hello; sleep 1.5m"], 90), (["sh", "-c", "true"], 30)],
)
def test_without_an_annotation_a_pod_runs_as_long_as_its_command_sleeps(
    command: list[str], runs_s: float
) -> None:
    spec = pod("a")
    spec["metadata"]["annotations"].pop("simulated.gangsched.io/run-seconds")
    spec["spec"]["containers"][0]["command"] = command
    world = World(1).submit(spec, on=NODE).run(runs_s + 0.9)
    assert world.phase("a") == "Running"
    assert world.run(0.2).phase("a") == "Succeeded"


def test_a_pod_that_always_restarts_and_does_not_sleep_runs_for_ever() -> None:
    spec = pod("a", restart="Always")
    spec["metadata"]["annotations"].pop("simulated.gangsched.io/run-seconds")
    assert World(1).submit(spec, on=NODE).run(1e5).phase("a") == "Running"


def test_containers_that_end_are_restarted_at_once_and_then_with_a_back_off() -> None:
    def container() -> tuple[str, int]:
        one = world.get("pods", "a")["status"]["containerStatuses"][0]
        state = next(iter(one["state"]))
        return one["state"]["waiting"]["reason"] if state == "waiting" else state, one["restartCount"]

    world = World(1).submit(pod("a", run_s=5, exit_code=1, restart="OnFailure"), on=NODE).run(6.5)
    assert (world.phase("a"), container()) == ("Running", ("terminated", 0))
    assert world.condition("pods", "a", "Ready")["status"] == "False"
    world.run(1)
    assert container() == ("running", 1)
    assert world.condition("pods", "a", "Ready")["status"] == "True"
    world.run(5)
    assert container() == ("CrashLoopBackOff", 1)
    last = world.get("pods", "a")["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (1, "Error")
    assert world.event("a", "BackOff")["message"].startswith(
        "Back-off restarting failed container main in pod a_"
    )
    world.run(10)
    assert container() == ("running", 2)  # it waited 10 s
    world.run(5)
    assert container() == ("CrashLoopBackOff", 2)
    world.run(19)
    assert container() == ("CrashLoopBackOff", 2)  # and waits 20 s the next time
    world.run(1)
    assert container() == ("running", 3)


def test_deletion_waits_for_the_containers_to_stop() -> None:
    world = World(1).submit(pod("a"), on=NODE).run(5).delete("pods", "a").run(0.5)
    assert world.get("pods", "a")["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:35Z"
    assert world.events("a")[-1] == "Killing"
    assert world.run(1).phase("a") == "gone"


def test_containers_that_do_not_stop_in_time_are_killed() -> None:
    slow = {"simulated.gangsched.io/stop-seconds": "100"}
    world = World(1).submit(pod("a", annotations=slow, terminationGracePeriodSeconds=8), on=NODE).run(5)
    seen: list[int] = []

    def watch(change: object) -> None:
        found = world.find("pods", "a")
        if found and "terminated" in found["status"]["containerStatuses"][0]["state"]:
            seen.append(found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])

    world.registry.store.subscribe(watch, "/pods")
    assert world.delete("pods", "a").run(7).phase("a") == "Running"
    assert world.run(1).phase("a") == "gone"
    assert set(seen) == {137}


def test_a_second_deletion_with_less_grace_shortens_the_wait() -> None:
    slow = {"simulated.gangsched.io/stop-seconds": "100"}
    world = World(1).submit(pod("a", annotations=slow), on=NODE).run(5).delete("pods", "a").run(2)
    assert world.phase("a") == "Running"
    assert world.delete("pods", "a", grace_s=1).run(1).phase("a") == "gone"


def test_a_deletion_without_grace_frees_the_node_at_once() -> None:
    world = World(1, gpus=1).submit(pod("a", gpus=1), on=NODE).run(5).delete("pods", "a", grace_s=0)
    assert world.submit(pod("b", gpus=1), on=NODE).run(2).phase("b") == "Running"


def test_a_pod_deleted_before_it_runs_is_gone_at_once() -> None:
    world = World(1).submit(pod("a"), on=NODE).run(0.5).delete("pods", "a").run(0)
    assert world.phase("a") == "gone"


def test_a_missing_config_map_holds_the_pod_until_it_is_there() -> None:
    volumes = [{"name": "cfg", "configMap": {"name": "settings"}}]
    world = World(1).submit(pod("a", volumes=volumes), on=NODE).run(20)
    assert (world.phase("a"), world.waiting("a")) == ("Pending", "ContainerCreating")
    event = world.event("a", "FailedMount")
    assert event["message"] == 'MountVolume.SetUp failed for volume "cfg" : configmap "settings" not found'
    assert event["count"] > 2  # told again each time, on one Event
    world.create("configmaps", {"metadata": {"name": "settings"}})
    assert world.run(40).phase("a") == "Running"


def test_a_missing_secret_of_the_environment_is_a_config_error() -> None:
    spec = pod("a")
    source = {"secretKeyRef": {"name": "token", "key": "t"}}
    spec["spec"]["containers"][0]["env"] = [{"name": "T", "valueFrom": source}]
    world = World(1).submit(spec, on=NODE).run(5)
    assert world.waiting("a") == "CreateContainerConfigError"
    world.create("secrets", {"metadata": {"name": "token"}})
    assert world.run(20).phase("a") == "Running"


def test_init_containers_end_before_the_others_run() -> None:
    spec = pod("a", initContainers=[{"name": "prepare", "image": "busybox"}])
    world = World(1).submit(spec, on=NODE).run(0.5)
    assert world.waiting("a") == "PodInitializing"
    assert world.condition("pods", "a", "Initialized")["status"] == "False"
    world.run(1)
    init = world.get("pods", "a")["status"]["initContainerStatuses"][0]
    assert init["state"]["terminated"]["reason"] == "Completed"
    assert world.condition("pods", "a", "Initialized")["status"] == "True"


def test_an_annotation_that_cannot_be_read_fails_the_pod_and_says_which() -> None:
    wrong = {"simulated.gangsched.io/run-seconds": "a while"}
    world = World(1).submit(pod("a", annotations=wrong), on=NODE).run(1)
    message = world.get("pods", "a")["status"]["message"]
    assert world.phase("a") == "Failed"
    assert "simulated.gangsched.io/run-seconds: 'a while' is not a number of seconds" in message


def test_addresses_are_used_again() -> None:
    world = World(1)
    for name in ("a", "b"):
        world.submit(pod(name), on=NODE)
    world.run(2)
    assert [world.get("pods", name)["status"]["podIP"] for name in ("a", "b")] == ["10.0.0.2", "10.0.0.3"]
    world.delete("pods", "a").run(2).submit(pod("c"), on=NODE).run(2)
    assert world.get("pods", "c")["status"]["podIP"] == "10.0.0.2"


def test_without_kubelets_a_bound_pod_stays_as_it_was_bound() -> None:
    world = World(1, kubelets=False).submit(pod("a"), on=NODE).run(500)
    assert world.get("pods", "a")["status"] == {
        "phase": "Pending",
        "qosClass": "Burstable",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
    }
    assert world.condition("nodes", NODE, "Ready")["status"] == "True"
    assert world.taints(NODE) == set()
