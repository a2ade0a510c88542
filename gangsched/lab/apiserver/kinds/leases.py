"""Leases. Source: pkg/apis/coordination/validation/validation.go and pkg/registry/coordination/lease of
Kubernetes 1.37."""

from __future__ import annotations

from gangsched.api_rules.status import FieldProblem, invalid_value
from gangsched.lab.apiserver.strategy import Context, Object, Strategy


class LeaseStrategy(Strategy):
    """A PUT must state the resourceVersion, which makes a lease a lock."""

    creates_on_update = True
    allows_unconditional_update = False

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _prepare(obj)

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        _prepare(new)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        problems = []
        spec = new["spec"]
        if (duration_s := spec.get("leaseDurationSeconds")) is not None and duration_s <= 0:
            problems.append(invalid_value("spec.leaseDurationSeconds", duration_s, "must be greater than 0"))
        if (transitions := spec.get("leaseTransitions")) is not None and transitions < 0:
            problems.append(
                invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
            )
        return problems


def _prepare(lease: Object) -> None:
    spec = lease.get("spec") or {}
    # For coordinated leader election, whose feature gate is off.
    lease["spec"] = {key: value for key, value in spec.items() if key not in ("strategy", "preferredHolder")}
