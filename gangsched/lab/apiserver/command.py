"""`gangsched apiserver`: its options, and what it prints.

Lives here: the command line of the embedded cluster. Not here: the cluster (app.py). Called by command.cli.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import ssl
from collections.abc import Sequence
from pathlib import Path

from gangsched.command.messages import tell
from gangsched.errors import ConfigError
from gangsched.model.text.printable import several

DESCRIPTION = """\
Runs an API server in memory, with simulated nodes, until Ctrl-C or SIGTERM; nothing is kept. It asks nobody
for credentials and therefore listens on 127.0.0.1 unless told otherwise. kubectl and schedulers talk to it
as to any cluster. Pods that are bound run in a simulation; annotations set how long and how they end
(gangsched/lab/apiserver/simulated/__init__.py lists them).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("--nodes", type=int, default=16, metavar="N", help="simulated nodes (16)")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="nvidia.com/gpu of each node (8)")
    parser.add_argument("--racks", type=int, default=4, metavar="N", help="that the nodes are in (4)")
    parser.add_argument("--port", type=int, default=8001, metavar="PORT", help="8001; 0 takes a free one")
    parser.add_argument("--bind-address", default="127.0.0.1", metavar="ADDRESS", help="127.0.0.1")
    parser.add_argument(
        "--kubeconfig-out", metavar="FILE", default="", help="write a kubeconfig that leads here"
    )
    tls = parser.add_argument_group("TLS", "plain HTTP without these")
    tls.add_argument("--tls", action="store_true", help="with a self-signed certificate made for this run")
    tls.add_argument("--tls-cert-file", metavar="FILE", default="", help="PEM; with --tls-private-key-file")
    tls.add_argument("--tls-private-key-file", metavar="FILE", default="", help="PEM")
    what = parser.add_argument_group("what is simulated")
    what.add_argument("--no-kubelets", action="store_true", help="bound pods stay Pending; no node is missed")
    what.add_argument(
        "--speed", type=float, default=1.0, metavar="X", help="simulated time passes X times as fast (1)"
    )
    what.add_argument(
        "--kill",
        action="append",
        default=[],
        metavar="NODE[@SECONDS]",
        help="a node dies, at once or after this long in simulated time; may be repeated",
    )
    what.add_argument(
        "--unhealthy",
        action="append",
        default=[],
        metavar="NODE=ID[,ID...]",
        help="devices that are unhealthy from the start; may be repeated",
    )
    what.add_argument(
        "--dra-devices",
        type=int,
        default=0,
        metavar="N",
        help="devices for resource claims that a driver publishes on each node, in a ResourceSlice (0)",
    )
    what.add_argument(
        "--dra-driver",
        default="gpu.example.com",
        metavar="NAME",
        help="that driver, and its class (gpu.example.com)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of UIDs and jitter; by default each run differs"
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM; the caller has set up logs. Raises: ConfigError."""
    # Objects are kept as bytes, and what is decoded from them is short-lived: at the default of 700 the
    # collector takes half of a write's CPU.
    gc.set_threshold(50_000, 20, 20)
    if not 0 <= args.port < 65536:
        raise ConfigError(f"--port {args.port}: expected 0 to 65535")
    return asyncio.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    import signal

    from gangsched.lab.apiserver import simulated
    from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation

    simulation = Simulation(
        nodes=args.nodes,
        gpus=args.gpus,
        racks=args.racks,
        kubelets=not args.no_kubelets,
        speed=args.speed,
        kills=[simulated.parse_kill(text) for text in args.kill],
        unhealthy=simulated.parse_unhealthy(args.unhealthy),
        driver=simulated.Driver(args.dra_devices, args.dra_driver),
    )
    tls, ca = _tls(args)
    if args.kubeconfig_out:
        _refuse_to_overwrite(Path(args.kubeconfig_out))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    cluster = EmbeddedCluster(
        simulation=simulation, host=args.bind_address, port=args.port, tls=tls, ca=ca, seed=args.seed
    )
    written: Path | None = None
    async with cluster:
        try:
            if args.kubeconfig_out:
                written = cluster.kubeconfig(args.kubeconfig_out)
            for line in _told(args, cluster.url, written):
                print(line, flush=True)
            await stopped.wait()
        finally:
            if written is not None:
                # The address in it is no longer valid.
                written.unlink(missing_ok=True)
    tell("stopped; nothing was kept")
    return 0


def _tls(args: argparse.Namespace) -> tuple[ssl.SSLContext | None, bytes]:
    """The server's context, and the CA for clients. Raises: ConfigError."""
    from gangsched import certificates

    certificate, key = args.tls_cert_file, args.tls_private_key_file
    if bool(certificate) != bool(key):
        missing = "--tls-private-key-file" if certificate else "--tls-cert-file"
        raise ConfigError(f"{missing} is missing: a certificate and its key go together")
    if certificate:
        context = certificates.server_context_from_files(certificate, key)
        return context, Path(certificate).read_bytes()
    if not args.tls:
        return None, b""
    hosts = dict.fromkeys(["localhost", "127.0.0.1", args.bind_address])
    pair = certificates.self_signed("gangsched-apiserver", hosts=list(hosts))
    return certificates.server_context(pair), pair.certificate


def _refuse_to_overwrite(path: Path) -> None:
    """Refuses to overwrite a kubeconfig that this command did not write. Raises: ConfigError."""
    try:
        found = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", source=str(path)) from None
    if found.strip() and '"current-context": "gangsched"' not in found:
        raise ConfigError("exists and is not ours: name another file", source=str(path))


def _told(args: argparse.Namespace, url: str, kubeconfig: Path | None) -> Sequence[str]:
    """The lines to print first: the address, and commands to begin with."""
    kubelets = "no kubelets" if args.no_kubelets else "simulated kubelets"
    claimed = f" and {several(args.dra_devices, 'device')} of {args.dra_driver}" if args.dra_devices else ""
    nodes = f"{args.nodes} nodes of {args.gpus} GPUs{claimed}"
    lines = [
        f"serving {url}, in memory: {nodes} in {args.racks} racks, {kubelets}",
        "no authentication: whoever reaches this port may do everything",
    ]
    if kubeconfig is not None:
        lines.append(f"kubectl --kubeconfig {kubeconfig} get pods,nodes -o wide")
        lines.append(f"gangsched scheduler --kubeconfig {kubeconfig}")
    elif url.startswith("http:"):
        lines.append(f"kubectl --server {url} get pods,nodes -o wide")
        lines.append(f"gangsched scheduler --master {url}")
    return lines
