"""Following: the reflectors of all kinds that the scheduler watches, and which kinds are not listed yet.

Not here: how a kind is listed and watched (kube.watch.reflector). Called by the assembly, and by a reload
that follows more kinds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random

import msgspec
import structlog
from anyio.abc import TaskGroup

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.client import ApiClient
from gangsched.kube.same_cluster import SameCluster
from gangsched.kube.version import version_of
from gangsched.kube.watch.decode import Kind, all_kinds, followed
from gangsched.kube.watch.newer import DOCUMENT, NEWEST, newer_fields
from gangsched.kube.watch.reflector import Reflector, reading_pace
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model.events import Event, KindMissing, KindSynced
from gangsched.model.resource_claims.objects import CLAIMS

# A server that does not answer in time is followed all the same.
_ASKED_S = 5.0
_log = structlog.get_logger(__name__)


class Following:
    """The followed kinds, by name."""

    def __init__(
        self,
        client: ApiClient,
        emit: Callable[[Sequence[Event]], Awaitable[None]],
        *,
        rng: Random,
        watches: Collection[str],
        needed: Collection[str],
        replaced: Callable[[], None],
    ) -> None:
        """`watches`: kinds that plugins watch besides those always followed; `needed`: kinds that must be
        listed before the first decision. `replaced`: called once, when another cluster answers.
        """
        self._client = client
        self._emit = emit
        self._rng = rng
        self._pace = reading_pace()
        self._same_cluster = SameCluster(replaced)
        self._everything: TaskGroup | None = None
        self.reflectors = {kind.name: self._reflector(kind) for kind in all_kinds(watches)}
        self.unlisted = set(needed)

    @property
    def pods(self) -> WatchState:
        """The pods as the watch has shown them."""
        return self.reflectors["pods"].state

    @property
    def claims(self) -> WatchState | None:
        """The resource claims as the watch has shown them; None: they are not followed."""
        reflector = self.reflectors.get(CLAIMS)
        return None if reflector is None else reflector.state

    @property
    def is_of_another(self) -> bool:
        """Whether all that is known is of a cluster that no longer answers."""
        return self._same_cluster.is_another

    async def look_for_newer_fields(self) -> None:
        """Asks a newer API server than is known which fields its pods have; not if it does not answer."""
        reader = self.reflectors["pods"].kind.reader
        try:
            found, _ = version_of(await self._client.get("/version", timeout_s=_ASKED_S))
        except ApiError:
            return  # the watches meet the same, and report it
        if found <= NEWEST or reader is None:
            return
        try:
            reader.newer = newer_fields(await self._client.get(DOCUMENT, timeout_s=_ASKED_S))
        except (ApiError, msgspec.MsgspecError) as error:
            _log.info(
                "whether the API server has fields that this version does not is unknown", err=str(error)
            )

    def start(self, everything: TaskGroup) -> None:
        """Runs the reflectors, including those added later, in `everything`."""
        self._everything = everything
        everything.start_soon(self._same_cluster.run, self._client)
        for reflector in self.reflectors.values():
            everything.start_soon(reflector.run)

    def add(self, kinds: Sequence[str]) -> None:
        """Follows these kinds too."""
        for name in kinds:
            self.reflectors[name] = reflector = self._reflector(followed(name))
            if self._everything is not None:
                self._everything.start_soon(reflector.run)

    async def may_follow(self, kinds: Sequence[str]) -> None:
        """Raises: ConfigError, if the API server does not let us list one of them."""
        for name in kinds:
            kind = followed(name)
            path = kind.path(kind.versions[0] if kind.versions else "v1")
            try:
                await self._client.get(path, {"limit": "1"})
            except ApiError as error:
                if error.code == 403 and error.subject is not None:
                    raise ConfigError(
                        f"its plugins read {name}, which the scheduler may not: {error}"
                    ) from None

    def note_lists(self, events: Sequence[Event]) -> bool:
        """Takes in events; returns whether they complete the required lists."""
        if not self.unlisted:
            return False
        for event in events:
            if isinstance(event, KindSynced | KindMissing):
                self.unlisted.discard(event.kind)
        return not self.unlisted

    def _reflector(self, kind: Kind) -> Reflector:
        return Reflector(
            self._client, kind, self._emit, rng=self._rng, pace=self._pace, same_cluster=self._same_cluster
        )
