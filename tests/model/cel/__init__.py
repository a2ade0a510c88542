"""Selectors of devices: against scenarios, against Kubernetes' own cases, and against cel-go."""
