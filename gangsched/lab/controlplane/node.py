"""A node of this machine: a real kubelet and a containerd of its own, with an image made on the spot.

Lives here: what they need to run side by side, without an image registry and without CNI. kubelet's directory
for device plugins is the same whatever its --root-dir, so each kubelet gets a mount namespace with its own
directory in that place. Not here: agents, schedulers and pods. For tests and the bench; needs root.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from gangsched.agent.probes.cgroup import CGROUPS
from gangsched.agent.probes.machine import read_machine
from gangsched.errors import ConfigError, GangschedError
from gangsched.lab.controlplane import assets
from gangsched.lab.controlplane.daemon import Daemon, free_ports
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.text.quantity import to_int, to_milli

NEEDED = ("containerd", "ctr", "runc", "unshare", "busybox")
PACKAGES = "apt-get install -y --no-install-recommends containerd runc busybox-static util-linux"
IMAGE = "registry.k8s.io/pause:3.10"
PLUGINS = Path("/var/lib/kubelet/device-plugins")
READY_S = 90.0
_ENDING_S = 20.0
_LOOK_S = 0.1
_APPLETS = ("sh", "sleep", "ls", "env", "cat", "true", "chroot")


class CannotRun(GangschedError):
    """No real kubelet can run here, and why; is_cured_by_us: packages or a build would change that."""

    def __init__(self, why: str, *, is_cured_by_us: bool) -> None:
        super().__init__(why)
        self.is_cured_by_us = is_cured_by_us


def check_possible() -> None:
    """Checks that a real kubelet can run here. Raises: CannotRun, with what would change that."""
    if os.geteuid() != 0:
        raise CannotRun(
            "a kubelet needs root: run the tests as root, in a virtual machine of their own",
            is_cured_by_us=False,
        )
    tried = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "true"], capture_output=True, text=True, timeout=30
    )
    if tried.returncode != 0:
        raise CannotRun(
            f"no mount namespace can be made here ({tried.stderr.strip()}): it takes CAP_SYS_ADMIN",
            is_cured_by_us=False,
        )
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise CannotRun(f"no {', '.join(missing)}: {PACKAGES}", is_cured_by_us=True)
    # If it names a loader, it needs libraries that the image does not have.
    if b"ld-linux" in Path(str(shutil.which("busybox"))).read_bytes()[:4096]:
        raise CannotRun(f"busybox is not linked statically: {PACKAGES}", is_cured_by_us=True)
    try:
        assets.find(module=assets.NODE)
    except ConfigError as error:
        raise CannotRun(str(error), is_cured_by_us=True) from None


@functools.cache
def gives_cdi_devices() -> bool:
    """Returns whether containerd gives containers the devices of CDI specs, as it does since 1.7."""
    command = [str(shutil.which("containerd")), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    found = re.search(r" v?(\d+)\.(\d+)\.", done.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= (1, 7)


class Machine:
    """One node: `Machine(plane, directory, "n1")`, then `start()`; all of it is gone after `stop()`.

    cgroup: that of its pods, as /proc/PID/cgroup names it. network: the network namespace of pods on the
    host's network. offers: the cpu and memory that it offers, as quantities; by default all there is.
    gates: kubelet's feature gates.
    """

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        name: str,
        *,
        cgroup: str = "",
        network: str = "",
        offers: Mapping[str, str] | None = None,
        gates: Mapping[str, bool] | None = None,
    ) -> None:
        self.name = name
        self._cgroup = cgroup
        self._network = network
        self._offers = offers or {}
        self._gates = dict(gates or {})
        self.directory = directory / name
        self.plugins = self.directory / "dp"
        self.root = self.directory / "kubelet"
        self.logs = self.directory / "pods"
        self.cdi = self.directory / "cdi"
        for folder in (self.plugins, self.root, self.logs, self.cdi):
            folder.mkdir(parents=True)
        self._plane = plane
        self._containerd: Daemon | None = None
        self._kubelet: Daemon | None = None
        self._socket = self.directory / "c.sock"
        self._kubelet_ports = free_ports(2)

    def start(self) -> None:
        """Starts the node; returns when it is able to run pods."""
        config = self.directory / "containerd.toml"
        config.write_text(_containerd_config(self.directory, self._socket))
        command = [str(shutil.which("containerd")), "--config", str(config)]
        if self._network:  # what it starts without a network of its own has this one
            command = [str(shutil.which("nsenter")), f"--net=/run/netns/{self._network}", *command]
        log = self.directory / "containerd.log"
        self._containerd = Daemon("containerd", command, log=log, env=os.environ)
        self._containerd.wait_ready(lambda: self._ctr("version").returncode == 0, timeout_s=READY_S)
        image = self.directory / "image.tar"
        image.write_bytes(image_tar())
        done = self._ctr("images", "import", "--snapshotter=native", str(image))
        if done.returncode != 0:
            raise GangschedError(f"containerd takes no image: {done.stderr.strip()}")
        self.start_kubelet()

    def start_kubelet(self) -> None:
        """Starts kubelet, also after `stop_kubelet`; returns when it has registered and its sockets exist."""
        if self._cgroup:
            _make_cgroup(self._cgroup)
        config = self.directory / "kubelet.yaml"
        config.write_text(yaml.safe_dump(self._kubelet_config()))
        PLUGINS.mkdir(parents=True, exist_ok=True)
        kubelet = assets.find(module=assets.NODE).path("kubelet")
        flags = [
            f"--config={config}",
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--hostname-override={self.name}",
            f"--root-dir={self.root}",
            "--v=2",
        ]
        script = f'mount --bind "{self.plugins}" "{PLUGINS}" && exec "$0" "$@"'
        command = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, str(kubelet), *flags]
        binary = str(shutil.which(command[0]))
        log = self.directory / "kubelet.log"
        self._kubelet = Daemon("kubelet", [binary, *command[1:]], log=log, env=os.environ)
        self._kubelet.wait_ready(self._is_up, timeout_s=READY_S)

    def stop_kubelet(self) -> None:
        if self._kubelet is not None:
            self._kubelet.stop()

    def kill_kubelet(self) -> None:
        if self._kubelet is not None:
            self._kubelet.kill()

    def stop(self) -> None:
        """Stops kubelet first, then containers, then containerd; then unmounts what is under its folders."""
        self.stop_kubelet()
        if self._containerd is not None:
            if self._containerd.running:
                for task in self._ctr("tasks", "ls", "-q").stdout.split():
                    self._ctr("tasks", "kill", "-s", "SIGKILL", task)
                end_s = time.monotonic() + _ENDING_S
                while self._running_tasks() and time.monotonic() < end_s:
                    time.sleep(_LOOK_S)
                for task in self._ctr("tasks", "ls", "-q").stdout.split():
                    self._ctr("tasks", "rm", "-f", task)
            self._containerd.stop()
        if self._cgroup:
            _remove_cgroups_in(self._cgroup)
        mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for path in sorted((one for one in mounted if one.startswith(str(self.directory))), reverse=True):
            subprocess.run(["umount", "-l", path], capture_output=True)

    @property
    def said(self) -> str:
        """The end of kubelet's log."""
        return self._kubelet.tail() if self._kubelet is not None else ""

    def output(self, pod: dict[str, Any], container: str) -> str:
        """What a container has printed; a kubelet that died between its creation and start makes another."""
        meta = pod["metadata"]
        folder = self.logs / f"{meta['namespace']}_{meta['name']}_{meta['uid']}" / container
        lines = [line for path in sorted(folder.glob("*.log")) for line in path.read_text().splitlines()]
        # time, stream, F for a full line, and the line
        return "\n".join(line.split(" ", 3)[3] if line.count(" ") >= 3 else "" for line in lines)

    def _running_tasks(self) -> list[str]:
        return [line for line in self._ctr("tasks", "ls").stdout.splitlines()[1:] if "RUNNING" in line]

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", f"--address={self._socket}", "--namespace=k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def _is_up(self) -> bool:
        names = [item["metadata"]["name"] for item in self._plane.request("GET", "/api/v1/nodes")["items"]]
        sockets = (self.plugins / "kubelet.sock", self.root / "pod-resources" / "kubelet.sock")
        return self.name in names and all(socket.exists() for socket in sockets)

    def _reserved(self) -> dict[str, str]:
        """Returns what kubelet must reserve of the machine's amounts, to offer no more than `offers`."""
        machine = read_machine()
        there = {"cpu": machine.n_cores * 1000, "memory": machine.memory_bytes}
        kept = {}
        for name, text in self._offers.items():
            offered = to_milli(text) if name == "cpu" else to_int(text)
            if offered > there[name]:
                raise GangschedError(f"{self.name} is to offer {text} {name}, this machine has less")
            left = there[name] - offered
            kept[name] = f"{left}m" if name == "cpu" else f"{left}"
        return kept

    def _kubelet_config(self) -> dict[str, Any]:
        port, healthz = self._kubelet_ports
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "featureGates": self._gates,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "address": "127.0.0.1",
            "port": port,
            "healthzPort": healthz,
            "podLogsDir": str(self.logs),
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": bool(self._cgroup),
            "cgroupRoot": self._cgroup,
            "systemReserved": self._reserved(),
            "enforceNodeAllocatable": [],
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "0.1%",
                "imagefs.available": "0.1%",
            },
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "registerWithTaints": [],
            "syncFrequency": "10s",
            "serializeImagePulls": True,
            # Other tests share this machine's cores.
            "maxPods": 110,
        }


