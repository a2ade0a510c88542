"""Runs kubectl, and makes what it prints comparable. Not here: which servers there are (conftest.py)."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PATIENCE_S = 60.0

_CHANGES = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r'(resourceVersion\\*"?: ?\\*")\d+', r"\1VERSION"),
    (r"(?<![\w.-])(\d+m)?\d+(m|s)(?![\w.-])", "AGE"),
    (r"Resource Version: +\d+", "Resource Version: VERSION"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}", "TIME"),
    (r"/\S*/(LIVE|MERGED)-\d+", r"\1"),
    # What follows is a dump of both specs: in Go's names there, in JSON's here.
    (r"(?s)(pod updates may not change fields other than).*", r"\1"),
    (r"https?://127\.0\.0\.1:\d+", "SERVER"),
    (r"10\.\d+\.\d+\.\d+", "IP"),
)


class Said(NamedTuple):
    """How kubectl ended and what it printed."""

    code: int
    out: str
    err: str


class Kubectl:
    """kubectl for one server, in a namespace of its own; in whatever the files say with the namespace ""."""

    def __init__(self, binary: Path, kubeconfig: Path, cache: Path) -> None:
        self._command = [str(binary), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]
        self.namespace = "default"

    def command(self, *arguments: str) -> list[str]:
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        return [*self._command, *where, *arguments]

    def run(self, arguments: Sequence[str], stdin: str = "") -> Said:
        """Runs it to its end, however that is."""
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def patiently(self, arguments: Sequence[str], stdin: str = "") -> Said:
        """Runs it again until it ends well, for what a server does in the background."""
        deadline_s = time.monotonic() + PATIENCE_S
        while (said := self.run(arguments, stdin)).code != 0 and time.monotonic() < deadline_s:
            time.sleep(0.2)
        return said

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it printed; it must end well."""
        said = self.run(arguments, stdin)
        assert said.code == 0, f"kubectl {' '.join(arguments)}: {said.err or said.out}"
        return said.out

    @contextmanager
    def following(self, *arguments: str) -> Iterator[Iterator[str]]:
        """The lines of what goes on until it is ended; it is given PATIENCE_S to say what is waited for."""
        process = subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE, text=True)
        end = threading.Timer(PATIENCE_S, process.kill)
        end.start()
        assert process.stdout is not None
        try:
            yield iter(process.stdout.readline, "")
        finally:
            end.cancel()
            process.kill()
            process.communicate()


def comparable(said: Said, namespace: str) -> tuple[int, list[str], list[str]]:
    """Without what differs between any two clusters: times, UIDs, versions, addresses, widths of columns."""

    def plain(text: str) -> list[str]:
        text = text.replace(namespace, "NAMESPACE")
        for pattern, name in _CHANGES:
            text = re.sub(pattern, name, text)
        return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]

    return said.code, plain(said.out), plain(said.err)
