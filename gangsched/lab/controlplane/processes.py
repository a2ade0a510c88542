"""A real control plane on loopback: etcd, kube-apiserver and, when asked, kube-scheduler and controllers.

What does not live here: finding the binaries (assets.py), building them (build.py), one process's life
(daemon.py). Called by the tests' fixtures and by `gangsched bench`; plain blocking calls, no event loop.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gangsched.errors import ApiError, GangschedError
from gangsched.lab.controlplane.admin import Admin
from gangsched.lab.controlplane.assets import Assets, find
from gangsched.lab.controlplane.daemon import Daemon, StartFailed, free_ports

ADMIN = "admin"
ETCD_READY_S = 30.0
APISERVER_READY_S = 90.0
"""Starting takes four seconds on an idle machine; a test run may share two cores with a build."""
APISERVER_STOP_S = 3.0
"""Requests in flight are answered by then; an open watch would delay the end by a minute."""
SCHEDULER_READY_S = 240.0
CONTROLLERS_READY_S = 120.0
START_TRIES = 3
"""Another process may take a free port between our check and the server's bind."""
GANG_GATE = "--feature-gates=GenericWorkload=true"
GANG_API_SINCE = 37
"""The minor version with the core PodGroup API as v1beta1. An older one ends over flags that it does not
know."""
JOB_GATES = "--feature-gates=WorkloadWithJob=true,TopologyAwareWorkloadScheduling=true"
"""With GANG_GATE: what a Job's `spec.scheduling` needs, on kube-apiserver and on its controller alike."""


GROUP_CLAIMS_GATE = "--feature-gates=DRAWorkloadResourceClaims=true"
"""With GANG_GATE: resource claims of PodGroups, on kube-apiserver and kube-controller-manager alike. Since
1.37 it is a beta, off by default."""


class KubectlFailed(GangschedError):
    """kubectl ended with an error; the message is the command and its error output."""


