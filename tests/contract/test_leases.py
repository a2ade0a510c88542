"""Leases, as leader election uses them."""

from __future__ import annotations

from tests.contract.api import Api, Json

GROUP = "/apis/coordination.k8s.io/v1"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def lease(holder: str, **spec: object) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "gangsched"},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.000006Z",
            "renewTime": "2026-01-02T03:04:05.000006Z",
            "leaseTransitions": 0,
            **spec,
        },
    }


def test_only_one_of_two_takes_a_lease(api: Api) -> None:
    path = api.at("leases", "gangsched", group=GROUP)
    api.get(path).no(404, "NotFound", 'leases.coordination.k8s.io "gangsched" not found')
    made = api.post(api.at("leases", group=GROUP), lease("one")).ok(201)
    assert made["spec"] == lease("one")["spec"]
    api.post(api.at("leases", group=GROUP), lease("two")).no(
        409, "AlreadyExists", 'leases.coordination.k8s.io "gangsched" already exists'
    )
    taken = api.put(path, {**made, "spec": lease("one", leaseTransitions=1)["spec"]}).ok()
    api.put(path, {**made, "spec": lease("two")["spec"]}).no(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on leases.coordination.k8s.io "gangsched": {MODIFIED}',
    )
    assert api.get(path).ok() == taken


def test_a_lease_is_given_back(api: Api) -> None:
    path = api.at("leases", "gangsched", group=GROUP)
    made = api.post(api.at("leases", group=GROUP), lease("one")).ok(201)
    given = {**made["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
    back = api.put(path, {**made, "spec": given}).ok()
    assert back["spec"]["holderIdentity"] == ""


def test_leases_that_are_refused(api: Api) -> None:
    answer = api.post(api.at("leases", group=GROUP), lease("one", leaseDurationSeconds=0))
    answer.no(
        422,
        "Invalid",
        'Lease.coordination.k8s.io "gangsched" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0',
    )
    answer = api.post(api.at("leases", group=GROUP), lease("one", renewTime="yesterday"))
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert 'Lease in version "v1" cannot be handled as a Lease' in answer.body["message"]


def test_a_lease_that_was_deleted_is_not_renewed(api: Api) -> None:
    path = api.at("leases", "l", group=GROUP)
    held = api.post(api.at("leases", group=GROUP), {"metadata": {"name": "l"}, "spec": {}}).ok(201)
    api.delete(path).ok()
    for version in (held["metadata"].pop("resourceVersion"), ""):
        answer = api.put(path, {**held, "metadata": {**held["metadata"], "resourceVersion": version}})
        assert (answer.code, answer.body["reason"]) == (409, "Conflict")
        says = f"Precondition failed: UID in precondition: {held['metadata']['uid']}, UID in object meta: "
        assert answer.body["message"].endswith(says)
    assert api.get(path).code == 404
