"""Floor 3: measures gangsched beside a null binder and kube-scheduler, on a real control plane.

Not here: starting the control plane (controlplane) and anything that schedules. The rooms: rounds
(a measurement: objects, the independent clock, the ceiling, the measured schedulers, meters, checks), speed
(without an API), balance and queueing (published experiments). Beside them: latency (another measurement),
targets and tables (results), command (options).
"""
