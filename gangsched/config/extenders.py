"""Extenders: other programs that filter and score nodes over HTTP.

Lives here: the section, resolved and checked. Not here: the section as written (config.documents.extenders),
calling them (gangsched.extenders), and using their answers (core.groups.attempts.extenders). Called by
config. Sources: kubernetes `pkg/scheduler/apis/config/validation/validation.go` (validateExtenders),
`pkg/scheduler/extender.go`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gangsched.config.documents.extenders import ExtenderDocument, ManagedResource, TLSDocument
from gangsched.errors import ConfigError
from gangsched.model.resources import is_extended
from gangsched.model.text.names import is_qualified_name
from gangsched.reading.durations import duration_s, duration_text
from gangsched.reading.strict import join

DEFAULT_TIMEOUT_S = 5.0


class TLSSettings(msgspec.Struct, frozen=True):
    """verify: whether ca (or, without one, a public authority) must have signed the server's certificate."""

    verify: bool = True
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert: bytes = b""
    key: bytes = b""
    ca: bytes = b""


class ExtenderConfig(msgspec.Struct, frozen=True):
    """One extender. Verbs not configured are not called. managed: resources; none: it handles every pod."""

    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    node_cache_capable: bool = False
    managed: tuple[ManagedResource, ...] = ()
    ignorable: bool = False
    tls: TLSSettings | None = None
    document: ExtenderDocument | None = None

    @property
    def verbs(self) -> tuple[str, ...]:
        """Returns the verbs it is called with, for people."""
        asked = [
            ("filter", self.filter_verb),
            ("prioritize", self.prioritize_verb),
            ("bind", self.bind_verb),
        ]
        return tuple(name for name, verb in asked if verb)


def resolve_extenders(documents: Sequence[ExtenderDocument]) -> tuple[ExtenderConfig, ...]:
    """Raises: ConfigError."""
    found: list[ExtenderConfig] = []
    managed: set[str] = set()
    binder = ""
    for i, one in enumerate(documents):
        path = f"extenders[{i}]"
        _check_url(one.url_prefix, join(path, "urlPrefix"))
        if one.prioritize_verb and one.weight <= 0:
            raise ConfigError(f"{one.weight} is not greater than 0", path=join(path, "weight"))
        if one.preempt_verb:
            raise ConfigError(
                "is not there: extenders are not asked about victims; leave it out",
                path=join(path, "preemptVerb"),
            )
        if one.bind_verb:
            if binder:
                raise ConfigError(f"only one extender can bind, {binder} does", path=join(path, "bindVerb"))
            binder = path
        for k, resource in enumerate(one.managed_resources):
            where = join(path, f"managedResources[{k}].name")
            if not is_qualified_name(resource.name) or not is_extended(resource.name):
                raise ConfigError(f"{resource.name!r} is not the name of an extended resource", path=where)
            if resource.name in managed:
                raise ConfigError(f"{resource.name} is managed by an extender already", path=where)
            managed.add(resource.name)
        found.append(_resolve(one, path))
    return tuple(found)


def _resolve(one: ExtenderDocument, path: str) -> ExtenderConfig:
    timeout_s = duration_s(one.http_timeout, join(path, "httpTimeout"))
    if timeout_s < 0:
        raise ConfigError(f"{one.http_timeout} is less than 0", path=join(path, "httpTimeout"))
    return ExtenderConfig(
        one.url_prefix.rstrip("/"),
        one.filter_verb,
        one.prioritize_verb,
        one.weight if one.prioritize_verb else 0,
        one.bind_verb,
        timeout_s or DEFAULT_TIMEOUT_S,
        one.node_cache_capable,
        one.managed_resources,
        one.ignorable,
        _tls(one, join(path, "tlsConfig")),
        one,
    )


def _tls(one: ExtenderDocument, path: str) -> TLSSettings | None:
    """enableHTTPS without an authority means no verification, as in kube-scheduler."""
    tls = one.tls_config or TLSDocument()
    if bool(tls.cert_file or tls.cert_data) != bool(tls.key_file or tls.key_data):
        raise ConfigError("a certificate and its key are both needed, or neither", path=path)
    ca = _pem(tls.ca_data, join(path, "caData"))
    has_ca = bool(ca or tls.ca_file)
    if tls.insecure and has_ca:
        raise ConfigError("insecure and an authority exclude each other", path=path)
    return TLSSettings(
        not (tls.insecure or (one.enable_https and not has_ca)),
        tls.server_name,
        tls.cert_file,
        tls.key_file,
        tls.ca_file,
        _pem(tls.cert_data, join(path, "certData")),
        _pem(tls.key_data, join(path, "keyData")),
        ca,
    )


def _pem(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("is not base64", path=path) from None


def _check_url(url: str, path: str) -> None:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        fine = False
    if not fine:
        raise ConfigError(f"{url!r} is not the URL of an extender, as http://127.0.0.1:8888 is", path=path)


def effective_extender(one: ExtenderConfig) -> dict[str, Any]:
    """Returns the extender as in a file, with defaults; never shows a key."""
    document = one.document
    fields: dict[str, Any] = msgspec.to_builtins(document)
    fields["httpTimeout"] = duration_text(one.timeout_s)
    if document is not None and document.tls_config is not None and document.tls_config.key_data:
        fields["tlsConfig"]["keyData"] = ""
    return fields
