"""Links that lead nowhere but into network namespaces made here, and traffic on them, bounded in time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Sent to an address of the namespace alone; ends by itself.
_SEND = """
import socket, sys, time
address, rate, seconds = sys.argv[1], float(sys.argv[2]) * 1e6, float(sys.argv[3])
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
payload, sent, began = bytes(1400), 0, time.monotonic()
print("sending", flush=True)
while (elapsed := time.monotonic() - began) < seconds:
    while sent < rate * elapsed:
        try:
            link.sendto(payload, (address, 9))
        except OSError:
            pass
        sent += 1428
    time.sleep(0.002)
"""
_HEAR = """
import socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind((sys.argv[1], 9))
print("hearing", flush=True)
while True:
    link.recv(2048)
"""


class Link:
    """`nic` is this side's; `here` and `there` are the two sides' addresses."""

    def __init__(self, number: int) -> None:
        self.nic = f"gsv{number}"
        self.namespace = f"gangsched-test-{number}"
        self.here, self.there = f"198.18.{number}.1", f"198.18.{number}.2"
        self._running: list[subprocess.Popen[str]] = []

    def make(self) -> None:
        inside = ("netns", "exec", self.namespace, "ip")
        _ip("netns", "add", self.namespace)
        _ip("link", "add", self.nic, "type", "veth", "peer", "name", "gsv", "netns", self.namespace)
        _ip("address", "add", f"{self.here}/30", "dev", self.nic)
        _ip("link", "set", self.nic, "up")
        _ip(*inside, "address", "add", f"{self.there}/30", "dev", "gsv")
        _ip(*inside, "link", "set", "gsv", "up")

    def send(self, mbps: float, *, most_s: float) -> subprocess.Popen[str]:
        """Traffic that leaves by our side."""
        self._start(["ip", "netns", "exec", self.namespace], _HEAR, self.there)
        return self._start([], _SEND, self.there, str(mbps), str(most_s))

    def receive(self, mbps: float, *, most_s: float) -> subprocess.Popen[str]:
        """Traffic that comes in by our side."""
        self._start([], _HEAR, self.here)
        return self._start(["ip", "netns", "exec", self.namespace], _SEND, self.here, str(mbps), str(most_s))

    def quiet(self) -> None:
        """No more traffic."""
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()

    def close(self) -> None:
        self.quiet()
        subprocess.run(["ip", "netns", "delete", self.namespace], capture_output=True)
        subprocess.run(["ip", "link", "delete", self.nic], capture_output=True)

    def _start(self, before: list[str], code: str, *args: str) -> subprocess.Popen[str]:
        command = [*before, sys.executable, "-c", code, *args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), f"{command[:4]} has ended"
        return process


@contextmanager
def links(n: int) -> Iterator[list[Link]]:
    """Skips the test where no network namespace may be made."""
    made: list[Link] = []
    try:
        for number in range(1, n + 1):
            link = Link(number)
            link.close()  # of a run that was killed
            made.append(link)
            try:
                link.make()
            except (OSError, subprocess.CalledProcessError) as error:
                said = getattr(error, "stderr", "") or str(error)
                pytest.skip(
                    f"no network namespaces here: {said.strip()}; run as root, with iproute2 installed"
                )
        yield made
    finally:
        for link in made:
            link.close()


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)
