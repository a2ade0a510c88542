"""Our identity towards the API server: kubeconfig, in-cluster account, tokens and certificates, kept fresh.

Lives here: finding the configuration, noticing that it has changed or expired, renewing it, and notifying the
owners of connections. Not here: reading it (kube.access.loaders), requests (kube.client,
kube.transport.lane). The assembly loads them once; both requesters then get their headers here.

None of this needs a restart:

| what changed | noticed | reaction |
|---|---|---|
| a source file: kubeconfig, token, certificate, key, CA | within FILE_REFRESH_S | read again |
| a plugin's token or certificate is about to expire | by its date | the plugin is run again |
| a TLS handshake fails | within RETRY_S | the files are checked |
| the API server answers 401 | at once | read again, the plugin is run again |

A TLS context is never changed once connections use it: a CA can be added to it, but not removed. New
certificates make a new context. Connections of an older context are closed once their requests are answered.
Otherwise a client that the server once accepted, or a CA that we once trusted, would stay accepted as long as
they live.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio
import structlog

from gangsched.errors import ApiError, ConfigError, Unreachable
from gangsched.kube.access.fields import with_plain_scheme
from gangsched.kube.access.files import home_kubeconfig, read_regular
from gangsched.kube.access.loaders import (
    FILE_REFRESH_S,
    RETRY_S,
    Loaded,
    blank,
    end_of_certificate,
    from_kubeconfig,
    from_pod,
)
from gangsched.kube.access.proxies import network_to
from gangsched.kube.network import KERNEL, Network
from gangsched.kube.reach import Reach, plain
from gangsched.kube.tally import AnswerTally

_log = structlog.get_logger(__name__)

# Sent with every request; a server accepts about a megabyte of headers at the most.
MAX_TOKEN = 64 * 1024
_IN_CLUSTER_ENV = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")

_NOTHING_CONFIGURED = (
    "no cluster is configured: give --kubeconfig, set KUBECONFIG, run in a pod with a service account,"
    " or give --master URL for a server that asks for no credentials"
)

_Source = Callable[[], Awaitable[Loaded]]


class ConnectionHolder(Protocol):
    """An owner of connections that were opened with these credentials."""

    def certificates_changed(self) -> None:
        """Close connections of any older TLS context, each as soon as it has been answered."""


class _Material(NamedTuple):
    """The files and data that a TLS context is made of."""

    ca: bytes
    certificate: bytes
    key: bytes
    verify: bool


class Credentials:
    """The server's address, how to trust it, and the current Authorization header.

    Shared by everything that talks to this server, so it also counts the server's answers. `version` rises
    with each change of the header or of the certificates; a refused caller passes the version it used.
    `last_error` is the error of the last renewal, empty when it succeeded; readiness reads it.
    """

    def __init__(
        self,
        source: _Source,
        loaded: Loaded,
        *,
        clock: Callable[[], float] = time.monotonic,
        network: Network = KERNEL,
    ) -> None:
        self._source = source
        self._clock = clock
        self.network = network
        self._lock = anyio.Lock()
        self._holders: WeakKeyDictionary[ConnectionHolder, None] = WeakKeyDictionary()
        self._loaded = loaded
        self._material: _Material | None = None
        self.server: str = loaded.host.rstrip("/")
        self._way_logged = (self.server, loaded.proxy)
        self.server_hostname: str | None = loaded.tls_server_name
        self.ssl_context: ssl.SSLContext | None = None
        self.authorization = ""
        self.version = 0
        self.answers = AnswerTally()
        self.reach = Reach(self.server, self.answers, clock=clock)
        self.last_error = ""
        self._due_s: float | None = None
        self._files = _digest(loaded.files)
        self._look_s = self._clock() + FILE_REFRESH_S
        self._fruitless_until_s = 0.0
        self._take(loaded)

    def another(self) -> Credentials:
        """The same identity for another thread's event loop: renewed apart, its answers are counted with
        ours."""
        other = Credentials(self._source, self._loaded, clock=self._clock, network=self.network)
        other.answers, other.reach = self.answers, self.reach
        return other

    def follow(self, holder: ConnectionHolder) -> None:
        """Notify it of new certificates for as long as it lives."""
        self._holders[holder] = None

    async def headers(self) -> dict[str, str]:
        """The headers for a request sent now; renews first if that is due. Never raises: see `last_error`."""
        now_s = self._clock()
        is_due = self._due_s is not None and now_s >= self._due_s
        if now_s >= self._look_s:
            self._look_s = now_s + FILE_REFRESH_S
            is_due = is_due or _digest(self._loaded.files) != self._files
        if is_due:
            await self._renew(unless_changed=self.version)
        return {"Authorization": self.authorization} if self.authorization else {}

    def doubt(self) -> None:
        """A TLS handshake has failed, perhaps because the files changed: check them soon, not in a minute."""
        self._look_s = min(self._look_s, self._clock() + RETRY_S)

    def not_reached(self, error: OSError) -> Unreachable:
        """Reports that no connection was possible; returns the error to raise."""
        if isinstance(error, ssl.SSLError):
            self.doubt()
        return self.reach.not_reached(plain(error))

    def not_accepted(self, error: ApiError) -> ApiError:
        """Adds to a 401 for the newest credentials what was tried and the cure; returns the error."""
        loaded = self._loaded
        why = self._why_refused()
        tried = f"{loaded.tried} ({why})" if why else loaded.tried
        text = f"{self.server} does not accept our credentials: tried {tried}; {loaded.cure}"
        self.reach.refused(f"401 {error.reason or 'Unauthorized'}: {text}")
        return ApiError(
            text,
            code=error.code,
            reason=error.reason or "Unauthorized",
            retry_after_s=error.retry_after_s,
            subject=error.subject,
        )

    async def refresh(self, *, refused: int) -> bool:
        """Renew because the server answered 401 to version `refused`; true if there is now a newer one."""
        if self.version == refused:
            await self._renew(unless_changed=refused, is_refused=True)
        return self.version != refused

    async def _renew(self, *, unless_changed: int, is_refused: bool = False) -> None:
        async with self._lock:
            now_s = self._clock()
            if self.version != unless_changed:
                return  # another task was first
            if self.last_error and self._due_s is not None and now_s < self._due_s:
                return  # it has just failed: do not retry for each waiting request
            if is_refused and now_s < self._fruitless_until_s:
                return  # it has just found nothing new
            # Taken before reading, so that a write in the meantime is found at the next check.
            files = _digest(self._loaded.files)
            try:
                self._take(await self._source())
                self._files = files
                why = ""
                if is_refused and self.version == unless_changed:
                    self._fruitless_until_s = now_s + RETRY_S
                    why = self._why_refused()
            except ConfigError as error:
                # The old ones may still be valid; the server decides.
                self._due_s = now_s + RETRY_S
                why = str(error)
            if why != self.last_error:
                if why:
                    _log.error("credentials could not be renewed", err=why)
                else:
                    _log.info("credentials renewed")
            self.last_error = why

    def _why_refused(self) -> str:
        """Returns what to tell the operator when nothing new was found; "" if the cause is unknown."""
        path = self._loaded.cert_file
        try:
            end = end_of_certificate(path) if path is not None else None
        except (OSError, ValueError):
            return ""
        if end is None or end > datetime.now(UTC):
            return ""
        return f"the client certificate has expired on {end:%Y-%m-%d at %H:%M:%S} UTC: {path}"

    def _take(self, loaded: Loaded) -> None:
        """Use these from now on. Raises: ConfigError; then nothing has changed."""
        authorization = header_of(loaded.api_key.get("BearerToken", ""))
        material, context = self._material, self.ssl_context
        if self.server.startswith("https:"):
            material = _material_of(loaded)
            if material != self._material:
                context = _ssl_context(loaded)
        self._say_other_way(loaded)
        self._loaded = loaded
        self._material = material
        self._due_s = None if loaded.renew_after_s is None else self._clock() + loaded.renew_after_s
        if authorization != self.authorization:
            self.authorization = authorization
            self.version += 1
        if context is not self.ssl_context:
            is_first, self.ssl_context = self.ssl_context is None, context
            self.version += 1
            if not is_first:
                _log.info("certificates have changed: connections are opened anew")
            for holder in list(self._holders):
                holder.certificates_changed()

    def _say_other_way(self, loaded: Loaded) -> None:
        """Warn once: the cached state belongs to the cluster that this process started with."""
        way = (loaded.host.rstrip("/"), loaded.proxy)
        if way != self._way_logged:
            self._way_logged = way
            _log.warning("the server's address or proxy has changed; a restart takes it up", server=way[0])


def header_of(token: str, *, path: str = "") -> str:
    """Returns the header of a token, without surrounding blanks. Raises: ConfigError, with `path`."""
    # Token files usually end in a newline, which must not get into a header.
    header = " ".join(token.split())
    if len(header) > MAX_TOKEN:
        raise ConfigError(f"the token has {len(header)} characters, at most {MAX_TOKEN}", path=path)
    if not (header.isascii() and header.isprintable()):
        raise ConfigError("the token has characters that no token has; is it the right file?", path=path)
    return header


def _digest(files: Iterable[str]) -> bytes:
    """Digest of the files' contents: mounted secrets are swapped by symlinks, and copies keep old mtimes."""
    digest = hashlib.sha256()
    for path in files:
        try:
            data = read_regular(path, "file")
        except (OSError, ConfigError):
            data = b""
        digest.update(b"%d:%b" % (len(data), data))
    return digest.digest()


