"""What the scripts apply; NAMESPACE stands for the script's own. Called by scripts.py."""

from __future__ import annotations

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  containers:
  - name: main
    image: busybox:1.36
    command: [sleep, "60"]
    resources:
      requests: {cpu: 500m, memory: 64Mi}
      limits: {nvidia.com/gpu: 1}
"""
CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red, size: small}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox}]
"""
GROUP = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: gang}
spec:
  schedulingPolicy:
    gang: {minCount: 4}
"""
EVENT = """\
apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: v1, kind: Pod, name: web, namespace: NAMESPACE}
reason: FailedScheduling
message: 0/4 nodes are available
type: Warning
count: 3
firstTimestamp: "2026-01-02T03:04:05Z"
lastTimestamp: "2026-01-02T03:04:05Z"
source: {component: gangsched}
"""
DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.NAMESPACE.example.com}
spec:
  group: NAMESPACE.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wid]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How big it is.}
              color: {type: string, enum: [red, blue], default: red}
          status:
            type: object
            properties:
              phase: {type: string}
"""
WIDGET = """\
apiVersion: NAMESPACE.example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: 3}
"""
BINDING = """\
apiVersion: v1
kind: Binding
metadata: {name: web}
target: {apiVersion: v1, kind: Node, name: some-node}
"""
