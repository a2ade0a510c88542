"""The embedded API server: an in-memory store with Kubernetes' rules, and its HTTP face.

It is for the demo and a first hour with gangsched, without a cluster; for fast tests of code that talks to an
API server; and for the simulation on the wire (lab.sim.wire), which needs one that obeys a virtual clock. It
answers like a real kube-apiserver wherever one of these depends on it; tests/contract sends both the same
requests. What each part is for, and what depends on it:

    part                        demo  kubectl  contract  wire      what for
    storage/                    x     x        x         x         revisions, pages, resuming watches
    registry, strategy,         x     x        x         x         the order in which a write is checked
      metadata, deletion
    http/                       x     x        x         x         HTTP and its verbs (wire: no sockets)
    kinds/                      x     x        x         x         defaults, admission and refusals by kind; a
                                                                   pod's and a PodGroup's in full, as far as a
                                                                   scheduler reads them
    patching/                   x     x        x         x         four formats: our writes are merge patches;
                                                                   kubectl apply, edit and patch use the rest
    schema/                     x     x        x         x         unknown fields, CRDs
    documents/                  x     x        x         x         which kinds and dialects there are
      openapi                         x        x                   kubectl explain, apply and --validate
    tables/                           x        x                   kubectl get
    protobuf/                         x        x                   kubectl create, drain, cordon send it
    simulated/                  x     x                            nodes, kubelets, Jobs, garbage, budgets:
                                                                   what happens to a pod once it is bound
    command                                                        `gangsched apiserver` and its faults

Kubernetes' rules for what is written (schemas, defaults, validation of pods and Jobs) are api_rules, which
`gangsched whatif` reads too.

Not here: anything that no scheduler reads and no simulated kubelet acts on. Such fields are stored as sent
and not checked (probes, hooks, variables, DNS, the details of volumes). Kinds that are stored only so that
manifests with them are accepted are hardly checked (Deployments, Services, roles); other kinds are not
served. tests/contract/differences.py has the list. A rule that none of the four columns needs does not belong
here: test coverage of the four shows which are needed. A rule run only by its own tests is removed, unless a
scheduler reads the field (affinities, taints) or a user triggers it by hand (nodes that die, devices that
break).
"""
