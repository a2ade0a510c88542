"""The Job controller of the simulated cluster: batch/v1 Jobs become pods and count how these end."""
