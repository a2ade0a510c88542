"""Bumps: changes an object's resource version, so that no write with an older one can succeed.

Lives here: what a patch's answers mean, and retrying until the outcome is certain; for pods, whose Bindings
carry their version, and for ResourceClaims, whose patches do. Not here: what to bump (the core, when it gives
up what it has sent; kube.take_over, when another process led before). A patch without a change does not
change the version either, so each patch writes a value never written before.

| the answer | means |
|---|---|
| 2xx | none of the writes sent before can land; what has landed is in the object |
| the API server itself says NotFound (kube.evidence) | the object is gone |
| 409, 422 | another version, or another object of that name: a GET tells which; a pod with a node is done |
| 422, and it is that object | it takes no such patch: retry with another kind |
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
from gangsched.kube.effects.claim_writes import claim_application, claim_path, claim_target, read_claim
from gangsched.kube.effects.writes import bump_body, pod_path
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.transport.http1 import APPLY_PATCH, MERGE_PATCH
from gangsched.kube.watch.unparsed import read_pod_leniently
from gangsched.model.effects import BumpClaim, BumpPod
from gangsched.model.events import ClaimBumped, Event, PodBumped
from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import ResourceClaim
from gangsched.model.text import bounded

_log = structlog.get_logger(__name__)

MAX_AT_ONCE = 16
_SAY_AFTER_TRIES = 3

Bump = BumpPod | BumpClaim
MaySkip = Callable[[Bump, ApiError], bool]

_decode_pod = bounded.lenient_decoder(Pod)


def _never(effect: Bump, error: ApiError) -> bool:
    return False


class Bumps:
    """Bumps objects, a bounded number at once, over its own connections."""

    def __init__(self, client: ApiClient, *, emit_nowait: Callable[[Event], None], rng: Random) -> None:
        self._client = client.another()
        self._emit = emit_nowait
        self._rng = rng
        self._limit = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._group: TaskGroup | None = None
        self.n_open = 0
        """Bumps submitted and not answered."""
        self.n_sent = 0

    def submit(self, effect: Bump) -> None:
        """Queues a bump, which results in exactly one PodBumped or ClaimBumped, however late; `run` must be
        running.
        """
        if self._group is not None:
            self.n_open += 1
            self._group.start_soon(self._answer, effect)

    async def run(self) -> None:
        """Process submitted bumps until cancelled."""
        async with self._client, anyio.create_task_group() as group:
            self._group = group
            await anyio.sleep_forever()

    async def _answer(self, effect: Bump) -> None:
        found = await self.bump(effect)
        if isinstance(effect, BumpClaim):
            assert not isinstance(found, Pod)
            self._emit(ClaimBumped(effect.uid, found))
        else:
            assert not isinstance(found, ResourceClaim)
            self._emit(PodBumped(effect.uid, found))
        self.n_open -= 1

    async def bump_all(self, effects: Iterable[Bump], *, may_skip: MaySkip = _never) -> None:
        """Returns when no write sent earlier for any of these objects can succeed any more.

        may_skip: whether an object is left as it is after this answer.
        """
        async with anyio.create_task_group() as group:
            for effect in effects:
                group.start_soon(partial(self.bump, effect, may_skip=may_skip))

    async def bump(self, effect: Bump, *, may_skip: MaySkip = _never) -> Pod | ResourceClaim | None:
        """The object after the bump; None: it is gone, or skipped."""
        backoff = Backoff(self._rng, first_s=0.05, max_s=2.0)
        n_tries = 0
        is_refused = False
        while True:
            try:
                async with self._limit:
                    return await self._try(effect, is_refused=is_refused)
            except (ApiError, msgspec.MsgspecError) as error:
                wait_s = backoff.next_s(error.retry_after_s if isinstance(error, ApiError) else None)
                n_tries += 1
                if isinstance(error, ApiError):
                    if may_skip(effect, error):
                        return None
                    is_refused = error.code == 422
                if n_tries >= _SAY_AFTER_TRIES:
                    _say(effect, error)
            await anyio.sleep(wait_s)

    async def _try(self, effect: Bump, *, is_refused: bool) -> Pod | ResourceClaim | None:
        """Raises: ApiError, MsgspecError, when the outcome is not certain yet."""
        self.n_sent += 1
        try:
            path, body, kind = _patch(effect, self._rng.randbytes(8).hex(), is_refused=is_refused)
            return _read(await self._client.patch(path, body, content_type=kind), effect)
        except ApiError as error:
            if _is_gone(error, effect):
                return None
            if error.code not in (409, 422):
                raise
            refusal = error
        try:
            now = _read(await self._client.get(_path(effect)), effect)
        except ApiError as error:
            if _is_gone(error, effect):
                return None
            raise
        if now is None or (isinstance(now, Pod) and now.spec.node_name):
            return now
        raise refusal  # it exists, and was changed concurrently or takes no such patch


def _path(effect: Bump) -> str:
    return claim_path(effect) if isinstance(effect, BumpClaim) else pod_path(effect)


def _patch(effect: Bump, mark: str, *, is_refused: bool) -> tuple[str, bytes, str]:
    """The path, body and kind of the patch.

    is_refused: the usual one was. All annotations of an object may be 256 KiB, and its owner may have written
    as much; of labels there may be any number. Nor can a claim be patched at all whose parameters are
    stored in another form than the API server writes. Its status can: applied without a field, as a manager
    of a new name, it is changed by that name alone.
    """
    if isinstance(effect, BumpPod):
        return pod_path(effect, "status"), bump_body(effect, mark, as_label=is_refused), MERGE_PATCH
    if is_refused:
        path = f"{claim_path(effect, 'status')}?fieldManager=gangsched-{mark}"
        return path, claim_application(effect), APPLY_PATCH
    return claim_path(effect), bump_body(effect, mark), MERGE_PATCH


def _read(body: bytes, effect: Bump) -> Pod | ResourceClaim | None:
    """None: another object has this name. Raises: ApiError, when the body is no such object."""
    return read_claim(body, effect) if isinstance(effect, BumpClaim) else _read_pod(body, effect)


def _read_pod(body: bytes, effect: BumpPod) -> Pod | None:
    try:
        pod = _decode_pod(body)
    except msgspec.MsgspecError:
        pod = read_pod_leniently(body)
    meta = pod.metadata
    if (meta.namespace, meta.name) != (effect.namespace, effect.name) or not meta.uid:
        raise ApiError(f"an answer about {meta.namespace}/{meta.name}")
    return pod if meta.uid == effect.uid else None


def _is_gone(error: ApiError, effect: Bump) -> bool:
    return evidence.is_gone(error, target_of(effect))


def target_of(effect: Bump) -> evidence.Target:
    """The object that is bumped."""
    if isinstance(effect, BumpClaim):
        return claim_target(effect)
    return evidence.pod(effect.namespace, effect.name)


def _say(effect: Bump, error: Exception) -> None:
    about, err = f"{effect.namespace}/{effect.name}", str(error)
    if isinstance(effect, BumpClaim):
        _log.warning(
            "a resource claim's version cannot be changed; its devices stay reserved", claim=about, err=err
        )
    else:
        _log.warning("a pod's version cannot be changed; its room stays reserved", pod=about, err=err)
