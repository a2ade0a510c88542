"""Fields of other projects' controllers' objects that are not read, with the reason why they decide nothing.

What is read follows from the structs that decode a kind. A test compares both with the projects' own types
(tests/fields), so that a field of a new release is looked at before it is passed over. Not here: Jobs and
other kinds of the core API (model.known_fields), PodGroups (model.dialects).
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.model.fields import Fields

_TEMPLATE = "its pods state it themselves"
_LATER = "what happens to pods that are there, or in what order new ones replace them"
_PAUSED = "whether, and by whom, pods are made at all; counted are those that it makes"
_NAMES = "names, addresses and rights of its pods, wherever they run"
_STATUS = "reported by its controller, and decides nothing"
_EVERYWHERE = {"metadata.**": "identifies the object, or is a label or annotation (docs/annotations.md)"}


def _all(why: str, at: str, names: str) -> dict[str, str]:
    return {f"{at}.{name}": why for name in names.split()}


_WORKERS = "spec.workerGroupSpecs[]"

OWNERS: Mapping[str, Fields] = {
    "JobSet": Fields(
        without_effect={
            **_EVERYWHERE,
            "spec.replicatedJobs[].template.**": _TEMPLATE,
            "spec.replicatedJobs[].groupName": "a label of its pods",
            "spec.replicatedJobs[].dependsOn[].status": "that Jobs wait for others is read, not for what",
            **_all(
                _LATER,
                "spec",
                "successPolicy.** failurePolicy.** ttlSecondsAfterFinished volumeClaimPolicies.**",
            ),
            **_all(_PAUSED, "spec", "suspend managedBy"),
            **_all(_NAMES, "spec", "network.** coordinator.**"),
            "status.**": _STATUS,
        }
    ),
    "LeaderWorkerSet": Fields(
        without_effect={
            **_EVERYWHERE,
            **_all(_TEMPLATE, "spec.leaderWorkerTemplate", "leaderTemplate.** workerTemplate.**"),
            **_all(_LATER, "spec", "rolloutStrategy.** leaderWorkerTemplate.restartPolicy"),
            **_all(
                "claims are made from them, and read",
                "spec.leaderWorkerTemplate",
                "volumeClaimTemplates.** persistentVolumeClaimRetentionPolicy.**",
            ),
            "spec.leaderWorkerTemplate.subGroupPolicy.**": "labels of its pods; a replica starts as one",
            "spec.networkConfig.**": _NAMES,
            "status.**": _STATUS,
        }
    ),
    "RayCluster": Fields(
        without_effect={
            **_EVERYWHERE,
            "spec.headGroupSpec.template.**": _TEMPLATE,
            f"{_WORKERS}.template.**": _TEMPLATE,
            **_all(_NAMES, "spec.headGroupSpec", "enableIngress headService.** labels.** serviceType"),
            **_all("of Ray itself, and of its pods", "spec.headGroupSpec", "rayStartParams.** resources.**"),
            **_all("of Ray itself, and of its pods", _WORKERS, "labels.** rayStartParams.** resources.**"),
            **_all(_LATER, _WORKERS, "scaleStrategy.** idleTimeoutSeconds"),
            **_all(_PAUSED, "spec", "suspend managedBy"),
            **_all(_NAMES, "spec", "authOptions.** headServiceAnnotations.** gcsFaultToleranceOptions.**"),
            **_all(_LATER, "spec", "upgradeStrategy.** autoscalerOptions.**"),
            "spec.rayVersion": "of Ray itself",
            "status.**": _STATUS,
        }
    ),
    "Workload": Fields(
        without_effect={
            **_EVERYWHERE,
            "spec.podSets[].template.**": _TEMPLATE,
            **_all(
                "decides what Kueue admits; what it has admitted is read",
                "spec",
                "podSets[].minCount queueName priority priorityClassRef.** preemptionGates.** "
                "maximumExecutionTimeSeconds",
            ),
            "spec.podSets[].topologyRequest.**": "Kueue writes into its pods which nodes they select",
            **_all(
                "what Kueue itself does next, or why; admission, conditions and reclaimablePods are read",
                "status",
                "requeueState.** admissionChecks.** resourceRequests.** schedulingStats.** "
                "accumulatedPastExecutionTimeSeconds nominatedClusterNames clusterName unhealthyNodes.** "
                "preemptionGates.**",
            ),
            "status.admission.clusterQueue": "Kueue's own queue",
            **_all(
                "Kueue writes into its pods which nodes they select",
                "status.admission.podSetAssignments[]",
                "flavors.** topologyAssignment.** delayedTopologyRequest",
            ),
        }
    ),
    "MPIJob": Fields(
        without_effect={
            **_EVERYWHERE,
            "spec.mpiReplicaSpecs.{}.template.**": _TEMPLATE,
            "spec.runPolicy.schedulingPolicy.**": "its operator makes a PodGroup of it, which its pods name",
            **_all(_PAUSED, "spec.runPolicy", "suspend managedBy"),
            **_all(
                _LATER,
                "spec",
                "runPolicy.cleanPodPolicy runPolicy.ttlSecondsAfterFinished runPolicy.activeDeadlineSeconds "
                "runPolicy.backoffLimit mpiReplicaSpecs.{}.restartPolicy",
            ),
            **_all(
                "of MPI itself; the pods are as many",
                "spec",
                "mpiImplementation slotsPerWorker sshAuthMountPath runLauncherAsWorker",
            ),
            "status.**": _STATUS,
        }
    ),
}
"""By the kind's name in OWNER_KINDS."""
