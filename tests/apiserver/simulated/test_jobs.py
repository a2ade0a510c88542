"""The simulated Job controller: the pods it makes, how it counts them, when a Job is done."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.lab.apiserver.simulated.jobs import indexes
from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, pod


def job(name: str, *, run_s: float | None = 10, exit_code: int | None = None, **spec: Any) -> Object:
    """A Job whose pods are as scenario.pod's; `restart` is theirs."""
    template = pod("", run_s=run_s, exit_code=exit_code, restart=spec.pop("restart", "Never"))
    template["metadata"] = {"annotations": template["metadata"]["annotations"], "labels": {"app": name}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
            "backoffLimit": 6,
            **spec,
        },
    }


def start(world: World, document: Object) -> World:
    world.create("jobs.batch", document)
    return place(world.run(0))


def place(world: World) -> World:
    """Bind all pods that wait to the first node, as a scheduler would."""
    for each in world.all("pods"):
        if not each["spec"].get("nodeName") and not each["metadata"].get("deletionTimestamp"):
            world.bind(each["metadata"]["name"], "node-0")
    return world.run(0)


def status(world: World, name: str = "train") -> Object:
    found: Object = world.get("jobs.batch", name).get("status", {})
    return found


def conditions(world: World, name: str = "train") -> list[str]:
    return [each["type"] for each in status(world, name).get("conditions", ()) if each["status"] == "True"]


def alive(world: World) -> list[Object]:
    """The pods that have not ended, in order of their names."""
    found = [each for each in world.all("pods") if each["status"]["phase"] in ("Pending", "Running")]
    return [each for each in found if not each["metadata"].get("deletionTimestamp")]


