"""Dynamic Resource Allocation (resource.k8s.io/v1): its objects as they are read, and amounts of capacity."""
