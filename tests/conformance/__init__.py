"""Kubernetes' own end-to-end tests of scheduling and of Dynamic Resource Allocation, with gangsched and with
kube-scheduler as default-scheduler: `python -m tests.conformance`.

What does not live here: gangsched's own tests on a real API server (tests/real).
"""
