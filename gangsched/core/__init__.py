"""Floor 1: decisions and state, synchronous and pure; takes events, returns effects.

Packages, from the ground up; each imports only those above it in this list (contracts in pyproject.toml):

    types          plain values: arrays, changes, pod templates, groups and members, placements
    cache          the known state of the cluster, and trial copies of it
    framework      what a plugin is; a profile's plugins run in order
    cycle          one unit placed on a Trial, all or nothing
    preemption     the cheapest victims for a unit that does not fit
    queueing       how long groups run, and how often a waiting group was bypassed
    state          what one turn shares: SharedState, the queue, the tables of states, the reporter
    binding        from a permitted plan to bound pods, and releasing
    device_audit   compares records, annotations and kubelet's report; failing devices
    groups         the life of a group: members, numbers, attempts, waits
    turns          what happens to each event and deadline, in which order
    explaining     why a group does not run; frozen views for people and programs (reports)

`scheduler`, between the last two, is the interface to all: handle, advance, schedule. In `turns` it leaves
events to `event_handlers`, passed deadlines to `overdue` and the end of each turn to `turn`, both lists of
declared steps (`dirty`: what a step may mark); `parts` is the interface these see of it. Beside these are
`reconfigure` (a new configuration while running), `containment` (limits the cost of one object's fault) and
`invariants` (recounts what must hold).
"""