class ControlPlane:
    """etcd and kube-apiserver in a directory of their own, thrown away by `stop()` unless `keep`.

    `users` maps further user names to their groups; each gets a token and a kubeconfig, and the rights
    that the test gives it by RBAC. `gang_api` serves the core PodGroup API where this kube-apiserver has it.
    `apiserver_gogc` sets GOGC.
    """

    def __init__(
        self,
        *,
        assets: Assets | None = None,
        users: Mapping[str, Sequence[str]] | None = None,
        gang_api: bool = True,
        apiserver_gogc: int | None = None,
        apiserver_flags: Sequence[str] = (),
        etcd_flags: Sequence[str] = (),
        unsafe_no_fsync: bool = False,
        keep: bool = False,
    ) -> None:
        self.assets = assets or find()
        self.gang_api = gang_api
        self.apiserver_gogc = apiserver_gogc
        self.apiserver_flags = tuple(apiserver_flags)
        self.etcd_flags = (*etcd_flags, *(["--unsafe-no-fsync"] if unsafe_no_fsync else []))
        self.keep = keep
        self.data_dir = Path(tempfile.mkdtemp(prefix="gangsched-controlplane-"))
        self.groups = {ADMIN: ("system:masters",)} | {user: tuple(of) for user, of in (users or {}).items()}
        self.tokens = {user: secrets.token_hex(16) for user in self.groups}
        self.etcd: Daemon | None = None
        self.apiserver: Daemon | None = None
        self.schedulers: list[Daemon] = []
        self.controllers: Daemon | None = None
        self._etcd_port = self._peer_port = self._port = 0
        self._admin = Admin(self._port, self.ca_file, self.token)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def minor_version(self) -> int:
        """See minor_version()."""
        return minor_version(self.assets.path("kube-apiserver"))

    @property
    def base_url(self) -> str:
        """Where kube-apiserver listens, without a trailing slash."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """kube-apiserver's port; a restart keeps it."""
        return self._port

    @property
    def token(self) -> str:
        """The bearer token of the admin (system:masters)."""
        return self.tokens[ADMIN]

    @property
    def ca_file(self) -> Path:
        """The certificate that kube-apiserver made for itself, with its CA behind it."""
        return self.data_dir / "certs" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.kubeconfig_of(ADMIN)

    def kubeconfig_of(self, user: str) -> Path:
        """The kubeconfig of one of the users named at construction."""
        return self.data_dir / f"{user.replace(':', '_').replace('/', '_')}.kubeconfig"

    def start(self) -> None:
        """Starts the servers; returns when the API server is ready and serves the default namespace.

        Raises: StartFailed, with nothing left running.
        """
        try:
            for attempt in range(START_TRIES):
                self._etcd_port, self._peer_port, self._port = free_ports(3)
                self._admin = Admin(self._port, self.ca_file, self.token)
                try:
                    self._start_etcd()
                    self._write_tokens()
                    self.start_apiserver()
                    break
                except StartFailed as error:
                    self._kill_all()
                    if "address already in use" not in str(error) or attempt == START_TRIES - 1:
                        raise
            for user in self.groups:
                self._write_kubeconfig(user)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every process and removes the directory; may be called twice."""
        self._kill_all()
        if not self.keep:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def start_apiserver(self) -> None:
        """Starts kube-apiserver on its port, again after kill_apiserver(); returns when it is ready."""
        certs = self.data_dir / "certs"
        # kube-apiserver makes this key (RSA) before it reads the service account keys, and a second key
        # pair would need a tool that makes one: the same key serves both.
        key = certs / "apiserver.key"
        flags = [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={certs}",
            # Its own address is loopback, which it refuses to publish as an endpoint.
            "--endpoint-reconciler-type=none",
            f"--token-auth-file={self.data_dir / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            # No controller manager makes service accounts, and no kubelet makes a node ready.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--allow-privileged=true",
        ]
        if self.gang_api and self.minor_version >= GANG_API_SINCE:
            flags += [GANG_GATE, "--runtime-config=scheduling.k8s.io/v1beta1=true"]
        env = dict(os.environ)
        if self.apiserver_gogc is not None:
            env["GOGC"] = str(self.apiserver_gogc)
        self.apiserver = self._daemon("kube-apiserver", [*flags, *self.apiserver_flags], env=env)
        self.apiserver.wait_ready(self._apiserver_ready, timeout_s=APISERVER_READY_S)

    def kill_apiserver(self) -> None:
        """Kills kube-apiserver as a crash would; start_apiserver() brings it back with the same data."""
        if self.apiserver is not None:
            self.apiserver.kill()

    def restart_apiserver(self) -> None:
        """Stops kube-apiserver in order and starts it again on the same port."""
        if self.apiserver is not None:
            self.apiserver.stop(timeout_s=APISERVER_STOP_S)
        self.start_apiserver()

    def start_kube_scheduler(
        self, *, gang: bool = False, config: Mapping[str, Any] | None = None, flags: Sequence[str] = ()
    ) -> Daemon:
        """Starts a kube-scheduler, with its own gang scheduling if `gang`; returns when it is ready.

        `config` holds further fields of its KubeSchedulerConfiguration.
        Raises: MissingAssets, StartFailed.
        """
        number = len(self.schedulers)
        [port] = free_ports(1)
        extra = dict(config or {})
        connection = {"kubeconfig": str(self.kubeconfig)} | dict(extra.pop("clientConnection", {}))
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": connection,
            "leaderElection": {"leaderElect": False},
        } | extra
        path = self.data_dir / f"kube-scheduler-{number}.yaml"
        path.write_text(json.dumps(document))
        arguments = [
            f"--config={path}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.data_dir / f'kube-scheduler-{number}-certs'}",
            *([GANG_GATE] if gang else []),
            *flags,
        ]
        daemon = self._daemon("kube-scheduler", arguments, log=f"kube-scheduler-{number}.log")
        self.schedulers.append(daemon)
        daemon.wait_ready(lambda: _is_well(port, "readyz"), timeout_s=SCHEDULER_READY_S)
        return daemon

    def start_controllers(self, *names: str, flags: Sequence[str] = ()) -> Daemon:
        """Starts a kube-controller-manager that runs these controllers alone; returns when it serves.

        Raises: MissingAssets, StartFailed.
        """
        [port] = free_ports(1)
        arguments = [
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.data_dir / 'kube-controller-manager-certs'}",
            "--leader-elect=false",
            f"--controllers={','.join(names)}",
            *flags,
        ]
        self.controllers = daemon = self._daemon("kube-controller-manager", arguments)
        daemon.wait_ready(lambda: _is_well(port, "healthz"), timeout_s=CONTROLLERS_READY_S)
        return daemon

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Runs kubectl as the admin and returns what it prints; raises KubectlFailed with its error
        output."""
        command = [
            str(self.assets.path("kubectl")),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.data_dir / 'kubectl-cache'}",
            *arguments,
        ]
        done = subprocess.run(command, input=input or "", capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def etcd_metrics(self) -> str:
        """etcd's own metrics. Raises: OSError when it does not answer."""
        with _opener(None).open(f"http://127.0.0.1:{self._etcd_port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """Sends one request as the admin; returns the JSON of the answer.

        Raises: ApiError (code 0 if nothing was received).
        """
        return self._admin.ask(method, path, body, content_type)

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        flags = [
            f"--data-dir={self.data_dir / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
            *self.etcd_flags,
        ]
        shutil.rmtree(self.data_dir / "etcd", ignore_errors=True)
        self.etcd = self._daemon("etcd", flags)
        self.etcd.wait_ready(lambda: _answers_ok(f"{client}/health"), timeout_s=ETCD_READY_S)

    def _daemon(
        self, name: str, flags: Sequence[str], *, log: str = "", env: Mapping[str, str] | None = None
    ) -> Daemon:
        binary = str(self.assets.path(name))
        path = self.data_dir / (log or f"{name}.log")
        return Daemon(name, [binary, *flags], log=path, env=os.environ if env is None else env)

    def _apiserver_ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        try:
            # The system namespaces are made in the background, some time after /readyz says ok.
            return bool(self.request("GET", "/readyz") == "ok") and bool(
                self.request("GET", "/api/v1/namespaces/default")
            )
        except (ApiError, ssl.SSLError):  # SSLError: the certificate's file is being written
            return False

    def _write_tokens(self) -> None:
        rows = [f'{self.tokens[user]},{user},{user},"{",".join(of)}"' for user, of in self.groups.items()]
        path = self.data_dir / "tokens.csv"
        path.touch(mode=0o600)
        path.write_text("\n".join(rows) + "\n")

    def _write_kubeconfig(self, user: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [
                {
                    "name": "here",
                    "cluster": {"server": self.base_url, "certificate-authority": str(self.ca_file)},
                }
            ],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
        }
        path = self.kubeconfig_of(user)
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1))

    def _kill_all(self) -> None:
        # Killed, not stopped: nothing of it is used again. Clients first, to keep the logs quiet.
        for daemon in (*self.schedulers, self.controllers, self.apiserver, self.etcd):
            if daemon is not None:
                daemon.kill()
        self.schedulers.clear()
        self.controllers = None


@functools.cache
def minor_version(binary: Path) -> int:
    """Returns 34 for a kube-apiserver that reports Kubernetes 1.34."""
    done = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout.split(".")[1])


def _opener(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    # No proxies: an environment's http_proxy must not see loopback.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _is_well(port: int, page: str) -> bool:
    # Readable without credentials, and the certificate is the server's own.
    return _answers_ok(f"https://127.0.0.1:{port}/{page}", context=ssl._create_unverified_context())


def _answers_ok(url: str, *, context: ssl.SSLContext | None = None) -> bool:
    try:
        with _opener(context).open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False
