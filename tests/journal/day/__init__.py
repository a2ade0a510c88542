"""The recorded day: 2,000 gangs with everything in it, replayed by every run of the tests.

A scheduler's decisions are its product, and most changes must not alter one. So a day was simulated once, in
which each decision had its consequences (jobs run and end, victims leave, nodes fail), and what the core was
told is kept: journals as `--record` writes them, from empty cores on. The tests tell the core the same again
and compare what it decides, line by line, with `decisions.txt`. Inputs are kept, and not a seed, so that only
the core can alter a decision: neither the simulator nor Python's generator is part of the day.

    shapes      which gangs come: dialects, sizes, priorities, topologies, what they run for
    cluster     their nodes, and what happens to them; jobs that run and end
    making      schedulers in that cluster, recorded
    decisions   the core's answers as lines, and the first that differs
    accept      `make day`: makes the day again after a change that is meant to decide otherwise

After the first decision that differs the inputs are of another day, so one difference is shown, and the whole
of it is seen when the day has been made again: in what `make day` prints, and in the diff of decisions.txt.
"""
