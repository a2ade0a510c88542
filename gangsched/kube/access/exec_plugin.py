"""Runs a kubeconfig's credential plugin: reads its outputs within limits, and never leaves it running.

Lives here: the process. Not here: which plugin, and what its answer means (kubernetes-asyncio's loader). This
replaces that loader's own way to run plugins, which reads output of any length into memory, leaves behind a
plugin that it gives up, and reads stderr only after stdout, so that it deadlocks with a plugin that writes
many errors. Called by loaders.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

import anyio

from gangsched.model.text import bounded
from gangsched.model.text.printable import one_line

# A token and a certificate with its chain take a tenth of this.
MAX_ANSWER = 2**20
# The last errors are shown; the rest is read so that the plugin can go on writing.
_MAX_ERRORS = 16 * 2**10
# A killed process ends at once unless the kernel holds it up.
_KILLED_S = 1.0
_TEXTS = ("token", "clientCertificateData", "clientKeyData")


def limited(provider: Any) -> Any:
    """Returns kubernetes-asyncio's ExecProvider with another way to run the plugin."""

    class LimitedExecProvider(provider):  # type: ignore[misc]  # no stubs
        async def run(self, previous_response: str | None = None) -> Any:
            """Returns the answer's status. Raises: ValueError, RecursionError, OSError."""
            spec: dict[str, Any] = {"interactive": sys.stdout.isatty()}
            if previous_response:
                spec["response"] = previous_response
            info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
            environ = self.env | {"KUBERNETES_EXEC_INFO": json.dumps(info)}
            return _status(await _output(self.args, environ), self.api_version)

    return LimitedExecProvider


async def _output(arguments: list[str], environ: dict[str, str]) -> bytes:
    """Returns the plugin's output. Raises: ValueError (it fails, or prints too much), OSError."""
    # The plugin may prompt a user at a terminal; only a process in the terminal's own group may do that.
    is_alone = sys.stdin is None or not sys.stdin.isatty()
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env=environ,
        stdin=None,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        process_group=0 if is_alone else None,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(_last(process.stderr))
    try:
        answer = await _all(process.stdout)
        code = await process.wait()
        errors_text = one_line(" ".join((await errors).decode("utf-8", "replace").split()))
    finally:
        errors.cancel()
        _kill(process, is_alone=is_alone)
        # asyncio logs a process's end that it sees after its loop has ended, and also if it cannot read an
        # exit status because closing the transport has read it already.
        with anyio.move_on_after(_KILLED_S, shield=True):
            await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # else its children keep its pipes open
    if code != 0:
        raise ValueError(f"exec: process returned {code}" + (f". {errors_text}" if errors_text else ""))
    return answer


async def _all(stream: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while part := await stream.read(2**16):
        found += part
        if len(found) > MAX_ANSWER:
            raise ValueError(f"exec: it prints more than {MAX_ANSWER} bytes")
    return bytes(found)


async def _last(stream: asyncio.StreamReader) -> bytes:
    found = b""
    while part := await stream.read(2**16):
        found = (found + part)[-_MAX_ERRORS:]
    return found


def _kill(process: asyncio.subprocess.Process, *, is_alone: bool) -> None:
    """Kills the plugin and its children if still running; not by Popen, which may read its exit status."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if is_alone else os.kill)(process.pid, signal.SIGKILL)


def _status(answer: bytes, api_version: str) -> dict[str, Any]:
    """Raises: ValueError, RecursionError."""
    try:
        bounded.check(answer, max_bytes=MAX_ANSWER)
        found = json.loads(answer)
    except bounded.TooDeep as error:
        raise RecursionError(str(error)) from None
    except ValueError as error:
        raise ValueError(f"exec: its answer is not JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("status"), dict):
        raise ValueError("exec: its answer is not an ExecCredential with a status")
    if found.get("apiVersion") != api_version:
        raise ValueError(f"exec: its answer has apiVersion {found.get('apiVersion')!r}, not {api_version!r}")
    # Null and empty text count as absent, as in client-go.
    status = {name: value for name, value in found["status"].items() if value is not None and value != ""}
    for name in _TEXTS:
        if not isinstance(status.get(name, ""), str):
            raise ValueError(f"exec: status.{name} of its answer is not text")
    if "token" not in status and not {"clientCertificateData", "clientKeyData"} <= status.keys():
        raise ValueError("exec: its answer has no token, and no client certificate with its key")
    return status
