"""One extender over HTTP: kube-scheduler's JSON out, its answer in, checked and of bounded size.

Lives here: the wire. Not here: which extenders are called in which order (asking.py). A reply is read up to
a limit and not parsed beyond it: an extender can drive a scheduler without one out of memory
(CVE-2025-32777). The limit follows from the question, as an answer repeats what it was asked: 64 MiB of the
smallest values would take 2 GiB and hold the loop for half a minute, longer than a lease lasts.
Sources: k8s.io/kube-scheduler `extender/v1/types.go`, kubernetes `pkg/scheduler/extender.go`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
import msgspec

from gangsched.config import ExtenderConfig
from gangsched.config.extenders import TLSSettings
from gangsched.errors import ConfigError, GangschedError
from gangsched.model.objects import Pod
from gangsched.model.text import bounded
from gangsched.model.text.printable import one_line

# Without a node cache of its own an extender answers with whole nodes, some 10 kB each.
MAX_REPLY = 64 * 2**20
# What an answer may have beyond twice its question: for itself, and for each node, with its name and reason.
_SPARE_BYTES, NODE_BYTES = 2**20, 4 * 2**10
_SPARE_VALUES, NODE_VALUES = 10_000, 64
_MAX_SAID = 512
# kube-scheduler's own end at 10; sums end here too.
_MAX_SCORE = 2**40
Json = dict[str, Any]
_decode = bounded.decoder(object, max_bytes=MAX_REPLY)


class _Limit(NamedTuple):
    """How much an answer may have; values: of JSON, counted by what separates them, also in texts."""

    n_bytes: int
    n_values: int


class ExtenderError(GangschedError):
    """The extender could not be called, or its answer is invalid; the message names it."""


class ExtenderRefused(ExtenderError):
    """The extender has answered with a refusal."""


class Filtered(msgspec.Struct, frozen=True):
    """nodes: those that passed, in the order of the answer; failed: the reasons of the others."""

    nodes: tuple[str, ...]
    failed: Mapping[str, str]


class Extender:
    """Client of one extender. Every method raises ExtenderError."""

    def __init__(self, config: ExtenderConfig) -> None:
        """Raises: ConfigError, for unusable certificates."""
        self.config = config
        self._tls = _context(config.tls, config.url) if config.url.startswith("https:") else None
        self._session: aiohttp.ClientSession | None = None

    async def filter(self, pod: Json, names: Sequence[str], nodes: Sequence[Json] | None) -> Filtered:
        """Asks which nodes pass. `nodes`: for an extender without a cache; else only names are sent."""
        reply = await self._ask(self.config.filter_verb, _arguments(pod, names, nodes), len(names))
        if not isinstance(reply, dict):
            raise self._error(f"answers {type(reply).__name__}, not an object")
        if error := _field(reply, "error"):
            raise self._error(f"says: {_short(error)}")
        found: object = _field(reply, "nodeNames")
        if not (self.config.node_cache_capable and found is not None):
            listed = _field(reply, "nodes")
            items = _field(listed, "items") if isinstance(listed, dict) else None
            found = [_name_of(one) for one in items] if isinstance(items, list) else []
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            raise self._error("answers nodes without names")
        asked = set(names)
        if stranger := next((one for one in found if one not in asked), None):
            raise self._error(f"answers node {_short(stranger)}, which it was not asked about")
        failed: dict[str, str] = {}
        for key in ("failedNodes", "failedAndUnresolvableNodes"):
            error = _field(reply, key)
            if isinstance(error, dict):
                failed.update({node: _short(why) for node, why in error.items() if node in asked})
        return Filtered(tuple(dict.fromkeys(found)), failed)

    async def prioritize(
        self, pod: Json, names: Sequence[str], nodes: Sequence[Json] | None
    ) -> dict[str, int]:
        """Returns its own scores by node, before its weight; only of the nodes sent."""
        reply = await self._ask(self.config.prioritize_verb, _arguments(pod, names, nodes), len(names))
        scores: dict[str, int] = {}
        asked = set(names)
        for one in reply if isinstance(reply, list) else ():
            host = _field(one, "host") if isinstance(one, dict) else None
            score = _field(one, "score") if isinstance(one, dict) else None
            # true is a number in Python alone.
            if not isinstance(host, str) or type(score) is not int or not 0 <= score <= _MAX_SCORE:
                raise self._error(f"answers the score {_short(one)}")
            if host in asked:
                scores[host] = min(scores.get(host, 0) + score, _MAX_SCORE)
        return scores

    async def bind(self, pod: Pod, node: str) -> None:
        """Returns once the pod is bound. Raises: ExtenderRefused; after other errors it may be bound."""
        meta = pod.metadata
        arguments = {
            "PodName": meta.name,
            "PodNamespace": meta.namespace,
            "PodUID": meta.uid,
            "Node": node,
        }
        reply = await self._ask(self.config.bind_verb, arguments)
        error = _field(reply, "error") if isinstance(reply, dict) else None
        if error:
            raise ExtenderRefused(f"extender {self.config.url} does not bind {pod.key}: {_short(error)}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _ask(self, verb: str, arguments: Json, n_nodes: int = 1) -> Any:
        url = f"{self.config.url}/{verb}"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self.config.timeout_s),
                trust_env=False,
                # A real one would keep whatever an extender sets, and send it back each time.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        question = msgspec.json.encode(arguments)
        limit = _limit(question, n_nodes)
        try:
            async with self._session.post(
                url,
                data=question,
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
                **self._tls_arguments(),
            ) as answer:
                if answer.status != 200:
                    raise self._error(f"answers {verb} with code {answer.status}")
                body = await self._body(answer, limit.n_bytes)
                if _n_values(body) > limit.n_values:
                    raise self._error(f"answers {verb} with more than {limit.n_values} values")
                return _decode(body)
        except TimeoutError:
            raise self._error(f"has not answered {verb} in {self.config.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, UnicodeError) as error:  # UnicodeError: of a host's name
            raise self._error(f"cannot be asked: {_short(error) or type(error).__name__}") from None
        except (bounded.TooLong, bounded.TooDeep) as error:
            raise self._error(f"answers {verb} with JSON that cannot be read: {_short(error)}") from None
        except msgspec.DecodeError as error:
            raise self._error(f"answers {verb} with something that is not JSON: {_short(error)}") from None

    async def _body(self, answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        n_bytes = 0
        async for part in answer.content.iter_chunked(2**16):
            n_bytes += len(part)
            if n_bytes > max_bytes:
                raise self._error(f"answers more than {max_bytes} bytes")
            parts.append(part)
        return b"".join(parts)

    def _tls_arguments(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        name = self.config.tls.server_name if self.config.tls is not None else ""
        return {"ssl": self._tls} | ({"server_hostname": name} if name else {})

    def _error(self, what: str) -> ExtenderError:
        return ExtenderError(f"extender {self.config.url} {what}")


def _arguments(pod: Json, names: Sequence[str], nodes: Sequence[Json] | None) -> Json:
    """ExtenderArgs; its fields have no JSON tags, so Go's field names are used."""
    if nodes is None:
        return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


