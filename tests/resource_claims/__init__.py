"""The allocator of devices to resource claims, compared with Kubernetes' own.

`cases` makes clusters with claims by chance, `oracle` asks Kubernetes' allocator about them, and `judge`
tells whether an allocation keeps the rules, whoever made it. A case is a dict of the API's own v1 objects,
with the server's defaults: `nodes`, `slices`, `classes`, `rules` (DeviceTaintRules), `allocated` (claims with
status.allocation), `claims` (to be allocated together, in order).

allocator_cases.jsonl has the tables of Kubernetes' own tests: k8s.io/dynamic-resource-allocation v0.37.1,
`structured/internal/allocatortesting`, printed by upstream/print.sh from a copy of the module.
"""
