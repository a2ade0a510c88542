"""Traces: one a gang, from its first member seen to its last bind, made at the edge from what the core does.

`settings` is all that a scheduler without traces loads; `tracer` makes spans of the core's events, effects
and Observer calls; `export` brings them to a collector or into a file, `service` ties these together;
`reading` and `waterfall` show them in a terminal. Not here: metrics (gangsched.web), deciding anything.

    span            parent         from                        to
    ──────────────  ─────────────  ──────────────────────────  ────────────────────────────────────────────
    schedule gang   none           its first member is seen    bound whole, or its last member is gone
      Gathering     schedule gang  a member is missing         all are here
      Attempt       schedule gang  it stands in line           bound, given back or rejected
        Queue wait  Attempt        it stands in line           its turn
        Cycle       Attempt        its turn                    the decision
          PreFilter, Filter, Score, Reserve, Permit            (a point called for each template is one span)
        Permit wait Attempt        everything is reserved      allowed, or given back
        Bind        Attempt        the first Binding leaves    every answer is here; an event a member
        Unreserve   Attempt        (no length)                 what was given back, and why
      Unwind        schedule gang  bound members are evicted   the last of them is gone

A lone pod's trace is named `schedule pod`. Only ended spans are exported, and children end before their
parents: what a reader sees of a gang that still waits are parts whose parent has not come yet, and Jaeger
shows them side by side under `<trace-without-root-span>`. A process that dies leaves its open spans untold.
What was bound by it carries `gangsched.io/traceparent`, the context of the root: whoever completes or
unwinds that gang goes on in the same trace and ends the same root, so that it is one tree again. A gang of
which nothing was bound starts a new trace with a new process; what the old one had told of it, the waits
of attempts that are over, stays behind without a root. (Nobody can tell a gang that never was whole from
one that was and lost members in the same second: then the root is ended twice, once by each process.)
"""
