"""Who we are to the API server: kubeconfig, in-cluster account, tokens and certificates, kept fresh.

Lives here: finding the configuration, reading it with kubernetes-asyncio's loaders, renewing what expires.
Not here: requests (kube.client, kube.lane). Called by the assembly once, then by both.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import structlog

from gangsched.errors import ConfigError
from gangsched.kube.network import KERNEL, Network
from gangsched.kube.tally import Answers

_log = structlog.get_logger(__name__)

# client-go reads token files anew once a minute; the kubelet replaces them long before they expire.
FILE_REFRESH_S = 60.0
# Renewed this long before the stated end, so that no request leaves with a token about to expire.
EXPIRY_SKEW_S = 60.0
RETRY_S = 10.0
# A plugin may ask a person to log in, but must not hold the scheduler for ever.
EXEC_TIMEOUT_S = 60.0

_OPENID = "kubernetes_asyncio.config.openid"
_IN_CLUSTER_ENV = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


def _import_loaders() -> tuple[ModuleType, ModuleType]:
    """kubernetes-asyncio's configuration loaders, without the rest of that package.

    `import kubernetes_asyncio` builds thousands of model classes: 1.4 s and tens of MiB that we have no use
    for, in a process that must place its first pod within a second. Its loaders need only the names
    `Configuration` and `ApiClient` from the package above them, so that package is put in place with its
    path but without running its `__init__`. The loaders merely set attributes on a Configuration; a plain
    namespace takes them, which also keeps urllib3 and six out. What renews an OpenID token is put in place
    unloaded, too: it is all that needs aiohttp there, 100 ms and 12 MiB.
    """
    if "kubernetes_asyncio" not in sys.modules:
        spec = importlib.util.find_spec("kubernetes_asyncio")
        if spec is None or not spec.submodule_search_locations:
            raise ConfigError("the package kubernetes-asyncio is not installed")
        root = next(iter(spec.submodule_search_locations))
        for name, path in (
            ("kubernetes_asyncio", root),
            ("kubernetes_asyncio.client", os.path.join(root, "client")),
        ):
            bare = ModuleType(name)
            bare.__path__ = [path]
            sys.modules[name] = bare
        client = sys.modules["kubernetes_asyncio.client"]
        client.__dict__.update(Configuration=SimpleNamespace, ApiClient=object)
        sys.modules["kubernetes_asyncio"].__dict__["client"] = client
        openid = ModuleType(_OPENID)
        openid.__dict__.update(OpenIDRequestor=_openid_requestor)
        sys.modules[_OPENID] = openid
    kube_config = importlib.import_module("kubernetes_asyncio.config.kube_config")
    incluster = importlib.import_module("kubernetes_asyncio.config.incluster_config")
    return kube_config, incluster


def _openid_requestor(*args: Any, **kwargs: Any) -> Any:
    """Loads kubernetes-asyncio's own, now that a token is to be renewed."""
    if getattr(sys.modules[_OPENID], "__spec__", None) is None:
        del sys.modules[_OPENID]
    return importlib.import_module(_OPENID).OpenIDRequestor(*args, **kwargs)


class _Loaded(SimpleNamespace):
    """What a loader found; the names are those that kubernetes-asyncio's loaders set."""

    host: str
    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    tls_server_name: str | None
    proxy: str | None
    api_key: dict[str, str]
    renew_after_s: float | None


_Source = Callable[[], Awaitable[_Loaded]]


def _blank() -> _Loaded:
    return _Loaded(
        host="",
        ssl_ca_cert=None,
        cert_file=None,
        key_file=None,
        verify_ssl=True,
        tls_server_name=None,
        proxy=None,
        api_key={},
        renew_after_s=None,
        refresh_api_key_hook=None,
    )


class Credentials:
    """The server's address, how to trust it, and the current Authorization header.

    What all who speak to this server share, so the count of its answers too.
    `last_error` is what went wrong at the last renewal, empty when all is well: for readiness.
    """

    def __init__(
        self,
        source: _Source,
        loaded: _Loaded,
        *,
        clock: Callable[[], float] = time.monotonic,
        network: Network = KERNEL,
    ) -> None:
        self._source = source
        self._clock = clock
        self.network = network
        self._lock = anyio.Lock()
        self._files: tuple[tuple[str, int], ...] = ()
        self.server: str = loaded.host.rstrip("/")
        self.server_hostname: str | None = loaded.tls_server_name
        self.ssl_context: ssl.SSLContext | None = None
        self.authorization = ""
        self.answers = Answers()
        self.last_error = ""
        self._due_s: float | None = None
        if self.server.startswith("https:"):
            self.ssl_context = _ssl_context(loaded)
        self._take(loaded)

    async def headers(self) -> dict[str, str]:
        """The headers of a request sent now; renews first what is due. Never raises: see `last_error`."""
        if self._due_s is not None and self._clock() >= self._due_s:
            await self._renew(unless_changed=self.authorization)
        return {"Authorization": self.authorization} if self.authorization else {}

    async def refresh(self, *, refused: str) -> bool:
        """Renew because the server answered 401 to `refused`; true if there is something new to try."""
        if self.authorization == refused:
            await self._renew(unless_changed=refused)
        return self.authorization != refused

    async def _renew(self, *, unless_changed: str) -> None:
        async with self._lock:
            if self.authorization != unless_changed:
                return  # another task was first
            before = self._due_s
            if before is not None and self._clock() < before and self.last_error:
                return  # it has just failed: not once per waiting request
            try:
                self._take(await self._source())
                if self.last_error:
                    _log.info("credentials renewed")
                self.last_error = ""
            except ConfigError as error:
                # The old ones may still be good; the server has the last word.
                self._due_s = self._clock() + RETRY_S
                if str(error) != self.last_error:
                    _log.error("credentials could not be renewed", err=str(error))
                self.last_error = str(error)

    def _take(self, loaded: _Loaded) -> None:
        token = loaded.api_key.get("BearerToken", "")
        # Token files usually end in a newline, which must not get into a header.
        self.authorization = " ".join(token.split())
        self._due_s = None if loaded.renew_after_s is None else self._clock() + loaded.renew_after_s
        if self.ssl_context is not None:
            files = _stamps(loaded)
            if files != self._files:
                _load_certificates(self.ssl_context, loaded)
                self._files = files


