"""Whole scheduler processes in virtual time, on bytes in memory.

Lives here: a loop whose time moves when nothing is left to do (loop), a network of sockets in memory with
cuts, delays and silences anywhere (network), an API server at its other end that speaks HTTP and obeys the
embedded server's rules (server), the faults between them (weather), a small busy cluster (cluster), the
invariants (judge), and one seed's run (run). Not here: the core alone, fed with events instead of bytes,
which is far faster and finds more of the core's own failures (lab.sim.runs.driver).

Nothing of the process is replaced but its clock and its sockets: gangsched.process.app with its reflectors,
lanes, HTTP, election, inbox and core runs as it does in a cluster. TLS is left out. So is a bind that arrives
after the client has given it up and has asked for the pod: requests on a connection that ends take effect at
that moment or never.

`run_seed(seed)` is what the command (`python -m gangsched.lab.sim --storm wire`) and the tests call.
"""

from gangsched.lab.sim.wire.run import Shrunk, Verdict, run_seed, shrink
from gangsched.lab.sim.wire.weather import CALM, STORM, Rates

__all__ = ["CALM", "STORM", "Rates", "Shrunk", "Verdict", "run_seed", "shrink"]
