"""How much the embedded API server carries: `python -m tests.apiserver.load [--nodes 5000] [--pods 20000]`.

Starts `gangsched apiserver` as a process on one core, creates pods and binds them over HTTP from another,
with a watch on all pods open meanwhile, and prints rates, times and the server's memory. No test: the figures
depend on the machine and on what else runs there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

PODS = "/api/v1/namespaces/default/pods"
CONNECTIONS = 16

Make = Callable[[int], tuple[str, dict[str, Any]]]


def pod(k: int) -> tuple[str, dict[str, Any]]:
    """Of the size that gangs' pods have: about 2 kB once the server has filled it in."""
    limits = {"nvidia.com/gpu": "1", "cpu": "4", "memory": "16Gi"}
    env = [{"name": f"SETTING_{i}", "value": "x" * 20} for i in range(5)]
    return PODS, {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{k}",
            "labels": {"gangsched.io/pod-group": f"train-{k // 8}", "app": "train"},
            "annotations": {"gangsched.io/min-members": "8"},
        },
        "spec": {
            "schedulerName": "nobody",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "env": env, "resources": {"limits": limits}}],
        },
    }


def binding(n_nodes: int) -> Make:
    width = len(str(max(n_nodes - 1, 0)))

    def make(k: int) -> tuple[str, dict[str, Any]]:
        node = f"node-{k % n_nodes:0{width}d}"
        device = f"GPU-{node}-{k // n_nodes}"
        annotations = {
            "gangsched.io/allocated-devices": json.dumps({"main": {"nvidia.com/gpu": [device]}}),
            "gangsched.io/gang": f"default/train-{k // 8}",
            "gangsched.io/rank": str(k % 8),
        }
        return f"{PODS}/train-{k}/binding", {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": f"train-{k}", "annotations": annotations},
            "target": {"kind": "Node", "name": node},
        }

    return make


class Connection:
    """One request at a time, as little as it takes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        sent = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(sent)}\r\n\r\n"
        )
        self._writer.write(head.encode() + sent)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        at = answer.lower().index(b"content-length:") + len(b"content-length:")
        length = int(answer[at : answer.index(b"\r\n", at)])
        return int(answer.split(b" ", 2)[1]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


async def many(port: int, make: Make, n: int) -> float:
    """POST all of them over some connections; how many a second."""
    numbers = iter(range(n))

    async def work() -> None:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        for k in numbers:
            code, said = await connection.ask("POST", *make(k))
            if code != 201:
                raise SystemExit(f"{code}: {said.decode()}")
        connection.close()

    began_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return n / (time.perf_counter() - began_s)


async def watch(port: int, n: int) -> tuple[float, int]:
    """Read a watch of all pods until it has told of n changes; how long that took, and bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    writer.write(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: here\r\n\r\n")
    n_told, n_bytes, began_s = 0, 0, time.perf_counter()
    while n_told < n:
        chunk = await reader.read(2**20)
        n_told += chunk.count(b"}\n")
        n_bytes += len(chunk)
    writer.close()
    return time.perf_counter() - began_s, n_bytes


async def measure(port: int, nodes: int, pods: int, process: psutil.Process) -> None:
    def memory_mib() -> float:
        return float(process.memory_info().rss) / 2**20

    def cpu_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    print(f"{nodes} nodes: {memory_mib():.0f} MiB")
    began_s = cpu_s()
    rate = await many(port, pod, pods)
    each_us = (cpu_s() - began_s) / pods * 1e6
    print(
        f"{pods} pods created: {rate:.0f}/s, {each_us:.0f} us of the server's CPU each, "
        f"{memory_mib():.0f} MiB"
    )
    told = asyncio.create_task(watch(port, 2 * pods))
    began_s = cpu_s()
    rate = await many(port, binding(nodes), pods)
    each_us = (cpu_s() - began_s) / pods * 1e6
    await told
    print(
        f"{pods} pods bound, with a watch on all of them: {rate:.0f}/s, {each_us:.0f} us of CPU each, "
        f"{memory_mib():.0f} MiB"
    )
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port, limit=2**30))
    began_s = time.perf_counter()
    _, listed = await connection.ask("GET", "/api/v1/pods")
    print(f"all pods listed: {time.perf_counter() - began_s:.2f} s, {len(listed) / 2**20:.0f} MiB")
    took_s, n_bytes = await watch(port, pods)
    print(f"all pods watched from the start: {took_s:.2f} s, {n_bytes / 2**20:.0f} MiB")
    print(f"in the end: {memory_mib():.0f} MiB")
    connection.close()


@contextlib.contextmanager
def server(options: list[str]) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, "-m", "gangsched.command.cli", "apiserver", "--port=0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        if not first:
            raise SystemExit("the server did not start")
        yield int(first.split()[1].rstrip(",").rpartition(":")[2]), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20000)
    parser.add_argument("--kubelets", action="store_true", help="simulate them too: pods run, nodes report")
    args = parser.parse_args()
    options = [f"--nodes={args.nodes}", *([] if args.kubelets else ["--no-kubelets"])]
    cores = sorted(os.sched_getaffinity(0))
    with server(options) as (port, process):
        if len(cores) > 1:
            process.cpu_affinity(cores[:1])
            os.sched_setaffinity(0, cores[1:2])
        print(f"server on core {process.cpu_affinity()}, load average {os.getloadavg()[0]:.1f}")
        asyncio.run(measure(port, args.nodes, args.pods, process))


if __name__ == "__main__":
    main()
