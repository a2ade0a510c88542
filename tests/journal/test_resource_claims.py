"""Resource claims in a journal: events are read as written, and a core goes on from what it remembered."""

from __future__ import annotations

import msgspec

from gangsched.config import Settings, default_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.core.turns.steps import Defect
from gangsched.journal.records import encoded_events, read_events
from gangsched.journal.state import Given, read_state, write_state
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.plugins import IN_TREE, build_profiles
from tests.core.claims import DRIVER, ClaimCluster, wish


def _raises(defect: Defect) -> None:
    raise AssertionError(defect)


GIVEN = Given(None, first_of, _raises)


def _build(given: Given) -> Scheduler:
    profiles = build_profiles(default_config(IN_TREE))
    return Scheduler(profiles, Settings(), wall_ahead_s=0.0, **given._asdict())


class Noted(ClaimCluster):
    """Keeps what the core is told."""

    def __init__(self) -> None:
        self.noted: list[ev.Event] = []
        super().__init__(make=lambda settings: _build(GIVEN))

    def tell(self, *events: ev.Event) -> Noted:
        self.noted += events
        super().tell(*events)
        return self


def _busy() -> Noted:
    """Claims with parameters, selectors that match, fail, and compile to what keeps functions; one is being
    written."""
    c = Noted()
    c.offer("n", "m", gpus_each=4)
    c.claim_answer = lambda patch: "hold" if patch.is_status and patch.name == "q-gpu" else "ok"
    spec = wish(2, f"device.attributes['{DRIVER}'].model.matches('H.*')")
    spec["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]
    c.submit(
        c.want("p", spec), c.want("q", spec), c.want("r", wish(1, "device.attributes['x'].y == 1"))
    ).run()
    assert c.n_bound() == 1
    assert c.held_patches
    return c


def test_events_of_claims_are_read_as_they_were_written() -> None:
    c = _busy()
    assert any(isinstance(one, ev.ClaimPatched) for one in c.noted)
    assert read_events(msgspec.Raw(encoded_events(c.noted))) == c.noted


def test_a_core_goes_on_from_what_it_remembered_of_claims() -> None:
    c = _busy()
    after = _build(GIVEN)
    read_state(write_state(c.scheduler, _build), after, GIVEN)
    after.validate()
    [held] = c.held_patches
    assert c.land(held)
    claim = c.scheduler.shared.cache.claims.claims[held.uid]
    answer = ev.ClaimPatched(held.uid, held.ticket, claim)
    put = ev.ObjectPut("resourceclaims.resource.k8s.io", claim)
    found = [one for event in (put, answer) for one in after.handle([event], c.now_s)]
    assert [one.name for one in found if isinstance(one, ef.BindPod)] == ["q"]
