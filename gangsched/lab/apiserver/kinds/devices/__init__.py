"""Dynamic Resource Allocation (resource.k8s.io/v1): claims, templates, classes, slices, rules of taints.

Lives here: one strategy a kind, and the rules that they share. Feature gates are those of Kubernetes 1.37:
what is alpha is dropped, as there. Not here: the controller that makes claims from templates and removes
reservations (lab.apiserver.simulated.claims), who may change an allocation (nothing is authorized here).
Source: pkg/apis/resource/{v1,validation}, pkg/registry/resource of Kubernetes 1.37.1. Where that validates a
field declaratively (k8s.io/apimachinery pkg/api/validate), the words are those of the declarative rule.
"""