def _limit(question: bytes, n_nodes: int) -> _Limit:
    """Returns how much the answer to this question may have."""
    n_bytes = 2 * len(question) + _SPARE_BYTES + n_nodes * NODE_BYTES
    return _Limit(min(n_bytes, MAX_REPLY), 2 * _n_values(question) + _SPARE_VALUES + n_nodes * NODE_VALUES)


def _n_values(text: bytes) -> int:
    """Returns at least the number of values in this JSON."""
    return text.count(b",") + text.count(b"[") + text.count(b"{") + 1


def _field(found: Mapping[str, Any], name: str) -> Any:
    """Go matches field names case-insensitively, and extenders rely on that."""
    if name in found:
        return found[name]
    return next((value for key, value in found.items() if key.lower() == name.lower()), None)


def _name_of(node: object) -> object:
    metadata = _field(node, "metadata") if isinstance(node, dict) else None
    return _field(metadata, "name") if isinstance(metadata, dict) else None


def _short(value: object) -> str:
    """Another program's text, shortened for use in one line."""
    text = one_line(" ".join(str(value)[: 4 * _MAX_SAID].split()))
    return text if len(text) <= _MAX_SAID else text[: _MAX_SAID - 1] + "…"


def _context(tls: TLSSettings | None, url: str) -> ssl.SSLContext:
    tls = tls or TLSSettings()
    try:
        context = ssl.create_default_context(
            cafile=tls.ca_file or None if not tls.ca else None, cadata=tls.ca.decode() or None
        )
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert or tls.key:
            _load_pair(context, tls)
        elif tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
        raise ConfigError(f"its certificates cannot be used: {error}", path=f"extender {url}") from None
    return context


def _load_pair(context: ssl.SSLContext, tls: TLSSettings) -> None:
    """OpenSSL reads certificates from files only; this one is in memory and readable only by us."""
    descriptor = os.memfd_create("extender")
    try:
        cert = tls.cert or _read(tls.cert_file)
        key = tls.key or _read(tls.key_file)
        os.write(descriptor, cert + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
