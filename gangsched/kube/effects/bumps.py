"""Bumps: changes a pod's resource version, so that no Binding with an older one can succeed.

Lives here: the patch, what its answers mean, and retrying until the outcome is certain. Not here: which pods
to bump (the core, when it gives up a sent bind; kube.take_over, when another process led before). A patch
without a change does not change the version either, so each patch writes a value never written before.

| the answer | means |
|---|---|
| 2xx, the pod in it has no node | none of the binds sent before can land |
| 2xx, the pod in it has a node | one has landed |
| the API server itself says NotFound (kube.evidence) | the pod is gone |
| 409, 422 | another version, or another pod of that name: a GET tells which |
| anything else, or none | unknown: retry after a backoff |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from gangsched.errors import ApiError
from gangsched.kube import evidence
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.writes import bump_body, pod_path
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.watch.unparsed import read_pod_leniently
from gangsched.model.effects import BumpPod
from gangsched.model.events import Event, PodBumped
from gangsched.model.objects import Pod
from gangsched.model.text import bounded

_log = structlog.get_logger(__name__)

MAX_AT_ONCE = 16
_SAY_AFTER_TRIES = 3

_decode_pod = bounded.lenient_decoder(Pod)


class Bumps:
    """Bumps pods, a bounded number at once, over its own connections."""

    def __init__(self, client: ApiClient, *, emit_nowait: Callable[[Event], None], rng: Random) -> None:
        self._client = client.another()
        self._emit = emit_nowait
        self._rng = rng
        self._limit = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._group: TaskGroup | None = None
        self.n_open = 0
        """Bumps submitted and not answered."""
        self.n_sent = 0

    def submit(self, effect: BumpPod) -> None:
        """Queues a bump, which results in exactly one PodBumped, however late; `run` must be running."""
        if self._group is not None:
            self.n_open += 1
            self._group.start_soon(self._answer, effect)

    async def run(self) -> None:
        """Process submitted bumps until cancelled."""
        async with self._client, anyio.create_task_group() as group:
            self._group = group
            await anyio.sleep_forever()

    async def _answer(self, effect: BumpPod) -> None:
        self._emit(PodBumped(effect.uid, await self.bump(effect)))
        self.n_open -= 1

    async def bump_all(self, pods: Iterable[BumpPod]) -> None:
        """Returns when no bind sent earlier for any of these pods can succeed any more."""
        async with anyio.create_task_group() as group:
            for pod in pods:
                group.start_soon(partial(self.bump, pod))

    async def bump(self, effect: BumpPod) -> Pod | None:
        """The pod after the bump; None: it is gone."""
        backoff = Backoff(self._rng, first_s=0.05, max_s=2.0)
        n_tries = 0
        while True:
            try:
                async with self._limit:
                    return await self._try(effect)
            except (ApiError, msgspec.MsgspecError) as error:
                wait_s = backoff.next_s(error.retry_after_s if isinstance(error, ApiError) else None)
                n_tries += 1
                if n_tries >= _SAY_AFTER_TRIES:
                    about = f"{effect.namespace}/{effect.name}"
                    _log.warning(
                        "a pod's version cannot be changed; its room stays reserved",
                        pod=about,
                        err=str(error),
                    )
            await anyio.sleep(wait_s)

    async def _try(self, effect: BumpPod) -> Pod | None:
        """Raises: ApiError, MsgspecError, when the outcome is not certain yet."""
        self.n_sent += 1
        try:
            body = bump_body(effect, self._rng.randbytes(8).hex())
            return self._pod(effect, await self._client.patch(pod_path(effect, "status"), body))
        except ApiError as error:
            if _is_gone(error, effect):
                return None
            if error.code not in (409, 422):
                raise
            refusal = error
        try:
            now = self._pod(effect, await self._client.get(pod_path(effect)))
        except ApiError as error:
            if _is_gone(error, effect):
                return None
            raise
        if now is None or now.spec.node_name:
            return now
        raise refusal  # the pod exists and was changed concurrently

    def _pod(self, effect: BumpPod, body: bytes) -> Pod | None:
        """None: another pod has this name. Raises: ApiError, when the body is no such pod."""
        try:
            pod = _decode_pod(body)
        except msgspec.MsgspecError:
            pod = read_pod_leniently(body)
        meta = pod.metadata
        if (meta.namespace, meta.name) != (effect.namespace, effect.name) or not meta.uid:
            raise ApiError(f"an answer about {meta.namespace}/{meta.name}")
        return pod if meta.uid == effect.uid else None


def _is_gone(error: ApiError, effect: BumpPod) -> bool:
    return evidence.is_gone(error, evidence.pod(effect.namespace, effect.name))
