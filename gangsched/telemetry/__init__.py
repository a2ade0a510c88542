"""Traces: one a gang, from its first member seen to its last bind, built by observing the core.

A scheduler without traces loads only `settings`. `tracer` makes spans from the core's events, effects and
Observer calls; `tail` holds spans of gangs that the ratio leaves out; `sending` is to a collector or a file;
`service` combines these; `showing` is in a terminal. Not here: metrics
(gangsched.web), decisions.

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
        Unreserve   Attempt        (no length)                 reservations released, and why
      Unwind        schedule gang  bound members are evicted   the last of them is gone

A lone pod's trace is named `schedule pod`. Only ended spans are exported, and children end before their
parents: for a waiting gang a reader sees spans without their parent, and Jaeger shows them side by side under
`<trace-without-root-span>`. A process that dies never exports its open spans. Pods that it bound carry
`gangsched.io/traceparent`, the context of the root: the process that completes or unwinds the gang continues
the same trace and ends the same root, so that it becomes one tree. A gang without a bound pod starts a new
trace in the new process; the old process' finished attempts stay without a root. (A gang that was never fully
bound cannot be distinguished from one that was and lost members in the same second: then both processes end
the root.)
"""
