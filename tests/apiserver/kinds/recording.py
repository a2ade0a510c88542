"""Cases: requests in order, and what a real kube-apiserver answered to each.

Lives here: the form of a case, what differs between any two runs (taken out of an answer), playing a case on
whatever answers requests, and the command that records the cases again on a real kube-apiserver:

    python -m tests.apiserver.kinds.recording [FILE...]

Not here: the cases (cases/*.yaml) and the answers (recorded/*.json).

In a path and in a body, `$ns` stands for a namespace that the case has for itself (with it, cluster-scoped
names are made unique), `$uidN` and `$rvN` for the uid and resourceVersion in the answer to step N.
"""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane

HERE = Path(__file__).parent
CASES = HERE / "cases"
RECORDED = HERE / "recorded"

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_PATCH_TYPES = {
    "MERGE": "application/merge-patch+json",
    "JSONPATCH": "application/json-patch+json",
    "STRATEGIC": "application/strategic-merge-patch+json",
}

SETTLE_S = 20.0
"""A definition is established some time after it is created."""
SERVED_S = 1.0
"""Its objects are served a little later, first with 404s and 429s, and even after the first list by one of
several handlers; nothing says when that ends."""

Answer = tuple[int, Any]
# method, path, body, content type -> code, body
Send = Callable[[str, str, Any, str], Answer]


class Step(NamedTuple):
    """One request; `verb` is an HTTP method, a kind of PATCH (MERGE, JSONPATCH, STRATEGIC), or one that asks
    until it is so: WAIT (a definition is established), GONE (it is no more) or KNOWN (a POST passes); SERVED
    (it can be read) is asked after WAIT."""

    verb: str
    path: str
    body: Any

    @property
    def method(self) -> str:
        return "PATCH" if self.verb in _PATCH_TYPES else self.verb

    @property
    def content_type(self) -> str:
        return _PATCH_TYPES.get(self.verb, "application/json")


class Case(NamedTuple):
    """`file` is the name of the file that it is in, without an ending."""

    file: str
    name: str
    steps: tuple[Step, ...]

    @property
    def id(self) -> str:
        return f"{self.file}: {self.name}"


def load(file: str) -> list[Case]:
    """The cases of one file; a step is `VERB path: body`."""
    found = []
    for name, steps in yaml.safe_load((CASES / f"{file}.yaml").read_text()).items():
        if name == "shared":
            continue  # holds anchors for the others
        parsed = []
        for step in steps:
            [(head, body)] = step.items()
            verb, path = head.split(" ", 1)
            parsed.append(Step(verb, path, body))
        found.append(Case(file, name, tuple(parsed)))
    return found


def files() -> list[str]:
    return sorted(path.stem for path in CASES.glob("*.yaml"))


def recorded(file: str) -> dict[str, list[Any]]:
    """By case: code and body of each answer."""
    answers: dict[str, list[Any]] = json.loads((RECORDED / f"{file}.json").read_text())
    return answers


def play(case: Case, send: Send, namespace: str, *, served_s: float = 0.0) -> list[Any]:
    """The answers, with what differs between any two runs taken out.

    `served_s` is given to a server after the objects of a definition can be listed.
    """
    said: dict[str, str] = {"ns": namespace}
    answers: list[Any] = []
    for number, step in enumerate(case.steps, 1):
        path = _fill(step.path, said)
        body = None if step.body is None else json.loads(_fill(json.dumps(step.body), said))
        code, answer = _answer(step, path, body, send)
        if step.verb == "WAIT" and served_s:
            for path in _lists(answer):
                _answer(Step("SERVED", path, None), path, None, send)
            time.sleep(served_s)
        if isinstance(answer, dict):
            meta = answer.get("metadata") or {}
            said[f"uid{number}"] = str(meta.get("uid", ""))
            said[f"rv{number}"] = str(meta.get("resourceVersion", ""))
        answers.append([code, _comparable(answer, namespace)])
    return answers


