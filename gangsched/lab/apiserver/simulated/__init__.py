"""The simulation around the embedded API server: nodes with kubelets, and a cluster's controllers.

No container ever runs, so `kubectl logs`, `exec`, `attach`, `port-forward` and `cp` are rejected with that
reason, and `kubectl top` shows each running container as using what it requests. A bound pod goes through
ContainerCreating to Running and ends according to its command or its annotations; everything that people see
of it is written as by a real kubelet.

Annotations on a Pod:

    simulated.gangsched.io/start-seconds    until its containers run; default 0.4 to 1.2, drawn
    simulated.gangsched.io/run-seconds      how long they run, or "forever". Default: what its command sleeps
                                            (`sleep 60`); else for ever where restartPolicy is Always, else 30
    simulated.gangsched.io/exit-code        what they exit with, 0 to 255; default 0. restartPolicy decides
                                            whether they are started again, with kubelet's back-off
    simulated.gangsched.io/stop-seconds     how long they take to stop when the pod is deleted; default 0.2 to
                                            0.8, drawn. Beyond the grace period they are killed (exit 137)
    gangsched.io/allocated-devices          which devices the pod holds, as the scheduler says in its Binding;
                                            without it the node takes the first free ones, as a device plugin

Annotations on a Node, to be set and removed at any time:

    simulated.gangsched.io/killed             the machine is off: no heartbeat, its pods do not change; 50 s
                                              later it is unreachable, and its pods are evicted according to
                                              their tolerations. Removed: it boots, and what ran has died
    simulated.gangsched.io/unhealthy-devices  these device IDs, comma-separated, are unhealthy
    simulated.gangsched.io/vanished-devices   these device IDs no longer exist
    simulated.gangsched.io/kubelet: none      no kubelet is simulated on this node: another one reports for it

`kubectl cordon`, `drain`, `taint` and `delete node` do what they do on a real cluster. All times are divided
by the speed of the simulation. A pod is refused, for good, where a real kubelet refuses it (OutOfcpu,
OutOfmemory, OutOf<resource>, UnexpectedAdmissionError, NodeAffinity, NodePorts, TaintToleration). A device
that two live pods are given, or that is unknown or unhealthy, leads to a Warning event on pod and node, the
node's condition DeviceAllocationConflict and a line in the log.

Claims of devices (Dynamic Resource Allocation) are made from templates and freed as by a real controller.
With a `Driver` every node publishes a ResourceSlice of devices, and there is a class of the driver's name. A
pod starts only once each of its claims is allocated and reserved for it, by the scheduler; until then its
events say FailedPrepareDynamicResources. So they do for a device that is on another node or prepared for
another claim, which is a conflict as above.

The rooms: lab.apiserver.simulated.nodes.nodes builds Node objects; cluster.py puts everything together,
driver.py runs it in real time. Everything but driver.py is synchronous and gets the time as an argument.
"""

from gangsched.lab.apiserver.simulated.cluster import SimulatedCluster
from gangsched.lab.apiserver.simulated.driver import run
from gangsched.lab.apiserver.simulated.nodes.nodes import (
    Kill,
    build_nodes,
    check_kills,
    make_unhealthy,
    parse_kill,
    parse_unhealthy,
)
from gangsched.lab.apiserver.simulated.nodes.slices import Driver

__all__ = [
    "Driver",
    "Kill",
    "SimulatedCluster",
    "build_nodes",
    "check_kills",
    "make_unhealthy",
    "parse_kill",
    "parse_unhealthy",
    "run",
]
