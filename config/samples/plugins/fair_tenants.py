"""Fair by tenant: the namespace that holds the smallest share of the cluster has the next turn.

A namespace's share is the largest part of any one resource that its pods hold (dominant resource fairness),
divided by its weight. In a namespace priority and age decide. Each namespace is a lane, so a pod that comes
or goes costs one look at its namespace and not one at each gang that waits.

    gangsched scheduler --plugin config/samples/plugins/fair_tenants.py --config FILE

and, in every profile of FILE,
`plugins: {queueSort: {enabled: [{name: FairTenants}], disabled: [{name: PrioritySort}]}}`.
"""

import msgspec


class Args(msgspec.Struct, frozen=True):
    weights: dict[str, float] = {}  # by namespace; 1 where none is given
    resources: tuple[str, ...] = ()  # those that are shared; () for all


class FairTenants:
    name = "FairTenants"
    Args = Args

    def __init__(self, args):
        self.weights = args.weights
        self.resources = args.resources

    def sort_key(self, group):
        return (-group.priority, group.first_complete_s)

    def lane(self, group):
        return group.key.namespace

    def lane_key(self, first, view):
        share = view.dominant_share(first.key.namespace, *self.resources)
        return (share / self.weights.get(first.key.namespace, 1.0), first.first_complete_s)
