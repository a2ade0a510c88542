"""`gangsched import`: days of other schedulers as journals, which are replayed and asked like recorded ones.

    jobs        a workload's jobs on nodes, decided by the real core in virtual time and written down
    kubernetes  an audit log, or a list of pods and nodes, into what became of each pod
    history     that, written down as by a scheduler that only follows
    nodes       what nodes there are: a number of equal ones, or a list
    writing     records of a journal into a file, as fast as they come
    command     `gangsched import`

Not here: reading the formats of workloads (lab.bench.queueing.traces.traces and sacct, which the bench reads
too).
"""