def test_an_indexed_job_runs_through() -> None:
    world = start(World(1), job("train", completions=4, parallelism=4, completionMode="Indexed"))
    made = world.all("pods")
    assert [each["metadata"]["name"][:8] for each in made] == ["train-0-", "train-1-", "train-2-", "train-3-"]
    first = made[0]
    assert first["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert first["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert first["metadata"]["labels"]["job-name"] == "train"
    assert first["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert first["spec"]["hostname"] == "train-0"
    assert first["spec"]["containers"][0]["env"] == [
        {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {
                "fieldRef": {
                    "apiVersion": "v1",
                    "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
                }
            },
        }
    ]
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "train", True)

    world.run(5)
    assert {key: status(world)[key] for key in ("active", "ready", "terminating")} == {
        "active": 4,
        "ready": 4,
        "terminating": 0,
    }
    world.run(10)
    assert conditions(world) == ["SuccessCriteriaMet", "Complete"]
    assert status(world)["succeeded"] == 4
    assert status(world)["completedIndexes"] == "0-3"
    assert "active" not in status(world)
    assert status(world)["completionTime"] == "2026-01-01T00:00:11Z"
    assert world.events("train") == [*["SuccessfulCreate"] * 4, "Completed"]
    assert all("finalizers" not in each["metadata"] for each in world.all("pods"))


def test_no_more_pods_than_parallelism_run_at_once() -> None:
    world = start(World(1), job("train", completions=5, parallelism=2))
    rounds = []
    while not conditions(world):
        rounds.append(len(alive(world)))
        place(world.run(11.5))
    assert rounds == [2, 2, 1]
    assert status(world)["succeeded"] == 5


def test_a_failed_pod_is_replaced_after_a_back_off_that_doubles() -> None:
    world = start(World(1), job("train", exit_code=1, run_s=1, completions=1, parallelism=1, backoffLimit=2))
    world.run(2.5)
    assert (status(world)["failed"], alive(world)) == (1, [])
    assert len(alive(place(world.run(10)))) == 1
    world.run(2.5)
    assert (status(world)["failed"], alive(place(world.run(15)))) == (2, [])
    assert len(alive(place(world.run(5)))) == 1
    world.run(3)
    assert conditions(world) == ["FailureTarget", "Failed"]
    assert status(world)["failed"] == 3
    assert (
        world.event("train", "BackoffLimitExceeded")["message"]
        == "Job has reached the specified backoff limit"
    )


def test_a_failed_job_deletes_what_still_runs() -> None:
    world = start(World(1), job("train", run_s=None, completions=3, parallelism=3, backoffLimit=0))
    world.run(3)

    def fail(obj: Object) -> None:
        obj["status"]["phase"] = "Failed"

    world.change("pods", alive(world)[0]["metadata"]["name"], fail).run(0)
    assert conditions(world) == ["FailureTarget"]
    assert status(world)["terminating"] == 2
    assert conditions(world.run(2)) == ["FailureTarget", "Failed"]
    assert len(world.all("pods")) == 1


def test_a_job_that_takes_too_long_fails() -> None:
    world = start(World(1), job("train", run_s=None, activeDeadlineSeconds=60, completions=1, parallelism=1))
    assert conditions(world.run(59)) == []
    assert conditions(world.run(3)) == ["FailureTarget", "Failed"]
    assert status(world)["conditions"][-1]["reason"] == "DeadlineExceeded"


def test_a_deleted_pod_is_replaced_with_the_same_index() -> None:
    world = start(World(1), job("train", run_s=None, completions=2, parallelism=2, completionMode="Indexed"))
    gone = alive(world.run(3))[1]["metadata"]
    world.delete("pods", gone["name"]).run(15)
    left = [each["metadata"] for each in alive(world)]
    assert [each["labels"]["batch.kubernetes.io/job-completion-index"] for each in left] == ["0", "1"]
    assert gone["name"] not in [each["name"] for each in left]
    assert world.phase(gone["name"]) == "gone"
    assert status(world)["failed"] == 1


@pytest.mark.parametrize(("policy", "at_once"), [("TerminatingOrFailed", 2), ("Failed", 1)])
def test_the_replacement_policy_says_whether_it_waits_for_the_end(policy: str, at_once: int) -> None:
    document = job("train", run_s=None, completions=1, parallelism=1, podReplacementPolicy=policy)
    document["spec"]["template"]["metadata"]["annotations"]["simulated.gangsched.io/stop-seconds"] = "25"
    world = start(World(1), document).run(3)
    world.delete("pods", alive(world)[0]["metadata"]["name"]).run(15)
    assert len(world.all("pods")) == at_once


def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    def suspend(obj: Object) -> None:
        obj["spec"]["suspend"] = True

    def resume(obj: Object) -> None:
        obj["spec"]["suspend"] = False

    world = start(World(1), job("train", suspend=True, completions=2, parallelism=2))
    assert (conditions(world), world.all("pods")) == (["Suspended"], [])
    assert len(alive(place(world.change("jobs.batch", "train", resume).run(0)))) == 2
    assert world.events("train") == ["Suspended", "SuccessfulCreate", "SuccessfulCreate", "Resumed"]
    world.run(3).change("jobs.batch", "train", suspend).run(3)
    assert (conditions(world), world.all("pods")) == (["Suspended"], [])


def test_a_finished_job_goes_after_its_time_with_its_pods() -> None:
    world = start(World(1), job("train", ttlSecondsAfterFinished=100, completions=1, parallelism=1)).run(12)
    assert conditions(world)[-1] == "Complete"
    assert world.run(90).find("jobs.batch", "train") is not None
    assert world.run(20).find("jobs.batch", "train") is None
    assert world.all("pods") == []


def test_a_deleted_job_takes_its_pods_with_it() -> None:
    world = start(World(1), job("train", run_s=None, completions=3, parallelism=3)).run(3)
    assert world.delete("jobs.batch", "train", propagation="Background").run(3).all("pods") == []


def test_a_work_queue_is_done_when_one_pod_has_succeeded_and_all_have_ended() -> None:
    world = start(World(1), job("train", parallelism=3)).run(12)
    assert conditions(world) == ["SuccessCriteriaMet", "Complete"]
    assert status(world)["succeeded"] == 3


def test_restarts_count_towards_the_limit_where_containers_restart() -> None:
    document = job(
        "train", exit_code=1, run_s=1, restart="OnFailure", completions=1, parallelism=1, backoffLimit=2
    )
    world = start(World(1), document).run(60)
    assert conditions(world) == ["FailureTarget", "Failed"]


def test_a_job_of_another_controller_is_left_alone() -> None:
    world = start(World(1), job("train", managedBy="example.com/mine", completions=1, parallelism=1))
    assert world.all("pods") == []


def test_what_is_not_simulated_is_reported() -> None:
    world = start(World(1), job("train", backoffLimitPerIndex=1, completions=1, parallelism=1))
    assert "backoffLimitPerIndex" in world.event("train", "NotSimulated")["message"]


def test_many_pods_are_made_in_pieces() -> None:
    world = start(World(1, cpu=200), job("train", completions=100, parallelism=100, completionMode="Indexed"))
    numbers = sorted(int(each["metadata"]["name"].split("-")[1]) for each in world.all("pods"))
    assert numbers == list(range(100))
    assert status(world)["active"] == 100


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", set()), ("1", {1}), ("0,1", {0, 1}), ("1,3-5,7", {1, 3, 4, 5, 7}), ("0-2", {0, 1, 2})],
)
def test_indexes_are_written_as_intervals(text: str, numbers: set[int]) -> None:
    assert indexes.text(numbers) == text
    assert indexes.parse(text, 100) == numbers


@pytest.mark.parametrize("env", [[{"value": "no name"}], [3]])
def test_a_job_that_no_pod_can_be_made_of_costs_itself_alone(env: list[Any]) -> None:
    bad = job("bad", completions=1, completionMode="Indexed")
    bad["spec"]["template"]["spec"]["containers"][0]["env"] = env
    world = World(1)
    world.create("jobs.batch", bad)
    world = start(world, job("good", completions=2, parallelism=2))
    assert sum(each["metadata"]["name"].startswith("good-") for each in alive(world)) == 2
