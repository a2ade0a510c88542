"""Watches one gang while a journal is replayed, as it may be gone at the end.

Lives here: finding it, its story, its explanation. Called by the command.
"""

from __future__ import annotations

from rich.console import Console

from gangsched.core.explaining.explain import explain
from gangsched.core.state.tables.groups import story
from gangsched.core.types.group import Group
from gangsched.journal.replay.replaying import Replay
from gangsched.model import events as ev
from gangsched.model.dialects.dialect import GroupKey
from gangsched.model.owners.dialects import INFERRED_DIALECTS
from gangsched.model.pod_group import DIALECTS
from gangsched.web.commands.explain import print_page
from gangsched.web.commands.story import print_story
from gangsched.web.pages.explanations import Page
from gangsched.web.pages.stories import moves_of, story_of

_MAX_KEPT = 100
_MAX_MOVES = 8


class Watched:
    """The groups of a name, in order of arrival; several lone pods may have used it in turn."""

    def __init__(self, name: str) -> None:
        namespace, _, rest = name.partition("/")
        names = [one.name for one in (*DIALECTS, *INFERRED_DIALECTS)]
        self._keys = [GroupKey(dialect, namespace, rest) for dialect in names]
        self._name = name
        self.groups: list[Group] = []

    def look(self, replay: Replay) -> None:
        """Call after each call of the core."""
        shared = replay.scheduler.shared
        for key in self._keys:
            self._keep(shared.groups.get(key))
        for event in replay.events:
            if isinstance(event, ev.PodAdded | ev.PodUpdated) and event.pod.key == self._name:
                info = shared.cache.pods.get(event.pod.metadata.uid)
                self._keep(None if info is None else info.group)

    def _keep(self, group: Group | None) -> None:
        if (
            group is not None
            and len(self.groups) < _MAX_KEPT
            and all(one is not group for one in self.groups)
        ):
            self.groups.append(group)


def print_stories(replay: Replay, watched: Watched, console: Console) -> int:
    """Prints the stories up to now; returns how many there are."""
    for group in watched.groups:
        print_story(story_of(group, replay.played.now_s, replay.ago_s), console)
    return len(watched.groups)


def print_explanation(replay: Replay, watched: Watched, console: Console) -> int:
    """Prints why the existing groups do not run; returns how many there are."""
    now_s = replay.played.now_s
    groups = [one for one in watched.groups if replay.scheduler.shared.groups.get(one.key) is one]
    for group in groups:
        moves = moves_of(story(group), group, replay.ago_s)[-_MAX_MOVES:]
        explanation = explain(replay.scheduler, group, now_s)
        print_page(Page(replay.scheduler.is_synced, explanation, tuple(moves), ""), console)
    return len(groups)