def _material_of(loaded: Loaded) -> _Material:
    return _Material(
        _read(loaded.ssl_ca_cert), _read(loaded.cert_file), _read(loaded.key_file), loaded.verify_ssl
    )


def _read(path: str | None) -> bytes:
    try:
        return read_regular(path, "certificate") if path else b""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from None


def _ssl_context(loaded: Loaded) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=loaded.ssl_ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate authority cannot be used: {error}", path=loaded.ssl_ca_cert or ""
        ) from None
    # CAs made by older tools lack extensions that Python 3.13 requires by default; kubectl accepts them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if not loaded.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if loaded.cert_file:
        try:
            context.load_cert_chain(loaded.cert_file, loaded.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the client certificate cannot be used: {error}", path=loaded.cert_file
            ) from None
    return context


async def load_credentials(
    *,
    kubeconfig: str = "",
    context: str = "",
    master: str = "",
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Loads credentials from `kubeconfig`, else KUBECONFIG, else the pod's own account, else ~/.kube/config.

    `context` selects a context other than the current one. `master` overrides the server's address; it is
    enough if nothing else is configured, as with `kubectl --server`. Raises: ConfigError.
    """
    if master:
        _check_master(master)
    paths = kubeconfig or environ.get("KUBECONFIG", "")
    in_cluster = all(environ.get(name) for name in _IN_CLUSTER_ENV)
    if not paths and not in_cluster:
        paths = _home_kubeconfig(environ)
        if not paths and (context or not master):
            raise ConfigError(_NOTHING_CONFIGURED)

    async def source() -> Loaded:
        if paths:
            loaded = await from_kubeconfig(paths, context, needs_server=not master)
        else:
            loaded = from_pod(environ) if in_cluster else blank()
        if master:
            loaded.host = with_plain_scheme(master)
        return loaded

    loaded = await source()
    where = "--master" if master else paths
    network = network_to(loaded.host, proxy_url=loaded.proxy, source=where, environ=environ)
    return Credentials(source, loaded, clock=clock, network=network)


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    """Its path; "" if there is none."""
    path = home_kubeconfig(environ)
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        pass  # the reader reports why it cannot be read
    return path


def _check_master(master: str) -> None:
    """Raises: ConfigError."""
    try:
        parts = urlsplit(master)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or any(c.isspace() or not c.isprintable() for c in master) or not master.isascii():
        raise ConfigError(
            f"{master!r} is not the address of an API server; examples: http://127.0.0.1:8001,"
            " https://10.0.0.1:6443",
            path="--master",
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            "only a scheme, a host, a port and a path are understood; credentials belong in a kubeconfig",
            path="--master",
        )
