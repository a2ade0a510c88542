"""Asking: carries out AskExtenders, with exactly one answer each, whatever happens.

As kube-scheduler does: Filters one after the other, each with the nodes that the previous one left; then all
scores at once, if more than one node is left. A failing extender that may be ignored is skipped; one that may
not ends the attempt with its name. A failing score is always left out. Lives here: which extenders to call,
and what they are shown: the pod, and, for those without a cache, the nodes as the API server has them. Not
here: the wire (client.py). Called by process.app. Source: kubernetes `pkg/scheduler/schedule_one.go`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

import anyio
import structlog

from gangsched.config import ExtenderConfig
from gangsched.core.groups.attempts.extenders import ExtenderVerdicts, Interest
from gangsched.errors import ApiError
from gangsched.extenders.binder import ExtenderBinder
from gangsched.extenders.client import Extender, ExtenderError
from gangsched.kube.client import ApiClient
from gangsched.model.effects import AskExtenders, Effect
from gangsched.model.events import Event, ExtendersAnswered
from gangsched.model.text import bounded

_log = structlog.get_logger(__name__)

# Groups processed at once; the others wait as data.
N_AT_ONCE = 16
# The core waits as long as the extenders may take, and this (core.groups.attempts.extenders). A request that
# has waited longer would be answered too late, and make the next one late: its group asks again later
# instead.
LONGEST_WAIT_S = 30.0
# An outage of an extender is logged once in this time.
_SAY_AGAIN_S = 10.0
# A double can hold it exactly, and JSON's readers can.
_MAX_TOTAL = 2**53
Json = dict[str, Any]
_decode = bounded.lenient_decoder(dict[str, Any])


class Asking:
    """`taken` never blocks; `run()` must be running for any request to be sent."""

    def __init__(
        self,
        configs: Sequence[ExtenderConfig],
        client: ApiClient,
        put: Callable[[Sequence[Event]], Awaitable[None]],
    ) -> None:
        """`put` takes the answers. Raises: ConfigError, for unusable certificates."""
        self._extenders = [Extender(one) for one in configs]
        self.verdicts = verdicts_of(configs, self._extenders)
        """The plugin for the profiles."""
        self._client = client
        self._put = put
        self._waiting: deque[tuple[float, AskExtenders]] = deque()
        """Requests, each with the time since which it waits."""
        self._news = asyncio.Event()
        self._logged_s: dict[str, float] = {}

    def taken(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        """Removes its own effects from a turn's effects and returns the others."""
        asked = [effect for effect in effects if isinstance(effect, AskExtenders)]
        if not asked:
            return effects
        now_s = monotonic()
        self._waiting += [(now_s, effect) for effect in asked]
        self._news.set()
        return [effect for effect in effects if not isinstance(effect, AskExtenders)]

    async def run(self) -> None:
        """Processes requests until cancelled."""
        try:
            async with anyio.create_task_group() as group:
                for _ in range(N_AT_ONCE):
                    group.start_soon(self._work)
        finally:
            with anyio.CancelScope(shield=True):
                for one in self._extenders:
                    await one.close()

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            since_s, effect = self._waiting.popleft()
            try:
                if monotonic() - since_s > LONGEST_WAIT_S:
                    raise ExtenderError(f"extenders are too slow: not asked within {LONGEST_WAIT_S:g} s")
                answer = await self._answer(effect)
            except (ExtenderError, ApiError) as error:
                self._say(str(error))
                answer = ExtendersAnswered(effect.ticket, error=str(error))
            except Exception as error:  # a bug of ours must not leave the group waiting for ever
                _log.exception("asking extenders failed", pod=f"{effect.namespace}/{effect.name}")
                answer = ExtendersAnswered(effect.ticket, error=f"asking extenders failed: {error}")
            await self._put([answer])

    async def _answer(self, effect: AskExtenders) -> ExtendersAnswered:
        """Asks the extenders. Raises: ExtenderError (of one that may not be ignored), ApiError."""
        wanted = [self._extenders[i] for i in effect.extenders]
        pod = await self._pod(effect)
        everything: dict[str, Json] = {}
        if any(not one.config.node_cache_capable for one in wanted):
            everything = await self._nodes()
        names: tuple[str, ...] = effect.nodes
        failed: dict[str, str] = {}
        for one in wanted:
            if not one.config.filter_verb or not names:
                continue
            try:
                left = await one.filter(pod, names, _shown(one, names, everything))
            except ExtenderError as error:
                if not one.config.ignorable:
                    raise
                self._say(f"{error}; it is ignored")
                continue
            failed |= {name: left.failed.get(name, "") for name in names if name not in left.nodes}
            names = left.nodes
        scores = await self._scores(wanted, pod, names, everything) if len(names) > 1 else {}
        return ExtendersAnswered(effect.ticket, "", names, failed, scores)

    async def _scores(
        self, wanted: Sequence[Extender], pod: Json, names: Sequence[str], everything: dict[str, Json]
    ) -> dict[str, int]:
        """Returns the weighted sum over extenders."""
        asked = [one for one in wanted if one.config.prioritize_verb]
        found = await asyncio.gather(
            *(one.prioritize(pod, names, _shown(one, names, everything)) for one in asked),
            return_exceptions=True,
        )
        total: dict[str, int] = {}
        for one, scores in zip(asked, found, strict=True):
            if isinstance(scores, ExtenderError):
                self._say(f"{scores}; its scores are left out")
            elif isinstance(scores, BaseException):
                raise scores
            else:
                for name, score in scores.items():
                    total[name] = min(total.get(name, 0) + score * one.config.weight, _MAX_TOTAL)
        return total

    async def _pod(self, effect: AskExtenders) -> Json:
        body = await self._client.get(f"/api/v1/namespaces/{effect.namespace}/pods/{effect.name}")
        pod = _decode(body)
        if pod["metadata"]["uid"] != effect.uid:
            raise ApiError("another pod has its name now", code=404, reason="NotFound")
        # kube-scheduler does not send them either.
        pod["metadata"].pop("managedFields", None)
        pod.pop("kind", None)
        pod.pop("apiVersion", None)
        return pod

    async def _nodes(self) -> dict[str, Json]:
        """Lists nodes from the API server's own cache: thousands of them cost no read of etcd."""
        body = await self._client.get("/api/v1/nodes", {"resourceVersion": "0"})
        items = _decode(body)["items"]
        return {node["metadata"]["name"]: node for node in items}

    def _say(self, what: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s.get(what, float("-inf")) >= _SAY_AGAIN_S:
            self._logged_s = {text: at for text, at in self._logged_s.items() if now_s - at < _SAY_AGAIN_S}
            self._logged_s[what] = now_s
            _log.warning(what)


def verdicts_of(configs: Sequence[ExtenderConfig], clients: Sequence[Extender] = ()) -> ExtenderVerdicts:
    """The extenders' plugin; without their clients it decides the same, and can bind nothing."""
    interests = [_interest(one) for one in configs]
    binders = [
        ExtenderBinder(clients[at] if clients else None, one, interests[at])
        for at, one in enumerate(configs)
        if one.bind_verb
    ]
    return ExtenderVerdicts(interests, next(iter(binders), None))


def _interest(one: ExtenderConfig) -> Interest:
    managed = frozenset(resource.name for resource in one.managed)
    return Interest(one.url, managed, one.timeout_s, is_asked=bool(one.filter_verb or one.prioritize_verb))


def _shown(one: Extender, names: Sequence[str], everything: dict[str, Json]) -> list[Json] | None:
    if one.config.node_cache_capable:
        return None
    return [everything[name] for name in names if name in everything]