def _make_cgroup(name: str) -> None:
    """Makes the cgroup in every hierarchy, as kubelet requires; one that exists stays as it is."""
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / name[1:]).mkdir(exist_ok=True)
        return
    for controller in {path.resolve() for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists()}:
        folder = controller / name[1:]
        folder.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one, and then nothing may run in it
            if (folder / file).exists() and not (folder / file).read_text().strip():
                (folder / file).write_text((controller / file).read_text())


def _remove_cgroups_in(name: str) -> None:
    """Removes what kubelet made in it, but not the cgroup itself, which its maker removes."""
    roots = [CGROUPS / name[1:], *CGROUPS.glob(f"*{name}")]
    for root in roots:
        for folder, _, _ in os.walk(root, topdown=False):
            if folder != str(root):
                with suppress(OSError):
                    os.rmdir(folder)


def _containerd_config(directory: Path, socket: Path) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{directory / "c-root"}"
state = "{directory / "c-state"}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[{cri}]
sandbox_image = "{IMAGE}"
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = ["{directory / "cdi"}"]
[{cri}.containerd]
snapshotter = "native"
"""


def image_tar() -> bytes:
    """An OCI layout with one layer: a static busybox and links to it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "dev", "proc", "sys", "etc"):
            one = tarfile.TarInfo(folder)
            one.type, one.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(one)
        body = Path(str(shutil.which("busybox"))).read_bytes()
        one = tarfile.TarInfo("bin/busybox")
        one.size, one.mode = len(body), 0o755
        tar.addfile(one, io.BytesIO(body))
        for name in _APPLETS:
            one = tarfile.TarInfo(f"bin/{name}")
            one.type, one.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(one)
    blobs = [layer.getvalue()]
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(blobs[0])]},
    }
    blobs.append(json.dumps(config).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _described(blobs[1], "application/vnd.oci.image.config.v1+json"),
        "layers": [_described(blobs[0], "application/vnd.oci.image.layer.v1.tar")],
    }
    blobs.append(json.dumps(manifest).encode())
    entry = _described(blobs[2], "application/vnd.oci.image.manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": IMAGE}
    files: dict[str, bytes] = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
        **{f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in blobs},
    }
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, blob in files.items():
            one = tarfile.TarInfo(name)
            one.size = len(blob)
            tar.addfile(one, io.BytesIO(blob))
    return whole.getvalue()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _described(blob: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
