"""Floor 3: what gangsched does in numbers, beside a null binder and kube-scheduler, on a real control plane.

What does not live here: starting the control plane (controlplane) and anything that schedules. The rooms:
workload (what is made), cluster (making it), watcher (the independent clock), null_binder (the ceiling),
contenders (who is measured), meters (CPU, memory, writes), checks (is it right), rounds and latency (one
measurement), core_speed and member_speed (no API), report and targets (what comes out), command (options).
"""