def _stamps(loaded: _Loaded) -> tuple[tuple[str, int], ...]:
    paths = (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file)
    try:
        return tuple((path, os.stat(path).st_mtime_ns) for path in paths if path)
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None


def _ssl_context(loaded: _Loaded) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=loaded.ssl_ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate authority cannot be used: {error}", path=loaded.ssl_ca_cert or ""
        ) from None
    # CAs made by older tools lack extensions that Python 3.13 asks for by default; kubectl takes them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if not loaded.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificates(context: ssl.SSLContext, loaded: _Loaded) -> None:
    """Put rotated files into the living context: connections opened from now on use them."""
    try:
        if loaded.ssl_ca_cert:
            context.load_verify_locations(loaded.ssl_ca_cert)
        if loaded.cert_file:
            context.load_cert_chain(loaded.cert_file, loaded.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the client certificate cannot be used: {error}", path=loaded.cert_file or ""
        ) from None


async def load_credentials(
    *,
    kubeconfig: str = "",
    context: str = "",
    master: str = "",
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Credentials from `kubeconfig`, else KUBECONFIG, else the pod's own account, else ~/.kube/config.

    `context` picks another than the current one, `master` overrides the server's address.
    Raises: ConfigError.
    """
    paths = kubeconfig or environ.get("KUBECONFIG", "")
    in_cluster = all(environ.get(name) for name in _IN_CLUSTER_ENV)
    if not paths and not in_cluster:
        paths = _home_kubeconfig(environ)

    async def source() -> _Loaded:
        loaded = await _from_kubeconfig(paths, context) if paths else _from_pod(environ)
        if master:
            loaded.host = master
        if not loaded.host:
            raise ConfigError("the cluster has no server address", source=paths, path="clusters")
        if loaded.proxy:
            raise ConfigError("proxy-url is not supported", source=paths, path="clusters")
        return loaded

    return Credentials(source, await source(), clock=clock)


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    path = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if path.exists():
        return str(path)
    raise ConfigError(
        "no cluster is configured: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account"
    )


def _any_exists(paths: str) -> bool:
    return any(os.path.exists(os.path.expanduser(path)) for path in paths.split(os.pathsep) if path)


def _from_pod(environ: Mapping[str, str]) -> _Loaded:
    _, incluster = _import_loaders()
    loaded = _blank()
    loaded.renew_after_s = FILE_REFRESH_S
    try:
        incluster.InClusterConfigLoader(
            token_filename=incluster.SERVICE_TOKEN_FILENAME,
            cert_filename=incluster.SERVICE_CERT_FILENAME,
            environ=environ,
        ).load_and_set(loaded)
    except (incluster.ConfigException, OSError) as error:
        raise ConfigError(f"the pod's service account cannot be used: {error}") from None
    return loaded


async def _from_kubeconfig(paths: str, context: str) -> _Loaded:
    kube_config, _ = _import_loaders()
    loaded = _blank()
    if not _any_exists(paths):
        raise ConfigError("the kubeconfig file does not exist", source=paths)
    user: Any = None
    try:
        loader = kube_config._get_kube_config_loader_for_yaml_file(
            paths, active_context=context or None, persist_config=True
        )
        # Renewed OpenID tokens are written back; the loader calls this with what the method does not take.
        save = loader._config_persister
        loader._config_persister = lambda _: save()
        user = loader._user
        if user is None:
            # The loader cannot do without a user; kubectl can (a server that lets anybody in).
            loader._user = kube_config.ConfigNode("user", {})
        with anyio.fail_after(EXEC_TIMEOUT_S):
            await loader.load_and_set(loaded)
    except ConfigError:
        raise
    except Exception as error:
        # The loaders raise whatever a malformed file leads to: KeyError, TypeError, YAMLError and others.
        raise ConfigError(_explain(error, user), source=paths) from None
    loaded.renew_after_s = _renew_after_s(loader, user)
    return loaded


def _explain(error: Exception, user: Any) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if user is not None and "exec" in user:
        command = (user.value.get("exec") or {}).get("command", "")
        if isinstance(error, FileNotFoundError):
            return f"the credential plugin {command!r} was not found"
        if isinstance(error, TimeoutError):
            return f"the credential plugin {command!r} gave no answer in {EXEC_TIMEOUT_S:.0f} s"
        if text.startswith("exec:"):
            return f"the credential plugin {command!r} failed: {text.removeprefix('exec: ')[:500]}"
    return text[:500]


def _renew_after_s(loader: Any, user: Any) -> float | None:
    """Seconds until these must be loaded anew; None: only when the server refuses them."""
    if user is None:
        return None
    expiry = getattr(loader, "exec_plugin_expiry", None)
    if isinstance(expiry, datetime):
        # The one place where the wall clock counts: the plugin states its end by it.
        return max((expiry - datetime.now(UTC)).total_seconds() - EXPIRY_SKEW_S, RETRY_S)
    if "exec" in user:
        return None
    if any(key in user for key in ("tokenFile", "auth-provider", "client-certificate")):
        return FILE_REFRESH_S
    return None
