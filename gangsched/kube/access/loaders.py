"""Loads credentials from kubeconfig files or a pod's service account.

Lives here: reading them with kubernetes-asyncio's loaders, and the error when they cannot be read. Not here:
keeping them fresh (kube.access.credentials, which calls this at the start and for each renewal).
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import yaml

from gangsched.errors import ConfigError
from gangsched.kube.access.exec_plugin import limited
from gangsched.kube.access.fields import settle
from gangsched.kube.access.files import read_regular
from gangsched.kube.access.kubeconfig import files_of, find_mistake, names_nothing
from gangsched.reading.yaml_bounds import check_yaml

# client-go rereads token files once a minute; the kubelet replaces them long before they expire.
FILE_REFRESH_S = 60.0
# Renewed this long before they expire, so that no request leaves with a token about to expire.
EXPIRY_SKEW_S = 60.0
RETRY_S = 10.0
# A plugin may ask a person to log in, but must not hold the scheduler for ever.
EXEC_TIMEOUT_S = 60.0
# Room for a CA, a certificate and its key of each kubeconfig, and for earlier ones.
_MAX_FILES = 32

_PACKAGE = "kubernetes_asyncio"
_CONFIG = f"{_PACKAGE}.config"
_OPENID = f"{_CONFIG}.openid"
_INCLUSTER = f"{_CONFIG}.incluster_config"
# The loader names a field with everything beside it: "…/{'name': 'u', 'user': {'token': …}}/user/exec".
_SECRETS = re.compile(r"/\{.*\}")
# Other threads must not import while the stand-ins are in place.
_importing = threading.Lock()


@cache
def import_loaders() -> tuple[ModuleType, ModuleType]:
    """Imports kubernetes-asyncio's configuration loaders without the rest of that package.

    This is the one place that fakes modules. The reason: `import kubernetes_asyncio.config` runs its parent
    package, which builds thousands of model classes that we do not use. That costs 1.4 s and 35 MiB (2.1-2.8
    s against 0.2 s on a busy machine) in a process that must place its first pod within a second. The loaders
    need only the names `Configuration` and `ApiClient` from there, and only set attributes on a
    Configuration; a plain namespace accepts those, which also keeps urllib3 and six out. So stand-ins replace
    these packages during the import and are removed before other code can see them: a later import of
    kubernetes_asyncio gets the whole package, with its own loaders.
    """
    if _PACKAGE in sys.modules:
        return _with_limits(), importlib.import_module(_INCLUSTER)
    with _stand_ins():
        # Only renewing an OpenID token needs aiohttp here, which costs 100 ms and 12 MiB.
        openid = ModuleType(_OPENID)
        openid.__dict__.update(OpenIDRequestor=_openid_requestor)
        sys.modules[_OPENID] = openid
        return _with_limits(), importlib.import_module(_INCLUSTER)


def _with_limits() -> ModuleType:
    kube_config = importlib.import_module(f"{_CONFIG}.kube_config")
    kube_config.__dict__["ExecProvider"] = limited(kube_config.ExecProvider)
    # It logs errors before raising them: a duplicate, and the only line that shows the user's secrets.
    kube_config.logger.disabled = True
    kube_config.FileOrData._create_temp_file_with_content = _kept_in_a_file
    return kube_config


def _kept_in_a_file(_: Any, content: str | bytes) -> str:
    """Replaces the loader's own, which leaves each file open, keeps all for ever, and does not notice that
    one is gone, as when /tmp is cleared of old files. The loader deletes the remaining ones at exit.
    """
    data = content.encode() if isinstance(content, str) else content
    files: dict[str, str] = import_loaders()[0]._temp_files
    if not files:
        atexit.register(import_loaders()[0]._cleanup_temp_files)
    name = files.pop(str(data), "")
    if not os.path.isfile(name):
        descriptor, name = tempfile.mkstemp()
        with open(descriptor, "wb") as file:
            file.write(data)
    files[str(data)] = name
    while len(files) > _MAX_FILES:  # the least recently used
        with suppress(OSError):
            os.unlink(files.pop(next(iter(files))))
    return name


def import_client() -> ModuleType:
    """Imports all of kubernetes_asyncio.client; takes long, and may be called in a thread."""
    with _importing:
        return importlib.import_module(f"{_PACKAGE}.client")


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Empty packages with a path, so that modules below them can be imported; removed afterwards."""
    with _importing:
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ConfigError("the package kubernetes-asyncio is not installed")
        root = next(iter(spec.submodule_search_locations))
        before = {name: sys.modules.pop(name) for name in _ours_in(sys.modules)}
        try:
            for name, path in ((_PACKAGE, root), (f"{_PACKAGE}.client", os.path.join(root, "client"))):
                bare = ModuleType(name)
                bare.__path__ = [path]
                sys.modules[name] = bare
            client = sys.modules[f"{_PACKAGE}.client"]
            client.__dict__.update(Configuration=SimpleNamespace, ApiClient=object)
            sys.modules[_PACKAGE].__dict__["client"] = client
            yield
        finally:
            for name in _ours_in(sys.modules):
                del sys.modules[name]
            sys.modules.update(before)


