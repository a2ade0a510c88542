"""The laboratory: gangsched tried out, measured and judged without a cluster of one's own.

    sim             the same core, and whole processes, in virtual time, under faults, with checkers
    apiserver       an API server in memory, with simulated nodes: `gangsched apiserver`
    demo            `gangsched demo`, on that server
    counterfactual  `gangsched counterfactual`: a recorded day under another configuration
    importing       `gangsched import`: other schedulers' days as a journal
    bench           `gangsched bench`: beside kube-scheduler, on a real control plane
    controlplane    that control plane: etcd and kube-apiserver, built and started

Nothing that runs in a cluster imports any of it: a wheel of its own, gangsched-lab, brings it (pyproject.toml
beside this file), and the image is without. Not here: replaying a recorded day (journal), whatif.
"""
