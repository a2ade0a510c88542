"""A task of the experiment as a process of its own: uses CPU, memory, network and disk at stated rates.

Run by `workers` with a bare interpreter (python -I -S task.py JSON): it imports the standard library alone.
It enters its cgroups first. What it does otherwise counts as part of the CPU time that it is to use.
"""

import contextlib
import json
import mmap
import os
import socket
import sys
import time

TICK_S = 0.05
# Work that was late is made up for only up to this: a task that was held up is not twice as busy.
BEHIND_S = 0.5
DATAGRAM, BLOCK = 8 * 1024, 16 * 1024


class Flow:
    """The amount due of a steady flow, given an amount a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._done = 0.0

    def due(self, at_s: float) -> float:
        """The amount due until `at_s` and not yet taken."""
        self._done = max(self._done, self._rate * (at_s - BEHIND_S))
        return self._rate * at_s - self._done

    def took(self, amount: float) -> None:
        self._done += amount


def main(text: str) -> None:
    """Runs until killed, or until its time is over."""
    wanted = json.loads(text)
    for path in wanted["cgroups"]:
        with open(path, "w") as file:
            file.write(str(os.getpid()))
    memory = mmap.mmap(-1, max(int(wanted["memory_bytes"]), mmap.PAGESIZE))
    for page in range(0, len(memory), mmap.PAGESIZE):
        memory[page] = 1
    sink = tuple(wanted["sinks"][wanted["node"]])
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setblocking(False)
    disk = os.open(wanted["file"], os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    network_flow, disk_flow = Flow(wanted["network_bytes_s"]), Flow(wanted["disk_bytes_s"])
    datagram, block = bytes(DATAGRAM), mmap.mmap(-1, BLOCK)
    cpu_flow = Flow(wanted["cores"])
    began_s, used_s = time.monotonic(), time.process_time()
    while (at_s := time.monotonic() - began_s) < wanted["most_s"]:
        while network_flow.due(at_s) >= DATAGRAM:
            with contextlib.suppress(OSError):  # the link is full: that is what its limit is for
                link.sendto(datagram, sink)
            network_flow.took(DATAGRAM)
        while disk_flow.due(at_s) >= BLOCK:
            os.pwrite(disk, block, 0)
            disk_flow.took(BLOCK)
        now_s = time.process_time()
        cpu_flow.took(now_s - used_s)
        used_s = now_s
        end_s = used_s + min(max(cpu_flow.due(at_s), 0.0), BEHIND_S)
        while time.process_time() < end_s:
            for _ in range(200):
                pass
        time.sleep(TICK_S)


if __name__ == "__main__":
    main(sys.argv[1])