def _ours_in(modules: Mapping[str, ModuleType]) -> list[str]:
    return [name for name in modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]


def _openid_requestor(*args: Any, **kwargs: Any) -> Any:
    """Loads kubernetes-asyncio's own requestor, once a token has to be renewed."""
    return _import_openid().OpenIDRequestor(*args, **kwargs)


@cache
def _import_openid() -> ModuleType:
    if _PACKAGE in sys.modules:
        return importlib.import_module(_OPENID)
    with _stand_ins():
        return importlib.import_module(_OPENID)


class Loaded(SimpleNamespace):
    """What a loader found; the names are those that kubernetes-asyncio's loaders set, except the last four.

    `files`: all files read; `renew_after_s`: None when only a changed file or a 401 makes it stale. `tried`:
    describes the credentials; `cure`: what to do when the server does not accept them.
    """

    host: str
    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    tls_server_name: str | None
    proxy: str | None
    api_key: dict[str, str]
    files: tuple[str, ...]
    renew_after_s: float | None
    tried: str
    cure: str


def blank() -> Loaded:
    """Nothing found yet."""
    return Loaded(
        host="",
        ssl_ca_cert=None,
        cert_file=None,
        key_file=None,
        verify_ssl=True,
        tls_server_name=None,
        proxy=None,
        api_key={},
        files=(),
        renew_after_s=None,
        tried="none",
        cure="give --kubeconfig with a user that the server knows",
        refresh_api_key_hook=None,
    )


def _any_exists(paths: str) -> bool:
    return any(map(os.path.exists, files_of(paths)))


def _why_absent(paths: str) -> str:
    """Explains why no file was found: perhaps this account may not look where they are."""
    for path in files_of(paths):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        except OSError as error:
            return f"cannot be read: {error.strerror}"
    return "the kubeconfig file does not exist"


def from_pod(environ: Mapping[str, str]) -> Loaded:
    """The service account that is mounted into this pod. Raises: ConfigError."""
    _, incluster = import_loaders()
    loaded = blank()
    loaded.tried = f"the service account's token {incluster.SERVICE_TOKEN_FILENAME}"
    loaded.cure = "delete the pod, so that kubelet gives the next one a new token"
    loaded.files = (incluster.SERVICE_TOKEN_FILENAME, incluster.SERVICE_CERT_FILENAME)
    try:
        incluster.InClusterConfigLoader(
            token_filename=incluster.SERVICE_TOKEN_FILENAME,
            cert_filename=incluster.SERVICE_CERT_FILENAME,
            environ=environ,
        ).load_and_set(loaded)
    except (incluster.ConfigException, OSError) as error:
        raise ConfigError(f"the pod's service account cannot be used: {error}") from None
    return loaded


async def from_kubeconfig(paths: str, context: str, *, needs_server: bool = True) -> Loaded:
    """Merges the files of a KUBECONFIG; runs credential plugins. Raises: ConfigError.

    `needs_server`: the server's address must be present too; else files that name nothing count as missing.
    """
    kube_config, _ = import_loaders()
    loaded = blank()
    if not _any_exists(paths):
        raise ConfigError(_why_absent(paths), source=paths)
    _check_files(paths)
    user: Any = None
    try:
        loader = kube_config._get_kube_config_loader_for_yaml_file(
            paths, active_context=context or None, persist_config=True
        )
        # Renewed OpenID tokens are written back; the loader passes an argument that its own method does not
        # take.
        save = loader._config_persister
        loader._config_persister = lambda _: save()
        user = loader._user
        if user is None:
            named = loader._current_context["context"].safe_get("user")
            if named:
                raise ValueError(f"there is no user {named!r}")
            # The loader requires a user; kubectl does not (for a server that allows anonymous access).
            loader._user = kube_config.ConfigNode("user", {})
        else:
            loader._user = user = settle(user, "user")
        loader._cluster = settle(loader._cluster, "cluster")
        if user is not None and "tokenFile" in user:
            read_regular(_token_file(loader, user), "token")  # the loader would read any file
        with anyio.fail_after(EXEC_TIMEOUT_S):
            await loader.load_and_set(loaded)
        loaded.files = _files(loader, user, loaded, paths)
        loaded.renew_after_s = _renew_after_s(loader, user, loaded)
        loaded.tried, loaded.cure = _shown(loader, user)
        if needs_server and not loaded.host:
            raise ValueError("the cluster has no server")
    except ConfigError:
        raise
    except Exception as error:
        # The loaders raise whatever a malformed file leads to: KeyError, TypeError, YAMLError and others.
        if not needs_server and not context and names_nothing(paths):
            return blank()
        find_mistake(paths, context, needs_server=needs_server)
        raise ConfigError(_explain(error, user), source=paths) from None
    return loaded


