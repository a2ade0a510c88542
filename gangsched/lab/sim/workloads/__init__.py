"""What a cluster has and what is submitted to it, drawn from a seed; one module for each subject."""
