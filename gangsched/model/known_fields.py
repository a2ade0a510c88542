"""Every field of the core API's kinds that are read: Kubernetes 1.34 to 1.37.

What is read follows from the structs that decode a kind; here are the others, with the reason why they
decide nothing, or what is done instead. A test compares both with the fields of each Kubernetes that is
supported (tests/fields), so that a new field is looked at before it is passed over. At run time pods' list
says which fields a newer API server has that this version does not know. Not here: PodGroups, whose fields
are listed with their dialects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangsched.model import objects, storage, workloads
from gangsched.model.fields import Fields, Tree, paths_of, tree_of
from gangsched.model.owners import jobs
from gangsched.model.resource_claims import objects as claims

_ON_ITS_NODE = "its kubelet's business, the same on every node"
_MOUNTED = "mounted wherever the pod runs; kube-scheduler does not look at it either"
_STATUS = "reported by others, and decides nothing"
_IDENTITY = "identifies the object, or is a label or annotation (docs/annotations.md)"
_EVERYWHERE = {"kind": _IDENTITY, "apiVersion": _IDENTITY, "metadata.**": _IDENTITY}


def _all(why: str, at: str, names: str) -> dict[str, str]:
    """`names`: the names below `at`, in one text; one that ends in `.**` has everything below it too."""
    return {f"{at}.{name}": why for name in names.split()}


def _container(at: str) -> dict[str, str]:
    return {
        **_all(
            _ON_ITS_NODE,
            at,
            "command args workingDir envFrom.** env.** resizePolicy.** volumeDevices.** livenessProbe.** "
            "readinessProbe.** startupProbe.** lifecycle.** terminationMessagePath terminationMessagePolicy "
            "imagePullPolicy securityContext.** stdin stdinOnce tty",
        ),
        **_all(_ON_ITS_NODE, f"{at}.restartPolicyRules[]", "exitCodes.**"),
        **_all(
            _MOUNTED,
            f"{at}.volumeMounts[]",
            "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr",
        ),
        f"{at}.ports[].name": "a name",
        f"{at}.resources.claims.**": "all claims of the pod are allocated; kubelet gives them out",
    }


_VOLUMES = (
    "hostPath.** emptyDir.** gitRepo.** secret.** nfs.** glusterfs.** flexVolume.** cephfs.** flocker.** "
    "downwardAPI.** fc.** azureFile.** configMap.** vsphereVolume.** quobyte.** photonPersistentDisk.** "
    "projected.** portworxVolume.** scaleIO.** storageos.**"
)
_DISKS = {
    "gcePersistentDisk": "fsType partition",
    "awsElasticBlockStore": "fsType partition readOnly",
    "azureDisk": "diskName cachingMode fsType readOnly kind",
    "cinder": "fsType readOnly secretRef.**",
}

PODS = Fields(
    read=(
        *("status.allocatedResources", "status.resources.requests", "status.resources.limits"),
        *(
            f"status.{of}[].{name}"
            for of in ("containerStatuses", "initContainerStatuses")
            for name in ("name", "allocatedResources", "resources.requests", "resources.limits")
        ),
    ),
    without_effect={
        **_EVERYWHERE,
        **_container("spec.containers[]"),
        **_container("spec.initContainers[]"),
        "spec.ephemeralContainers.**": "added to running pods, and request nothing",
        **_all(
            _ON_ITS_NODE,
            "spec",
            "restartPolicy dnsPolicy serviceAccountName serviceAccount automountServiceAccountToken hostPID "
            "hostIPC shareProcessNamespace securityContext.** imagePullSecrets.** hostname subdomain "
            "hostAliases.** dnsConfig.** readinessGates.** enableServiceLinks setHostnameAsFQDN "
            "hostnameOverride",
        ),
        "spec.os.**": "kube-scheduler does not look at it either; pods for Windows select nodes by label",
        "spec.priorityClassName": "the API server has set spec.priority from it",
        "spec.runtimeClassName": "the API server has set nodeSelector, tolerations and overhead from it",
        "spec.resources.claims.**": "all claims of the pod are allocated; kubelet gives them out",
        "spec.evictionResponders.**": "who answers a request for eviction; the API server is asked here",
        **_all(_MOUNTED, "spec.volumes[]", _VOLUMES),
        **{
            path: _MOUNTED
            for disk, names in _DISKS.items()
            for path in _all("", f"spec.volumes[].{disk}", names)
        },
        **_all(
            _MOUNTED,
            "spec.volumes[].iscsi",
            "targetPortal lun iscsiInterface fsType portals chapAuthDiscovery chapAuthSession secretRef.** "
            "initiatorName",
        ),
        **_all(_MOUNTED, "spec.volumes[].rbd", "fsType user keyring secretRef.**"),
        **_all(_MOUNTED, "spec.volumes[].csi", "readOnly fsType volumeAttributes nodePublishSecretRef.**"),
        "spec.volumes[].persistentVolumeClaim.readOnly": _MOUNTED,
        "spec.volumes[].ephemeral.volumeClaimTemplate.**": "the claim made from it is read",
        "spec.volumes[].image.pullPolicy": _ON_ITS_NODE,
        **_all(
            _STATUS,
            "status",
            "message hostIP hostIPs.** podIP podIPs.** ephemeralContainerStatuses.** qosClass resize "
            "nodeAllocatableResourceClaimStatuses.** "
            "volumeHealth.** conditions[].lastProbeTime",
        ),
        "status.resources.claims.**": _STATUS,
        **{
            path: _STATUS
            for of in ("containerStatuses", "initContainerStatuses")
            for path in _all(
                "",
                f"status.{of}[]",
                "state.** lastState.** ready restartCount image imageID started volumeMounts.** "
                "user.** allocatedResourcesStatus[].resources[].message stopSignal resources.claims.**",
            )
        },
    },
)

NODES = Fields(
    without_effect={
        **_EVERYWHERE,
        **_all(_STATUS, "spec", "podCIDR podCIDRs providerID configSource.** externalID"),
        "spec.podPreemptionPolicy.**": "of preemption for resizes in place, which is not done here",
        "spec.taints[].timeAdded": "the node lifecycle controller's",
        **_all(
            _STATUS,
            "status",
            "capacity phase addresses.** daemonEndpoints.** nodeInfo.** volumesInUse volumesAttached.** "
            "config.** conditions[].lastHeartbeatTime",
        ),
        "status.runtimeHandlers.**": "kube-scheduler does not look at it either; RuntimeClasses select nodes",
        "status.features.**": "kube-scheduler does not look at it either",
    },
)


def tree_of_pods() -> Tree:
    """Returns all fields of pods that are known."""
    return tree_of((*paths_of(objects.Pod), *PODS.read, *PODS.without_effect))


_OF_ITS_PODS = "its pods state it themselves"
_PROVISIONING = "what makes, mounts or deletes volumes, after a node is chosen"
_SELECTED = "only what it selects is read"
_EVICTS = "when pods are evicted for it, which Kubernetes' controller does"
_ALPHA = "alpha, and of no effect on which devices are free"
_DERIVED = {
    f"spec.devices.requests[].{of}.derivedAttributes[].expression": "a request with one is refused"
    for of in ("exactly", "firstAvailable[]")
}

Decoded = tuple[type[Any], Fields]
KINDS: Mapping[str, Decoded] = {
    "Pod": (objects.Pod, PODS),
    "Node": (objects.Node, NODES),
    "PersistentVolumeClaim": (
        storage.PersistentVolumeClaim,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(_PROVISIONING, "spec", "dataSource.** dataSourceRef.**"),
                **_all(
                    _STATUS,
                    "status",
                    "accessModes capacity conditions.** allocatedResources allocatedResourceStatuses "
                    "currentVolumeAttributesClassName modifyVolumeStatus.** healthStatus.**",
                ),
            }
        ),
    ),
    "PersistentVolume": (
        storage.PersistentVolume,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(_PROVISIONING, "spec", "persistentVolumeReclaimPolicy mountOptions"),
                **_all(
                    _MOUNTED,
                    "spec",
                    "hostPath.** glusterfs.** nfs.** rbd.** iscsi.** cephfs.** fc.** flocker.** "
                    "flexVolume.** azureFile.** vsphereVolume.** quobyte.** photonPersistentDisk.** "
                    "portworxVolume.** scaleIO.** local.** storageos.**",
                ),
                **{
                    path: _MOUNTED
                    for disk, names in _DISKS.items()
                    for path in _all("", f"spec.{disk}", names)
                },
                **_all(
                    _MOUNTED,
                    "spec.csi",
                    "readOnly fsType volumeAttributes controllerPublishSecretRef.** nodeStageSecretRef.** "
                    "nodePublishSecretRef.** controllerExpandSecretRef.** nodeExpandSecretRef.**",
                ),
                **_all(_IDENTITY, "spec.claimRef", "kind apiVersion resourceVersion fieldPath"),
                **_all(_STATUS, "status", "message reason lastPhaseTransitionTime"),
            }
        ),
    ),
    "StorageClass": (
        storage.StorageClass,
        Fields(
            without_effect={
                **_EVERYWHERE,
                "parameters": _PROVISIONING,
                "reclaimPolicy": _PROVISIONING,
                "mountOptions": _PROVISIONING,
                "allowVolumeExpansion": _PROVISIONING,
            }
        ),
    ),
    "CSINode": (
        storage.CsiNode,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(_PROVISIONING, "spec.drivers[]", "nodeID topologyKeys"),
                "status.**": _STATUS,
            }
        ),
    ),
    "CSIDriver": (
        storage.CsiDriver,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(
                    _PROVISIONING,
                    "spec",
                    "attachRequired podInfoOnMount volumeLifecycleModes fsGroupPolicy tokenRequests.** "
                    "requiresRepublish seLinuxMount nodeAllocatableUpdatePeriodSeconds "
                    "serviceAccountTokenInSecrets",
                ),
            }
        ),
    ),
    "CSIStorageCapacity": (storage.CsiStorageCapacity, Fields(without_effect=_EVERYWHERE)),
    "VolumeAttachment": (
        storage.VolumeAttachment,
        Fields(
            without_effect={
                **_EVERYWHERE,
                "spec.source.inlineVolumeSpec.**": "made by in-tree drivers that have been migrated to CSI",
                "status.**": _STATUS,
            }
        ),
    ),
    "Namespace": (
        workloads.Namespace,
        Fields(without_effect=_EVERYWHERE | {"spec.**": _STATUS, "status.**": _STATUS}),
    ),
    "Job": (
        jobs.Job,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(
                    "when its controller makes pods, or no more of them; how many at a time is read",
                    "spec",
                    "suspend podFailurePolicy.** successPolicy.** backoffLimit backoffLimitPerIndex "
                    "maxFailedIndexes podReplacementPolicy managedBy ttlSecondsAfterFinished selector.** "
                    "manualSelector",
                ),
                "spec.scheduling.**": "its controller copies it into a PodGroup, which the pods name",
                "spec.template.**": _OF_ITS_PODS,
                **_all(
                    _STATUS,
                    "status",
                    "conditions.** completionTime active failed terminating completedIndexes ready "
                    "uncountedTerminatedPods.**",
                ),
            }
        ),
    ),
    "DeviceClass": (
        claims.DeviceClass,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(
                    "which devices it gives; pods that ask for them are refused",
                    "spec",
                    "selectors.** config.**",
                ),
            }
        ),
    ),
    "ResourceClaim": (
        claims.ResourceClaim,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_DERIVED,
                "status.allocation.devices.results[].skipNodeOperations": _ALPHA,
                **_all(_STATUS, "status.devices[]", "data networkData.**"),
            }
        ),
    ),
    "ResourceSlice": (
        claims.ResourceSlice,
        Fields(
            read=(
                # Alpha: such a slice is left out.
                "spec.devices[].nodeAllocatableResources.**",
                "spec.devices[].nodeAllocatableResourceMappings.**",
            ),
            without_effect={**_EVERYWHERE, "spec.devices[].taints[].timeAdded": _EVICTS},
        ),
    ),
    "DeviceTaintRule": (
        claims.DeviceTaintRule,
        Fields(
            without_effect={**_EVERYWHERE, "spec.taint.timeAdded": _EVICTS, "status.**": _STATUS},
        ),
    ),
    "PriorityClass": (
        workloads.PriorityClass,
        Fields(
            without_effect={
                **_EVERYWHERE,
                "description": _IDENTITY,
                "preemptionPolicy": "the API server has set the pods' from it",
            }
        ),
    ),
    "Service": (
        workloads.Service,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(
                    _SELECTED,
                    "spec",
                    "ports.** clusterIP clusterIPs type externalIPs sessionAffinity loadBalancerIP "
                    "loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort "
                    "publishNotReadyAddresses sessionAffinityConfig.** ipFamilies ipFamilyPolicy "
                    "allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy "
                    "trafficDistribution",
                ),
                "status.**": _STATUS,
            }
        ),
    ),
    "ReplicationController": (
        workloads.ReplicationController,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(_OF_ITS_PODS, "spec", "replicas minReadySeconds template.**"),
                "status.**": _STATUS,
            }
        ),
    ),
    "ReplicaSet": (
        workloads.ReplicaSet,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(_OF_ITS_PODS, "spec", "replicas minReadySeconds template.**"),
                "status.**": _STATUS,
            }
        ),
    ),
    "StatefulSet": (
        workloads.StatefulSet,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(
                    _OF_ITS_PODS,
                    "spec",
                    "replicas template.** volumeClaimTemplates.** serviceName podManagementPolicy "
                    "updateStrategy.** revisionHistoryLimit minReadySeconds "
                    "persistentVolumeClaimRetentionPolicy.** ordinals.**",
                ),
                "status.**": _STATUS,
            }
        ),
    ),
    "PodDisruptionBudget": (
        workloads.PodDisruptionBudget,
        Fields(
            without_effect={
                **_EVERYWHERE,
                **_all(
                    "the disruption controller has counted it into status.disruptionsAllowed",
                    "spec",
                    "minAvailable maxUnavailable unhealthyPodEvictionPolicy",
                ),
                **_all(
                    _STATUS,
                    "status",
                    "observedGeneration currentHealthy desiredHealthy expectedPods conditions.**",
                ),
            }
        ),
    ),
}
