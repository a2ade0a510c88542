"""Asking why a gang is pending, as a user does, and the page of docs that shows the answers.

Lives here: a cluster whose scheduler may be asked, what `gangsched explain` and the pod's condition say, and
the comparison with docs/why-pending.md. Not here: how each gang comes to rest (test_answers_*.py). With
GANGSCHED_WRITE_ANSWERS=1 the page's sections are written again from what is seen.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gangsched.command.cli import main
from gangsched.lab.controlplane.daemon import free_ports
from tests.real.cluster import MERGE, PODS, REPO, Cluster
from tests.real.picture import PATIENCE_S, Json, node_of, reason_of
from tests.real.process import Scheduler, service_account, write_config

PAGE = REPO / "docs" / "why-pending.md"
WRITE_VARIABLE = "GANGSCHED_WRITE_ANSWERS"
NOBODY = "https://127.0.0.1:1"
BACKS_OFF = "backoff for "
_STEP_S = 0.3
# What differs from run to run.
_VARIES = (
    (re.compile(r"\s+"), " "),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d"), "DATE"),
    (re.compile(r"\d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|m|h)\b(\d+(ms|s|m|h)\b)*|\b(\d+[hms])+\b"), "WHILE"),
    (re.compile(r"\d+ attempts?|failure \d+|attempt \d+"), "COUNT"),
    (re.compile(r'pods\s+"[a-z0-9-]+"'), "PODS"),
)


class Told(NamedTuple):
    """explained: the command's text up to the gang's moves; code: its exit code; condition: that of its first
    pod without a node."""

    explained: str
    code: int
    condition: str


class AskedCluster(Cluster):
    """A cluster whose scheduler answers anybody's question."""

    server = NOBODY

    def node(self, name: str, devices: list[Json] | str, *, cpu: str = "64", rack: str = "r0") -> None:
        """Nodes of one name follow one another: any of their devices may have been used."""
        before = self.inventory.get(name, set())
        super().node(name, devices, cpu=cpu, rack=rack)
        self.inventory[name] |= before

    def schedule(
        self,
        *,
        kubeconfig: Path | None = None,
        plugin: Path | None = None,
        kube: Json | None = None,
        profile: Json | None = None,
        **settings: Any,
    ) -> Scheduler:
        """Starts gangsched; `kube`: fields of its KubeSchedulerConfiguration, `profile`: of its profile."""
        number = len(self.schedulers)
        config = write_config(self.directory / f"config-{number}.yaml", **settings)
        documents = list(yaml.safe_load_all(config.read_text()))
        documents[0] |= kube or {}
        documents[0]["profiles"][0] |= profile or {}
        config.write_text(yaml.safe_dump_all(documents))
        account = kubeconfig or service_account(self.plane, self.directory / f"account-{number}.yaml")
        [port] = free_ports(1)
        log = self.directory / f"scheduler-{number}.log"
        plugins = () if plugin is None else (plugin,)
        flags = ("--authorization-always-allow-paths=/explain/*,/permit",)
        scheduler = Scheduler(config, account, log, port=port, plugins=plugins, flags=flags)
        self.schedulers.append(scheduler)
        self.server = f"https://127.0.0.1:{port}"
        self.eventually(lambda: "serving" in scheduler.said, "its port serves")
        return scheduler

    def asked(self, name: str, *more: str) -> tuple[str, int]:
        """What `gangsched explain` prints, and its exit code."""
        flags = (f"--server={self.server}", f"--kubeconfig={self.plane.kubeconfig}", *more)
        out, code = printed(["explain", f"default/{name}", *flags])
        text = "\n".join(line.rstrip() for line in out.splitlines()).partition("\nLast moves")[0]
        # Its condition is looked at itself: the answer may be a second older.
        return text.partition("\nIts trace:")[0].partition("\nIts condition says:")[0].strip(), code

    def told(self, name: str, *words: str, condition: str = "", more: tuple[str, ...] = ()) -> Told:
        """Asks until the answer has these words, and the condition has its own.

        A group that some change has woken too early is in backoff for a moment, which is waited for, unless
        the words have it.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            text, code = self.asked(name, *more)
            said = next((reason_of(pod) for pod in self.members(name) if not node_of(pod)), "")
            flat = " ".join(text.split())
            is_at_rest = BACKS_OFF not in flat or BACKS_OFF in words
            if is_at_rest and all(word in flat for word in words) and condition in said:
                return Told(text, code, said)
            left_s = deadline_s - time.monotonic()
            missing = [word for word in words if word not in flat]
            assert left_s > 0, f"not said: {missing}, {condition!r}\n{text}\ncondition: {said}{self._story()}"
            time.sleep(_STEP_S)

    def runs(self, name: str, since: str) -> None:
        """What a kubelet writes when it has admitted a pod."""
        status = {"status": {"phase": "Running", "startTime": since}}
        self.plane.request("PATCH", f"{PODS}/{name}/status", status, content_type=MERGE)

    def clear(self) -> None:
        """Of a test that shares its scheduler with others."""
        self.gangs.clear()


def printed(command: list[str]) -> tuple[str, int]:
    """What a command prints, and its exit code."""
    out = io.TextIOWrapper(buffer := io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(command)
    return buffer.getvalue().decode(), code


def shown(title: str, told: Told) -> None:
    """The page of docs has this, but for what differs from run to run; or it has from now on."""
    section = _section(told)
    if os.environ.get(WRITE_VARIABLE):
        _write(title, section)
    found = dict(sections())
    assert title in found, f"docs/why-pending.md has no section {title!r}; {WRITE_VARIABLE}=1 writes it"
    on_page, seen = plain(found[title]), plain(section)
    assert on_page == seen, (
        f"{title}: {WRITE_VARIABLE}=1 writes it again. On the page:\n{on_page}\nSeen:\n{seen}"
    )


def plain(text: str) -> str:
    """Without what differs from run to run."""
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return text.strip()


def sections() -> Iterator[tuple[str, str]]:
    """(title, what was seen) of each answer on the page."""
    for part in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        title, _, rest = part.partition("\n")
        before, fence, seen = rest.partition("```text\n")
        yield title.strip(), (fence + seen.partition("\n## ")[0]).strip() if fence else before.strip()


def _section(told: Told) -> str:
    condition = told.condition or "(none: no scheduler has said anything)"
    return f"```text\n{told.explained}\n```\n\nThe pod's condition: {_quoted(condition)}"


def _quoted(text: str) -> str:
    return f"`{text}`" if "`" not in text else text


def _write(title: str, section: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, mark, rest = text.partition(f"\n### {title}\n")
    if not mark:
        PAGE.write_text(f"{text.rstrip()}\n\n### {title}\n\n{section}\n", encoding="utf-8")
        return
    ends = [at for at in (rest.find("\n### "), rest.find("\n## ")) if at >= 0]
    tail = rest[min(ends) :] if ends else "\n"
    prose = rest[: min(ends) if ends else len(rest)].partition("```text")[0].rstrip()
    prose = f"{prose}\n\n" if prose.strip() else "\n"
    PAGE.write_text(f"{head}{mark}{prose}{section}\n{tail}", encoding="utf-8")