def _check_files(paths: str) -> None:
    """Raises: ConfigError for a file that is too long or that the loaders' parser cannot take."""
    for path in filter(os.path.exists, map(os.path.expanduser, filter(None, paths.split(os.pathsep)))):
        try:
            check_yaml(read_regular(path, "kubeconfig").decode())
        except ConfigError as error:
            raise ConfigError(error.message, source=path) from None
        except (OSError, ValueError, yaml.YAMLError):
            pass  # the loader reports it


def _files(loader: Any, user: Any, loaded: Loaded, paths: str) -> tuple[str, ...]:
    found = files_of(paths)
    if user is not None and "tokenFile" in user:
        found.append(_token_file(loader, user))
    found += [path for path in (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file) if path]
    return tuple(found)


def _token_file(loader: Any, user: Any) -> str:
    return str(os.path.join(loader._get_base_path(user.path), user["tokenFile"]))


def _shown(loader: Any, user: Any) -> tuple[str, str]:
    """Returns (the credentials in words, the cure if the server does not accept them)."""
    again = "it is read again, without a restart"
    if user is None:
        return "none: the context names no user", "name one of the kubeconfig's users in the context"
    name = loader._current_context["context"].safe_get("user")
    whose = f"of user {name!r} in {user.path}"
    if "exec" in user:
        command = (user.value.get("exec") or {}).get("command", "")
        return f"what the credential plugin {command!r} gave", "log in again, or run it by hand"
    if "auth-provider" in user:
        return f"the token of the auth-provider {whose}", f"log in again; {again}"
    if "tokenFile" in user:
        return f"the token in {user['tokenFile']}", f"write a valid token there; {again}"
    if "token" in user:
        return f"the token {whose}", f"write a valid one there; {again}"
    if "client-certificate" in user or "client-certificate-data" in user:
        return f"the client certificate {whose}", f"write a valid one there; {again}"
    if "username" in user:
        return f"the password {whose}", f"use a token or a client certificate; {again}"
    return f"none: there are none {whose}", f"write a token or a client certificate there; {again}"


def _explain(error: Exception, user: Any) -> str:
    text = _SECRETS.sub("", " ".join(str(error).split())) or type(error).__name__
    if isinstance(error, RecursionError):
        text = "exec: its answer is nested too deeply" if user is not None and "exec" in user else text
    if user is not None and "exec" in user:
        command = (user.value.get("exec") or {}).get("command", "")
        if isinstance(error, FileNotFoundError):
            return f"the credential plugin {command!r} was not found"
        if isinstance(error, TimeoutError):
            return f"the credential plugin {command!r} gave no answer in {EXEC_TIMEOUT_S:.0f} s"
        if text.startswith("exec:"):
            return f"the credential plugin {command!r} failed: {text.removeprefix('exec: ')[:500]}"
    return text[:500]


def _renew_after_s(loader: Any, user: Any, loaded: Loaded) -> float | None:
    if user is None:
        return None
    if "exec" in user:
        expiry = getattr(loader, "exec_plugin_expiry", None)
        if not isinstance(expiry, datetime) and loaded.cert_file:
            expiry = end_of_certificate(loaded.cert_file)  # a plugin need not state the certificate's end
        if not isinstance(expiry, datetime):
            return None
        # The only use of the wall clock: the plugin states expiry in it.
        return max((expiry - datetime.now(UTC)).total_seconds() - EXPIRY_SKEW_S, RETRY_S)
    return FILE_REFRESH_S if "auth-provider" in user else None


def end_of_certificate(path: str) -> datetime:
    """When the first certificate of a PEM file expires. Raises: OSError, ValueError."""
    from cryptography import x509  # 60 ms that most starts do not need

    return x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc
