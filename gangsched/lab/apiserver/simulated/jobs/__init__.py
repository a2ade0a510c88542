"""The Job controller of the simulated cluster: creates the pods of batch/v1 Jobs and counts how they end."""
