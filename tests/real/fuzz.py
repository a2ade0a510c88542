"""A fuzz run: hostile objects on a real API server, and after each batch a good gang that must be bound.

`python -m tests.real.fuzz --minutes 60 --seed 1` starts etcd, kube-apiserver and the scheduler as its users
run it, writes objects of tests.hostile.objects in batches (created, changed, their status written, deleted),
and after each batch submits a gang that nothing of this concerns: it has nodes of its own by a taint, and
must be bound within 10 s. The scheduler's process must never end, never print a traceback of a crash, and
contain no fault of its own. Prints what it found; ends with 1 when there is something.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import ssl
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from gangsched.lab.controlplane.processes import ControlPlane
from tests.hostile.objects import Hostile, Json, Thing, as_json
from tests.real.cluster import COSCHEDULING_GROUPS, CRD, MERGE, PODS, RBAC
from tests.real.picture import GPU
from tests.real.process import Scheduler, service_account, write_config

BOUND_WITHIN_S = 10.0
# So many hostile objects are there at once, at most; the oldest go first.
_MOST_AT_ONCE = 150
_CONTAINED = "a fault of this program, contained"
_TAINT = {"key": "fuzz.example.com/good", "value": "only", "effect": "NoSchedule"}
_COLLECTIONS = {
    "Pod": "/api/v1/namespaces/default/pods",
    "Node": "/api/v1/nodes",
    "PodGroup.core": "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups",
    "PodGroup.coscheduling": COSCHEDULING_GROUPS,
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "Service": "/api/v1/namespaces/default/services",
    "Namespace": "/api/v1/namespaces",
}


class Api:
    """One connection that is kept: a fuzz run makes tens of thousands of requests."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._connection: http.client.HTTPSConnection | None = None

    def send(
        self, method: str, path: str, body: bytes = b"", *, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """The code and the JSON of the answer; code 0: no answer."""
        headers = {"Authorization": f"Bearer {self._plane.token}", "Content-Type": kind}
        for _ in range(2):
            try:
                if self._connection is None:
                    context = ssl.create_default_context(cafile=str(self._plane.ca_file))
                    where = urlsplit(self._plane.base_url).netloc
                    self._connection = http.client.HTTPSConnection(where, timeout=60, context=context)
                self._connection.request(method, path, body or None, headers)
                answer = self._connection.getresponse()
                raw = answer.read()
                return answer.status, _json(raw)
            except (OSError, http.client.HTTPException):
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
        return 0, None


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw[:1] in (b"{", b"[") else raw.decode(errors="replace")
    except RecursionError:
        return "too deep"


class Fuzz:
    """One run."""

    def __init__(self, plane: ControlPlane, directory: Path, seed: int) -> None:
        self._plane, self._api = plane, Api(plane)
        self._directory = directory
        self._rng = Random(seed)
        self._hostile = Hostile(Random(f"{seed}-objects"), nodes=("poor0", "poor1"))
        self._there: list[tuple[str, str]] = []
        self._n_names = self._n_gangs = 0
        self.made: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.changed: Counter[str] = Counter()
        self.waits_s: list[float] = []
        self.found: list[str] = []
        self._n_log = 0

    # -- the cluster -------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Rights, the CRD, two nodes for the good gangs, two for whoever comes, the scheduler."""
        self._plane.kubectl("apply", "-f", str(RBAC), "-f", str(CRD))
        for name, taints in (("good0", [_TAINT]), ("good1", [_TAINT]), ("poor0", []), ("poor1", [])):
            self._node(name, taints)
        account = service_account(self._plane, self._directory / "account.yaml")
        config = write_config(self._directory / "config.yaml")
        self.scheduler = Scheduler(config, account, self._directory / "scheduler.log")
        self.good_gang(patience_s=60)
        self.waits_s.clear()

    def _node(self, name: str, taints: list[Json]) -> None:
        devices = [{"id": f"GPU-{name}-{k}", "health": "Healthy"} for k in range(8)]
        notes = {"gangsched.io/devices": json.dumps({GPU: devices})}
        room = {"cpu": "64", "memory": "512Gi", "pods": "1000", GPU: "8"}
        body = {"metadata": {"name": name, "annotations": notes}, "spec": {"taints": taints}}
        self._api.send("POST", _COLLECTIONS["Node"], json.dumps(body).encode())
        status = {"status": {"allocatable": room, "capacity": room}}
        self._api.send("PATCH", f"/api/v1/nodes/{name}/status", json.dumps(status).encode(), kind=MERGE)

    # -- a batch -----------------------------------------------------------------------------------------

    def batch(self) -> None:
        """Some hostile objects, some changes of those that are there, and some that go."""
        for _ in range(self._rng.randrange(1, 7)):
            self._n_names += 1
            self._create(self._hostile.draw(f"h{self._n_names}"))
        for _ in range(self._rng.randrange(3)):
            self._change()
        n_gone = max(len(self._there) - _MOST_AT_ONCE, self._rng.randrange(4))
        for _ in range(min(n_gone, len(self._there))):
            collection, name = self._there.pop(0)
            self._delete(collection, name)

    def clean_up(self) -> None:
        """Others who list what is there may not be able to read it."""
        for collection, name in self._there:
            self._delete(collection, name)

    def _create(self, thing: Thing) -> None:
        collection = _COLLECTIONS[thing.kind]
        code, answer = self._api.send("POST", collection, as_json(thing.body))
        if code != 201:
            self.refused[thing.sort] += 1
            if code in (0, 500):
                self.found.append(f"the API server answered {code} to {thing.sort}: {str(answer)[:300]}")
            return
        self.made[thing.sort] += 1
        if thing.kind == "Node":
            self._hostile.nodes = (*self._hostile.nodes[-20:], thing.name)
        self._there.append((collection, thing.name))
        status = thing.body.get("status")
        if status:
            patch = json.dumps({"status": status}).encode()
            code, _ = self._api.send("PATCH", f"{collection}/{thing.name}/status", patch, kind=MERGE)
            self.changed["status" if code == 200 else "status refused"] += 1

    def _change(self) -> None:
        """One of those that are there is given the annotations and labels of another, or ends."""
        if not self._there:
            return
        collection, name = self._rng.choice(self._there)
        if self._rng.random() < 0.3:
            self._there.remove((collection, name))
            self._delete(collection, name)
            return
        other = self._hostile.node(name) if collection == _COLLECTIONS["Node"] else self._hostile.pod(name)
        patch: Json = {
            "metadata": {key: other.body["metadata"].get(key) for key in ("annotations", "labels")}
        }
        code, _ = self._api.send("PATCH", f"{collection}/{name}", json.dumps(patch).encode(), kind=MERGE)
        self.changed["metadata" if code == 200 else "metadata refused"] += 1

    def _delete(self, collection: str, name: str) -> None:
        self._api.send("DELETE", f"{collection}/{name}", b'{"gracePeriodSeconds":0}')

    # -- what must hold ----------------------------------------------------------------------------------

    def good_gang(self, *, patience_s: float = 60.0) -> None:
        """A gang that none of this concerns is bound whole."""
        self._n_gangs += 1
        name, n = f"good-{self._n_gangs}", self._rng.choice((1, 2, 4, 8))
        names = [f"{name}-{k}" for k in range(n)]
        for pod in names:
            code, answer = self._api.send("POST", PODS, json.dumps(self._member(pod, name, n)).encode())
            if code != 201:
                self.found.append(f"{pod} could not be created: {code} {str(answer)[:300]}")
                return
        began_s = time.monotonic()
        left = list(names)
        while left and time.monotonic() - began_s < patience_s and self.is_running:
            code, pod = self._api.send("GET", f"{PODS}/{left[0]}")
            if code == 200 and pod["spec"].get("nodeName"):
                left.pop(0)
            else:
                time.sleep(0.02)
        waited_s = time.monotonic() - began_s
        self.waits_s.append(waited_s)
        if left or waited_s > BOUND_WITHIN_S:
            code, pod = self._api.send("GET", f"{PODS}/{(left or names)[0]}")
            said = pod.get("status", {}).get("conditions") if code == 200 else code
            load = os.getloadavg()[0]
            self.found.append(
                f"{name} of {n} after {waited_s:.1f} s (load {load:.1f}): {len(left)} are not bound; {said}"
            )
        for pod in names:
            self._delete(PODS, pod)

    def _member(self, pod: str, gang: str, n: int) -> Json:
        tolerates = {**_TAINT, "operator": "Equal"}
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: "1"}}
        return {
            "metadata": {
                "name": pod,
                "labels": {"gangsched.io/pod-group": gang},
                "annotations": {"gangsched.io/min-members": str(n)},
            },
            "spec": {
                "schedulerName": "gangsched",
                "terminationGracePeriodSeconds": 0,
                "tolerations": [tolerates],
                "containers": [{"name": "main", "image": "busybox", "resources": resources}],
            },
        }

    @property
    def is_running(self) -> bool:
        return self.scheduler.process.poll() is None

    def look_at_log(self) -> None:
        """New lines that tell of a fault."""
        said = self.scheduler.said
        new, self._n_log = said[self._n_log :], len(said)
        for line in new.splitlines():
            if _CONTAINED in line or "Traceback" in line:
                self.found.append(line[:4000])
        if not self.is_running:
            self.found.append(f"the scheduler ended with {self.scheduler.process.returncode}: {new[-4000:]}")

    def look_by_commands(self) -> None:
        """What people look with must be able to look at all this."""
        for command in ("devices", "load"):
            done = self.run_command(command)
            if done is not None:
                self.found.append(f"gangsched {command}: {done}")

    def run_command(self, *arguments: str) -> str | None:
        """What went wrong with it, None: nothing."""
        import subprocess

        kubeconfig = f"--kubeconfig={self._plane.kubeconfig}"
        command = [sys.executable, "-m", "gangsched.command.cli", *arguments, kubeconfig]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode in (0, 1) and "Traceback" not in done.stderr and "\x1b" not in done.stdout:
            return None
        return f"ended with {done.returncode}: {done.stderr[-2000:]}"

    def memory_mib(self) -> int:
        """What the scheduler's process has in memory."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            text = Path(f"/proc/{self.scheduler.process.pid}/statm").read_text()
            return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
        return 0

    def report(self) -> str:
        """What was done and what came of it."""
        waits = sorted(self.waits_s)
        lines = [
            f"created: {sum(self.made.values())}, refused by the API server: {sum(self.refused.values())}"
        ]
        lines += [
            f"  {sort}: {n} created, {self.refused[sort]} refused" for sort, n in sorted(self.made.items())
        ]
        lines.append(f"changed: {dict(self.changed)}; memory {self.memory_mib()} MiB")
        if waits:
            lines.append(
                f"good gangs: {len(waits)}; until the last bind: median {waits[len(waits) // 2]:.2f} s,"
                f" slowest {waits[-1]:.2f} s"
            )
        lines.append(f"found: {len(self.found)}")
        return "\n".join([*lines, *(f"- {one}" for one in self.found)])


def run(plane: ControlPlane, directory: Path, *, seed: int, seconds: float, say: bool = False) -> Fuzz:
    """A run of so many seconds; what it found is in `found`."""
    fuzz = Fuzz(plane, directory, seed)
    fuzz.set_up()
    until_s, say_at_s = time.monotonic() + seconds, time.monotonic() + 60
    commands_at_s = time.monotonic() + min(300, seconds / 2)
    try:
        while time.monotonic() < until_s and fuzz.is_running:
            fuzz.batch()
            fuzz.good_gang()
            fuzz.look_at_log()
            if time.monotonic() > commands_at_s:
                commands_at_s = time.monotonic() + 300
                fuzz.look_by_commands()
            if say and time.monotonic() > say_at_s:
                say_at_s = time.monotonic() + 60
                print(time.strftime("%H:%M:%S"), fuzz.report(), flush=True)
        fuzz.look_at_log()
        if fuzz.is_running:
            fuzz.scheduler.stop(timeout_s=15)
            if fuzz.scheduler.process.returncode != 0:
                fuzz.found.append(f"stopped with {fuzz.scheduler.process.returncode}")
    finally:
        fuzz.scheduler.kill()
        fuzz.clean_up()
    return fuzz


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep-log", type=Path, help="where the scheduler's log is kept")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory, ControlPlane(unsafe_no_fsync=True) as plane:
        done = run(plane, Path(directory), seed=given.seed, seconds=60 * given.minutes, say=True)
        if given.keep_log is not None:
            given.keep_log.write_text(done.scheduler.said)
    print(done.report(), flush=True)
    return 1 if done.found else 0


if __name__ == "__main__":
    sys.exit(main())
