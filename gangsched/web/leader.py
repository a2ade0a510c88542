"""Finds the scheduler that leads the kubeconfig's cluster, for commands that were given no address.

Lives here: the cluster's identity, the Lease's holder, kubectl's port-forward to it. Not here: asking pages
(web.commands.asking). In a cluster a host's name is its pod's. All is asked with the user's own rights; what
these do not reach is a sentence with what to type.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import Process

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.same_cluster import PATH, QUERY
from gangsched.kube.transport.http1 import segment
from gangsched.model.text.bounded import lenient_decoder
from gangsched.model.text.printable import one_line

LEASE = "gangsched-system/gangsched"
PORT = 10259
_REQUEST_S = 5.0
_FORWARD_S = 15.0
_MAX_BYTES = 64 * 1024
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FORWARDED = re.compile(rb"Forwarding from 127\.0\.0\.1:([0-9]{1,5}) ")


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _List(msgspec.Struct):
    items: list[_Object] = []


class Known(msgspec.Struct, frozen=True):
    """A kubeconfig's cluster. uid: its identity, "" where that may not be read. leader: the pod that leads,
    "" where that is not known, for the reason `why`."""

    server: str
    uid: str
    leader: str
    why: str


_decode, _decode_list = lenient_decoder(_Object), lenient_decoder(_List)


async def cluster_uid(client: ApiClient) -> str:
    """Returns the UID of the namespace kube-system, which no two clusters share; "" where it is not known.

    Asked as a list, for which the scheduler has the right, else by name.
    """
    for name, params in (("", QUERY), ("/kube-system", None)):
        try:
            body = await client.get(f"{PATH}{name}", params, timeout_s=_REQUEST_S)
            found = [_decode(body)] if name else _decode_list(body).items
            return next((one.metadata.uid for one in found if one.metadata.name == "kube-system"), "")
        except ApiError as error:
            if error.code != 403:
                return ""
        except msgspec.MsgspecError:
            return ""
    return ""


async def known_of(args: argparse.Namespace, *, with_leader: bool) -> Known | None:
    """Reads the kubeconfig's cluster; None: there is no kubeconfig. Raises: ConfigError, for one that is
    given and wrong."""
    try:
        credentials = await load_credentials(kubeconfig=args.kubeconfig, context=args.context)
    except ConfigError:
        if args.kubeconfig or args.context:
            raise
        return None
    async with ApiClient(credentials, max_body_bytes=2**20) as client:
        uid = await cluster_uid(client)
        leader, why = await _leader(client, args.lease) if with_leader else ("", "")
    return Known(credentials.server, uid, leader, why)


async def _leader(client: ApiClient, lease: str) -> tuple[str, str]:
    """(the pod that leads, why it is not known)."""
    namespace, name = lease_of(lease)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases/{segment(name)}"
    see = f"kubectl -n {namespace} get lease {name}"
    try:
        holder = _decode(await client.get(path, timeout_s=_REQUEST_S)).spec.holder_identity or ""
    except ApiError as error:
        if error.code == 404:
            return "", f"there is no Lease {lease} (--lease names another)"
        if error.code == 403:
            return "", f"{error.message}: who leads is not known; ask one who may read it ({see})"
        return "", error.message
    except msgspec.MsgspecError:
        return "", f"the Lease {lease} cannot be read"
    host = holder.rpartition("_")[0]
    if not _HOST.fullmatch(host):
        return "", f"the Lease {lease} names no pod: {one_line(holder[:80])!r}"
    return host, ""


def lease_of(text: str) -> tuple[str, str]:
    """(namespace, name). Raises: ConfigError."""
    namespace, _, name = text.partition("/")
    if not (_HOST.fullmatch(namespace) and _HOST.fullmatch(name)):
        raise ConfigError(f"{text!r} is not NAMESPACE/NAME, as {LEASE} is", path="--lease")
    return namespace, name


def to_type(args: argparse.Namespace, pod: str) -> str:
    """Returns the command that forwards the default port to the pod."""
    namespace, _ = lease_of(args.lease)
    return f"kubectl{''.join(f' {one}' for one in _flags(args))} -n {namespace} port-forward pod/{pod} {PORT}"


def _flags(args: argparse.Namespace) -> Sequence[str]:
    flags = ["--kubeconfig", args.kubeconfig] if args.kubeconfig else []
    return [*flags, "--context", args.context] if args.context else flags


@asynccontextmanager
async def forwarded(args: argparse.Namespace, pod: str) -> AsyncIterator[str]:
    """Yields the address at which the pod's port answers, as long as the block runs. Raises: ApiError."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ApiError(f"{pod} leads, and kubectl is not on the PATH to reach it; type {to_type(args, pod)}")
    namespace, _ = lease_of(args.lease)
    command = [kubectl, *_flags(args), "-n", namespace, "port-forward", f"pod/{pod}", f":{PORT}"]
    process = await anyio.open_process(command, stdin=None)
    try:
        port = 0
        with anyio.move_on_after(_FORWARD_S):
            port = await _port(process)
        if not port:
            why = await _complaint(process)
            raise ApiError(f"{pod} leads, and cannot be reached by {to_type(args, pod)}: {why}")
        yield f"https://127.0.0.1:{port}"
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
                with anyio.move_on_after(2.0):
                    await process.wait()
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def _port(process: Process) -> int:
    """Returns the port that kubectl has taken; 0: it ended."""
    assert process.stdout is not None
    output = b""
    while len(output) < _MAX_BYTES:
        try:
            output += await process.stdout.receive()
        except anyio.EndOfStream:
            return 0
        if found := _FORWARDED.search(output):
            return int(found[1])
    return 0


async def _complaint(process: Process) -> str:
    assert process.stderr is not None
    output = b""
    with anyio.move_on_after(1.0):
        try:
            while len(output) < _MAX_BYTES:
                output += await process.stderr.receive()
        except anyio.EndOfStream:
            pass
    return one_line(" ".join(output.decode(errors="replace").split())[-300:]) or "no answer in time"
