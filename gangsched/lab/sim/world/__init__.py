"""The cluster as simulated: an API server with watches, kubelets, controllers, storage, and the weather."""
