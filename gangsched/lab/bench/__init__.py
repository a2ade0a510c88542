"""Floor 3: measures gangsched beside a null binder and kube-scheduler, on a real control plane.

Not here: starting the control plane (controlplane) and anything that schedules. The rooms: workload
(objects), cluster (creating them), watcher (the independent clock), null_binder (the ceiling), contenders
(the measured schedulers), meters (CPU, memory, writes), checks (correctness), rounds and latency (one
measurement), core_speed and member_speed (no API), report and targets (results), command (options).
"""