def _lists(definition: Any) -> list[str]:
    """Where the objects of a definition are listed, in each version that is served."""
    spec = definition["spec"]
    return [
        f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
        for version in spec["versions"]
        if version["served"]
    ]


def _answer(step: Step, path: str, body: Any, send: Send) -> Answer:
    if step.verb not in _SETTLED:
        return send(step.method, path, body, step.content_type)
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        code, answer = send("POST" if step.verb == "KNOWN" else "GET", path, body, "application/json")
        if _SETTLED[step.verb](code, answer):
            return code, answer
        assert time.monotonic() < deadline_s, f"{step.verb} {path}: {answer}"
        time.sleep(0.1)


def _is_established(code: int, answer: Any) -> bool:
    return code == 200 and any(
        each["type"] == "Established" and each["status"] == "True"
        for each in answer.get("status", {}).get("conditions") or ()
    )


# What a step that asks until it is so waits for.
_SETTLED: dict[str, Callable[[int, Any], bool]] = {
    "WAIT": _is_established,
    "GONE": lambda code, _: code == 404,
    "KNOWN": lambda code, _: code == 200,
    "SERVED": lambda code, _: code == 200,
}


def _fill(text: str, said: dict[str, str]) -> str:
    for name in sorted(said, key=len, reverse=True):
        text = text.replace(f"${name}", said[name])
    return text


def _comparable(answer: Any, namespace: str, key: str = "") -> Any:
    if isinstance(answer, dict):
        return {
            str(_comparable(name, namespace)): _comparable(value, namespace, name)
            for name, value in answer.items()
            if name not in ("managedFields", "resourceVersion")
        }
    if isinstance(answer, list):
        return [_comparable(each, namespace, key) for each in answer]
    if isinstance(answer, str):
        text = answer.replace(namespace, "$ns")
        text = _TIME.sub("TIME", _UID.sub("UID", text))
        if key == "message":
            # One message names a revision, another a time as Go prints it.
            text = re.sub(r"\b(ResourceVersion in (?:record|object meta): ?)\d+", r"\1N", text)
            text = re.sub(r"(in the precondition \()\d+(\).*in record \()\d+\)", r"\1N\2N)", text)
            text = re.sub(r"(ResourceVersion in precondition: )\d+", r"\1N", text)
            text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [^,\"]*?UTC( m=\S+)?", "TIME", text)
        return text
    return answer


def real(plane: ControlPlane) -> Send:
    """Requests to a real kube-apiserver."""

    def send(method: str, path: str, body: Any, content_type: str) -> Answer:
        try:
            return 200, plane.request(method, path, body, content_type=content_type)
        except ApiError as error:
            text = str(error).partition(path + ": ")[2]
            return error.code, json.loads(text) if text.startswith("{") else text

    return send


def play_all(cases: list[Case], plane: ControlPlane, prefix: str) -> dict[str, list[Any]]:
    send = real(plane)
    answers = {}
    for number, case in enumerate(cases):
        # A case may be played again on a server that has played it before.
        namespace = f"{prefix}-{case.file[:8]}-{number}-{uuid.uuid4().hex[:5]}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        plane.request("POST", "/api/v1/namespaces", body)
        answers[case.name] = play(case, send, namespace, served_s=SERVED_S)
    return answers


def record(names: list[str]) -> None:
    """Write the answers of a real control plane to the cases of these files."""
    RECORDED.mkdir(exist_ok=True)
    with ControlPlane(unsafe_no_fsync=True) as plane:
        for name in names or files():
            answers = play_all(load(name), plane, "rec")
            (RECORDED / f"{name}.json").write_text(dumped(answers))


def dumped(answers: dict[str, list[Any]]) -> str:
    """One answer a line, cases by name: small, and a difference is a line."""
    cases = []
    for name, said in sorted(answers.items()):
        lines = ",\n  ".join(json.dumps(each, sort_keys=True) for each in said)
        cases.append(f" {json.dumps(name)}: [\n  {lines}\n ]")
    return "{\n" + ",\n".join(cases) + "\n}\n"


if __name__ == "__main__":
    record(sys.argv[1:])
