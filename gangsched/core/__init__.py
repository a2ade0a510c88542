"""Floor 1: decisions and state, synchronous and pure; told of events, answers with effects.

Rooms, from the ground up; each imports those before it and none behind it (contracts in pyproject.toml):

    types          plain values: arrays, changes, pod templates, groups and members, placements
    cache          the cluster as it is believed to be, and copies of it to try on
    framework      what a plugin is; a profile's plugins run in order
    cycle          one unit placed on a Trial, all or nothing
    preemption     the cheapest victims for a unit that does not fit
    state          what one turn shares: SharedState, the queue, the table of states, the reporter
    binding        from a permitted plan to bound pods, and giving back
    device_audit   books, annotations and kubelet's word compared; devices that fail
    groups         the life of a group: members, numbers, attempts, waits

`scheduler` is the face of all: handle, advance, schedule. Beside it `reconfigure` (another configuration
while running), `containment` (what one object's fault may cost), `invariants` (promises recounted) and
`reports` (frozen views for people and programs).
"""
