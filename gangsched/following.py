"""Following: the reflectors of all kinds that the scheduler watches, and which kinds are not listed yet.

Not here: how a kind is listed and watched (kube.watch.reflector). Called by the assembly, and by a reload
that follows more kinds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random

from anyio.abc import TaskGroup

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.client import ApiClient
from gangsched.kube.watch.decode import Kind, all_kinds, followed
from gangsched.kube.watch.reflector import Reflector, reading_pace
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model.events import Event, KindMissing, KindSynced


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
    ) -> None:
        """`watches`: kinds that plugins watch besides those always followed; `needed`: kinds that must be
        listed before the first decision.
        """
        self._client = client
        self._emit = emit
        self._rng = rng
        self._pace = reading_pace()
        self._everything: TaskGroup | None = None
        self.reflectors = {kind.name: self._reflector(kind) for kind in all_kinds(watches)}
        self.unheard = set(needed)

    @property
    def pods(self) -> WatchState:
        """The pods as the watch has shown them."""
        return self.reflectors["pods"].state

    def start(self, everything: TaskGroup) -> None:
        """Runs the reflectors, including those added later, in `everything`."""
        self._everything = everything
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

    def heard(self, events: Sequence[Event]) -> bool:
        """Takes in events; returns whether they complete the required lists."""
        if not self.unheard:
            return False
        for event in events:
            if isinstance(event, KindSynced | KindMissing):
                self.unheard.discard(event.kind)
        return not self.unheard

    def _reflector(self, kind: Kind) -> Reflector:
        return Reflector(self._client, kind, self._emit, rng=self._rng, pace=self._pace)
