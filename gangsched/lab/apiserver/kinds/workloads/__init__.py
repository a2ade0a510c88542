"""The rules of Jobs, Deployments, PodGroups, budgets and priority classes."""
