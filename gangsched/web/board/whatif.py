"""What-if in the dashboard: where the job in a YAML text would go if it were submitted now.

Lives here: the request's bounds, one question at a time, what the copy of the process does with it (in_copy).
Not here: HTTP (pages), the trial itself (gangsched.whatif). It uses the scheduler's state, not the API
server's, so that reserved but unbound pods count. Nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from gangsched.command.snapshot import Snapshot
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ApiError, ConfigError
from gangsched.model.events import LeadershipGained
from gangsched.web.board.in_copy import CopyFailed, Found, in_copy
from gangsched.whatif.cluster import Classes, Cluster
from gangsched.whatif.files import read_documents
from gangsched.whatif.manifests import kinds_of, read_manifests
from gangsched.whatif.question import Asked, Question, check, examine

# Pure Python reads some 100 kB of YAML a second.
MAX_BYTES = 256 * 2**10
LIMIT_S = 20.0
_SOURCE = "the text"


class NotNow(Exception):
    """`code` 429: another question is being answered; 503: no answer is possible now."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


class WhatIf:
    """Answers one question at a time."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        priorities: Callable[[], Awaitable[Classes]],
        clock_s: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        limit_s: float = LIMIT_S,
    ) -> None:
        """`priorities`: the PriorityClasses, one of which may be the default of pods that name none."""
        self._scheduler = scheduler
        self._priorities = priorities
        self._clock_s = clock_s
        self._wall = wall
        self._limit_s = limit_s
        self._is_busy = False

    async def answer(self, body: bytes) -> Found:
        """Returns a whatif.answer.Answer as JSON. Raises: ConfigError (a mistake in the question); NotNow."""
        try:
            asked = msgspec.json.decode(body, type=Asked)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"the question cannot be read: {str(error)[:200]}") from None
        if not asked.yaml.strip():
            raise ConfigError(
                "is empty: paste the YAML of a Job, of pods, or of another object", source=_SOURCE
            )
        if self._is_busy:
            raise NotNow(429, "another question is being answered; ask again in a moment")
        self._is_busy = True
        try:
            cluster = Cluster(await self._priorities())
            return await in_copy(lambda: self._computed(asked, cluster), limit_s=self._limit_s)
        except ApiError as error:
            raise NotNow(503, f"the PriorityClasses cannot be read: {error}") from None
        except CopyFailed as error:
            raise NotNow(503, f"no answer: {error}; `gangsched whatif` asks the API server instead") from None
        finally:
            self._is_busy = False

    def _computed(self, asked: Asked, cluster: Cluster) -> bytes:
        """Runs in the copy, whose state it changes. Raises: ConfigError."""
        core, now_s = self._scheduler, self._clock_s()
        # Only the asked job may preempt in the trial, as in the command.
        core.shared.become_copy(allow_eviction=asked.preempt)
        core.handle([LeadershipGained()], now_s)  # so a standby answers as a leader would
        if not core.is_synced:
            raise CopyFailed("the scheduler has not read the whole cluster yet")
        snapshot = snapshot_of(core)
        documents = read_documents([(_SOURCE, asked.yaml)])
        manifests = read_manifests(documents, kinds_of(core), cluster, namespace=asked.namespace)
        manifests = check(
            manifests, snapshot, list(core.shared.profiles), way="correct it, or ask the one that serves it"
        )
        question = Question(asked.add_nodes, asked.like, asked.drain, asked.without, asked.preempt)
        return msgspec.json.encode(examine(question, snapshot, manifests, now_s, self._wall()))


def snapshot_of(core: Scheduler) -> Snapshot:
    """Returns the running scheduler's state in the form of a snapshot of lists."""
    cache = core.shared.cache
    nodes = tuple(node for node in cache.nodes.nodes if node is not None)
    return Snapshot(core, nodes, tuple(info.pod for info in cache.pods.values()), (), ())
