"""The flags of a command that name a cluster, and the credentials that they lead to. Called by commands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangsched.kube.access.credentials import Credentials


def add_cluster_flags(parser: argparse.ArgumentParser, *, with_master: bool = True) -> None:
    """Adds the flags. with_master: without it only a kubeconfig tells where the API server is."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="default: KUBECONFIG, in-cluster, ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="a context of the kubeconfig")
    if with_master:
        parser.add_argument(
            "--master", metavar="URL", default="", help="API server; overrides the kubeconfig"
        )


async def credentials_of(args: argparse.Namespace) -> Credentials:
    """Loads the credentials that the flags name. Raises: ConfigError."""
    # Not with the flags: it loads structlog, which loads fast only once logs are set up.
    from gangsched.kube.access.credentials import load_credentials

    master = getattr(args, "master", "")
    return await load_credentials(kubeconfig=args.kubeconfig, context=args.context, master=master)
