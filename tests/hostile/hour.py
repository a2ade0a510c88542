"""An hour of hostile tenants: objects of up to 1.4 MB, while good gangs come, beside two replicas.

`python -m tests.hostile.hour --minutes 60` starts etcd and kube-apiserver, applies the base of deploy/ with
its policies and the CRDs of every kind that states gangs, and runs two replicas with the base's configuration
(leader election on). Three tenants, one of which has its Jobs inferred too, write pods with the longest lists
(tests.hostile.heavy), other odd objects (tests.hostile.objects), PodGroups of every dialect and controllers'
objects with pods of theirs (tests.hostile.owners), quotas and budgets; some pods they put on a node
themselves. What a policy refuses is written again without the keys that only the scheduler writes. A careless
agent writes annotations, labels, taints, amounts and conditions of 40 nodes that are not the good gangs'.
After each batch comes a gang that nothing of this concerns. Prints a line a minute, and ends with 1 after a
breach: a gang that is bound later than 10 s, a replica that ended, memory above the Deployment's limit, a
turn of more than a second of CPU, a fault of the scheduler's own in its log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import yaml

from gangsched.errors import ApiError
from gangsched.lab.controlplane.daemon import Daemon, free_ports
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.owners import ORDERED
from tests.conftest import DEFINITIONS
from tests.hostile.heavy import HEAVY, MOST_BYTES
from tests.hostile.objects import Hostile, Json, as_json
from tests.hostile.owners import KINDS, HostileOwners, collection, definitions
from tests.hostile.things import Thing
from tests.real.cluster import MERGE, REPO
from tests.real.fuzz import BOUND_WITHIN_S, Api
from tests.real.process import service_account
from tests.support.applying import apply

TENANTS = ("team-a", "team-b", "team-c")
GOOD = "good"
MOST_CPU_S = 1.0
MOST_AT_ONCE = 60
AT_LEAST = 5
"""Gangs of a run, however short and slow."""
SERVED_WITHIN_S = 60.0
N_POOR = 200
N_CARELESS = 40
"""Nodes with a careless agent: what is on nodes stays, up to 1.5 MB each."""
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"
_CONTAINED = "a fault of this program, contained"
_TAINT = {"key": "fuzz.example.com/good", "value": "only", "effect": "NoSchedule"}
_IN_NAMESPACES = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodGroup.core": collection("PodGroup of scheduling.k8s.io", "{}"),
    "PodGroup.coscheduling": collection("PodGroup of scheduling.x-k8s.io", "{}"),
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Service": "/api/v1/namespaces/{}/services",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    **{kind: collection(kind, "{}") for kind in KINDS},
}
_RUN_IN_A_CLUSTER = {"deployment.yaml", "service.yaml", "networkpolicy.yaml", "poddisruptionbudget.yaml"}
_SCHEDULERS_OWN = "only the scheduler"
_TOO_LARGE = ("etcdserver: request is too large", "message larger than max")
# With a warning for each field that a CRD does not have, an answer may have more headers than are read.
_NO_WARNINGS = "?fieldValidation=Ignore"
_RESERVED = {"allocated-devices", "visible-devices", "gang", "rank", "attempt", "start", "started-in-queue"}
_RESERVED |= {"traceparent"}


class Replica(Daemon):
    """One scheduler, by the files of deploy/, and what is seen of it from outside."""

    def __init__(self, plane: ControlPlane, directory: Path, name: str) -> None:
        self.turns = directory / f"{name}.turns"
        self.turns.touch()
        account = service_account(plane, directory / f"{name}-account.yaml")
        command = [sys.executable, "-m", "tests.hostile.watched", "scheduler"]
        command += [f"--config={REPO / 'deploy' / 'config' / 'scheduler.yaml'}", f"--kubeconfig={account}"]
        command += [f"--secure-port={free_ports(1)[0]}"]
        env = {**os.environ, "NO_PROXY": "*", "TURNS": str(self.turns)}
        super().__init__("gangsched", command, log=directory / f"{name}.log", env=env)
        self._n_turns = self._n_log = 0

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def new_turns(self) -> list[tuple[float, str]]:
        """Turns that took long, since the last call: seconds of CPU, what for."""
        lines = self.turns.read_text().splitlines()
        new, self._n_turns = lines[self._n_turns :], len(lines)
        return [(float(one.split(" ", 1)[0]), one) for one in new]

    def new_faults(self) -> list[str]:
        said = self.said
        new, self._n_log = said[self._n_log :], len(said)
        return [line[:2000] for line in new.splitlines() if _CONTAINED in line or "Traceback" in line]

    def memory_mib(self) -> int:
        """The most that it has had in memory."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return 0
        return max((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")), default=0)


class Minute:
    """What a line tells."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.worst = (0.0, "")
        self.n_created = self.n_refused = self.n_bytes = 0


class Hour:
    """One run; what it found is in `found`."""

    def __init__(self, plane: ControlPlane, directory: Path, seed: int) -> None:
        self._plane, self._api, self._directory = plane, Api(plane), directory
        self._rng = Random(seed)
        self._hostile = Hostile(Random(f"{seed}-objects"), nodes=("poor0", "poor1"))
        self._owners = HostileOwners(Random(f"{seed}-owners"))
        self._there: list[tuple[str, str]] = []
        self._n_names = self._n_gangs = 0
        self.replicas: list[Replica] = []
        self.minute, self.whole = Minute(), Minute()
        self.sorts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.found: list[str] = []
        self.most_mib = memory_limit_mib()
        self.memory_mib = 0

    # -- the cluster -------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """The base of deploy/, namespaces, nodes, two replicas, and a first gang."""
        self._install()
        for name in (*TENANTS, GOOD):
            labels = {"gangsched.io/infer-gangs": ".".join(ORDERED)} if name == TENANTS[-1] else {}
            self._plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for kind, n, taints in ((GOOD, 4, [_TAINT]), ("poor", N_POOR, [])):
            for i in range(n):
                self._node(f"{kind}{i}", kind, taints)
        self._until("the policies hold", self._is_forging_refused)
        self.replicas = [Replica(self._plane, self._directory, name) for name in ("first", "second")]
        self.good_gang(patience_s=120)
        self.found.clear()
        self.minute, self.whole = Minute(), Minute()

    def _install(self) -> None:
        """What the base has beside what runs in a cluster, and the kinds of other systems."""
        deploy = REPO / "deploy"
        base = yaml.safe_load((deploy / "kustomization.yaml").read_text())["resources"]
        files = [deploy / name for name in base if name not in _RUN_IN_A_CLUSTER]
        apply(self._plane, *files, deploy / "infer-jobs" / "rbac.yaml")
        for body in definitions():
            self._plane.request("POST", DEFINITIONS, body)
        for kind, at in _IN_NAMESPACES.items():
            self._until(f"{kind} is served", partial(self._is_served, at.format(GOOD)))

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + SERVED_WITHIN_S
        while not holds():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{what}: not after {SERVED_WITHIN_S:.0f} s")
            time.sleep(0.1)

    def _is_served(self, path: str) -> bool:
        return self._api.send("GET", path)[0] == 200

    def _is_forging_refused(self) -> bool:
        pods = _IN_NAMESPACES["Pod"].format(GOOD)
        forged = _member("forged", "forged", 2)
        forged["metadata"]["annotations"]["gangsched.io/gang"] = f"{GOOD}/forged"
        code, answer = self._api.send("POST", f"{pods}?dryRun=All", json.dumps(forged).encode())
        return code != 201 and _SCHEDULERS_OWN in str(answer)

    def _node(self, name: str, kind: str, taints: list[Json]) -> None:
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": kind, "number": name[4:]}
        room = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}
        self._api.send("POST", "/api/v1/nodes", json.dumps(body).encode())
        status = {"status": {"allocatable": room, "capacity": room}}
        self._api.send("PATCH", f"/api/v1/nodes/{name}/status", json.dumps(status).encode(), kind=MERGE)

    # -- what tenants write ------------------------------------------------------------------------------

    def batch(self) -> None:
        """Some objects of one tenant, changes of others, and the oldest go."""
        rng = self._rng
        for _ in range(rng.randrange(1, 6)):
            self._n_names += 1
            self._create(rng.choice(TENANTS), f"h{self._n_names}")
        if self._there and rng.random() < 0.5:
            self._edit(*rng.choice(self._there))
        if rng.random() < 0.5:
            self._careless_agent(f"poor{rng.randrange(N_CARELESS)}")
        while len(self._there) > MOST_AT_ONCE or (self._there and rng.random() < 0.3):
            self._delete(self._there.pop(0)[1])

    def _create(self, tenant: str, name: str) -> None:
        rng = self._rng
        if (which := rng.random()) < 0.4:
            sort = rng.choice([*HEAVY])
            size = rng.choice((9_500, 55_000, 400_000, MOST_BYTES))  # some at a limit
            kind, body = "Pod", HEAVY[sort](name, size)
            if rng.random() < 0.25:
                sort, body["spec"]["nodeName"] = f"{sort}, on a node", f"poor{rng.randrange(N_POOR)}"
        elif which < 0.7:
            thing = self._owners.draw(name, rng.choice((1_000, 55_000, MOST_BYTES)))
            self._write(tenant, thing)
            for pod in self._owners.pods_of(thing):
                self._write(tenant, Thing(f"pod of {thing.kind}", "Pod", pod))
            return
        elif which < 0.8:
            sort, kind, body = self._listed(name)
        else:
            thing = self._hostile.draw(name)
            if thing.kind not in _IN_NAMESPACES:
                return  # what only an administrator writes
            sort, kind, body = thing.sort, thing.kind, thing.body
        self._write(tenant, Thing(sort, kind, body))

    def _write(self, tenant: str, thing: Thing) -> None:
        sort, kind, body = thing
        body["metadata"].pop("uid", None)
        body["metadata"]["namespace"] = tenant
        path, text = _IN_NAMESPACES[kind].format(tenant), as_json(body)
        code, answer = self._api.send("POST", path + _NO_WARNINGS, text)
        if code != 201 and _SCHEDULERS_OWN in str(answer):
            self.sorts["refused by a policy, and written without the scheduler's keys"] += 1
            _without_the_schedulers_keys(body["metadata"])
            text = as_json(body)
            code, answer = self._api.send("POST", path + _NO_WARNINGS, text)
        for each in (self.minute, self.whole):
            each.n_created += code == 201
            each.n_refused += code != 201
            each.n_bytes += len(text) * (code == 201)
        if code == 201:
            self.sorts[sort] += 1
            self._there.append((kind, f"{path}/{body['metadata']['name']}"))
            if body.get("status"):
                self._status(kind, self._there[-1][1], body["status"])
        else:
            self.refused[sort] += 1
            if code in (0, 404, 500) and not any(words in str(answer) for words in _TOO_LARGE):
                self.found.append(f"the API server answered {code} to {sort}: {str(answer)[:300]}")

    def _status(self, kind: str, path: str, status: Json) -> None:
        patch = json.dumps({"status": status}).encode()
        code, _ = self._api.send("PATCH", f"{path}/status", patch, kind=MERGE)
        if code == 404:  # the kind has no such subresource: it is written with the rest
            self._api.send("PATCH", path, patch, kind=MERGE)

    def _careless_agent(self, name: str) -> None:
        """What an agent of a node may write there, and a kubelet that believes its device plugins."""
        sort, meta, status = self._hostile.of_an_agent(name)
        path = f"/api/v1/nodes/{name}"
        for at, patch in ((path, {"metadata": meta}), (f"{path}/status", {"status": status})):
            code, _ = self._api.send("PATCH", at, json.dumps(patch).encode(), kind=MERGE)
            (self.sorts if code == 200 else self.refused)[sort] += 1

    def _listed(self, name: str) -> tuple[str, str, Json]:
        """Long objects of other kinds."""
        n = self._rng.choice((100, 10_000))
        meta: Json = {"name": name, "annotations": {"gangsched.io/groups": json.dumps(["a/b"] * (n // 2))}}
        amounts = {f"requests.e.io/r{i}": "1" for i in range(n)}
        selector = {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]}
        wide = {"minMember": 2, "minResources": {f"e.io/r{i}": "1" for i in range(n)}}
        core = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        return self._rng.choice(
            (
                ("quota", "ResourceQuota", {"metadata": {"name": name}, "spec": {"hard": amounts}}),
                ("budget", "PodDisruptionBudget", {"metadata": meta, "spec": {"selector": selector}}),
                ("PodGroup, long", "PodGroup.coscheduling", _kind("x-k8s.io/v1alpha1", meta, wide)),
                ("PodGroup, long", "PodGroup.core", _kind("k8s.io/v1beta1", meta, core)),
            )
        )

    def _edit(self, kind: str, path: str) -> None:
        """Another's words on it; or, of what states gangs, another's numbers in it."""
        other = self._hostile.pod("other").body["metadata"]
        meta = {"annotations": other.get("annotations"), "labels": other.get("labels")}
        if kind == "Pod":
            _without_the_schedulers_keys(meta)
        patch: Json = {"metadata": meta}
        if kind in KINDS and self._rng.random() < 0.7:
            body = self._owners.of_kind(kind, "other").body
            patch = {key: body[key] for key in ("spec", "status") if key in body}
        code, _ = self._api.send("PATCH", path + _NO_WARNINGS, json.dumps(patch).encode(), kind=MERGE)
        (self.sorts if code == 200 else self.refused)[f"{kind}, changed"] += 1

    def _delete(self, path: str) -> None:
        self._api.send("DELETE", path, b'{"gracePeriodSeconds":0}')

    # -- what must hold ----------------------------------------------------------------------------------

    def good_gang(self, *, patience_s: float = 30.0) -> None:
        """A gang of a tenant that has done nothing is bound whole, in time."""
        self._n_gangs += 1
        gang, n = f"gang-{self._n_gangs}", self._rng.choice((1, 2, 4, 8))
        pods = _IN_NAMESPACES["Pod"].format(GOOD)
        names = [f"{gang}-{k}" for k in range(n)]
        for name in names:
            code, answer = self._api.send("POST", pods, json.dumps(_member(name, gang, n)).encode())
            if code != 201:
                self.found.append(f"{name} could not be created: {code} {str(answer)[:300]}")
                return
        began_s, left = time.monotonic(), list(names)
        while left and time.monotonic() - began_s < patience_s:
            code, pod = self._api.send("GET", f"{pods}/{left[0]}")
            if code == 200 and pod["spec"].get("nodeName"):
                left.pop(0)
            else:
                time.sleep(0.02)
        waited_s = time.monotonic() - began_s
        for each in (self.minute, self.whole):
            each.waits_s.append(waited_s)
        if left or waited_s > BOUND_WITHIN_S:
            _, pod = self._api.send("GET", f"{pods}/{(left or names)[0]}")
            said = (pod or {}).get("status", {}).get("conditions")
            self.found.append(f"{gang} of {n} after {waited_s:.1f} s: {len(left)} are not bound; {said}")
        for name in names:
            self._delete(f"{pods}/{name}")

    def look(self) -> None:
        """Replicas, their memory, turns and logs."""
        for replica in self.replicas:
            for turn in replica.new_turns():
                for each in (self.minute, self.whole):
                    each.worst = max(each.worst, turn)
                if turn[0] > MOST_CPU_S:
                    self.found.append(f"a turn of {turn[1]}")
            self.found += replica.new_faults()
            if not replica.is_alive:
                code = replica.process.returncode
                self.found.append(f"a replica ended with {code}: {replica.said[-3000:]}")
            memory = replica.memory_mib()
            self.memory_mib = max(self.memory_mib, memory)
            if memory > self.most_mib:
                self.found.append(f"{memory} MiB in memory, the Deployment's limit is {self.most_mib}")
        self.replicas = [one for one in self.replicas if one.is_alive]

    def line(self, of: Minute) -> str:
        """What a minute, or all of it, was like."""
        waits, alive = sorted(of.waits_s), len(self.replicas)
        middle = waits[len(waits) // 2] if waits else 0.0
        return (
            f"{len(waits)} gangs bound, median {middle:.2f} s, longest {max(waits, default=0.0):.2f} s;"
            f" worst turn {of.worst[0]:.2f} s of CPU ({of.worst[1] or 'none above 0.05'});"
            f" {self.memory_mib} of {self.most_mib} MiB; {alive} replicas alive;"
            f" {of.n_created} objects of {of.n_bytes / 1e6:.0f} MB, {of.n_refused} refused;"
            f" found {len(self.found)}"
        )

    def clean_up(self) -> None:
        for replica in self.replicas:
            replica.kill()


def _kind(version: str, meta: Json, spec: Json) -> Json:
    return {"apiVersion": f"scheduling.{version}", "kind": "PodGroup", "metadata": meta, "spec": spec}


def _member(name: str, gang: str, n: int) -> Json:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "metadata": {
            "name": name,
            "labels": {"gangsched.io/pod-group": gang},
            "annotations": {"gangsched.io/min-members": str(n)},
        },
        "spec": {
            "schedulerName": "gangsched",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{**_TAINT, "operator": "Equal"}],
            "nodeSelector": {"topology.kubernetes.io/zone": GOOD},
            "containers": [{"name": "main", "image": "busybox", "resources": resources}],
        },
    }


def _without_the_schedulers_keys(meta: Json) -> None:
    """As one writes it again whom deploy/reserved-keys.yaml has refused."""
    for which in ("annotations", "labels"):
        kept = {key: value for key, value in (meta.get(which) or {}).items() if not _is_reserved(key)}
        meta[which] = kept


def _is_reserved(key: str) -> bool:
    group, _, name = key.partition("/")
    return group.endswith(".gangsched.io") or (group == "gangsched.io" and name in _RESERVED)


def memory_limit_mib() -> int:
    """The limit of the scheduler's container in deploy/."""
    deployment = yaml.safe_load((REPO / "deploy" / "deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    text = container["resources"]["limits"]["memory"]
    return int(text.removesuffix("Gi")) * 1024 if text.endswith("Gi") else int(text.removesuffix("Mi"))


def run(plane: ControlPlane, directory: Path, *, seed: int, seconds: float, say: bool = False) -> Hour:
    """A run of so many seconds, and of AT_LEAST gangs."""
    hour = Hour(plane, directory, seed)
    try:
        hour.set_up()
        until_s, say_at_s, n_said = time.monotonic() + seconds, time.monotonic() + 60, 0
        while hour.replicas and (time.monotonic() < until_s or len(hour.whole.waits_s) < AT_LEAST):
            hour.batch()
            hour.good_gang()
            hour.look()
            if say and time.monotonic() > say_at_s:
                print(time.strftime("%H:%M:%S"), hour.line(hour.minute), flush=True)
                print("".join(f"- {one}\n" for one in hour.found[n_said:]), end="", flush=True)
                hour.minute, say_at_s, n_said = Minute(), time.monotonic() + 60, len(hour.found)
        try:
            moved = plane.request("GET", LEASE)["spec"].get("leaseTransitions", 0)
        except ApiError as error:
            hour.found.append(f"the Lease cannot be read: {error}")
        else:
            if moved:
                hour.found.append(f"the lead has changed hands {moved} times")
    finally:
        hour.clean_up()
    return hour


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory, ControlPlane(unsafe_no_fsync=True) as plane:
        done = run(plane, Path(directory), seed=given.seed, seconds=60 * given.minutes, say=True)
        print("all of it:", done.line(done.whole), flush=True)
        for sort in sorted({*done.sorts, *done.refused}):
            print(f"  {sort}: {done.sorts[sort]}, and {done.refused[sort]} refused")
        for one in done.found:
            print(f"- {one}", flush=True)
    return 1 if done.found else 0


if __name__ == "__main__":
    sys.exit(main())
