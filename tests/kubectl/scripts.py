"""Commands that must print the same on both servers, as scripts: each in a namespace of its own, step by step."""

from __future__ import annotations

from typing import NamedTuple

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


class Step(NamedTuple):
    """One command; `stdin` for `-f -`."""

    command: str
    stdin: str = ""
    # Tried until it ends well: a new definition is served in the background.
    patient: bool = False


def _applied(text: str) -> Step:
    return Step("apply -f -", text)


SCRIPTS: dict[str, list[Step]] = {
    "apply": [
        _applied(POD),
        _applied(POD),
        _applied(POD.replace("app: web", "app: web, tier: front")),
        Step("get pod web -o jsonpath={.metadata.labels}"),
        Step("diff -f -", POD),
        _applied(POD.replace("busybox:1.36", "busybox:1.37")),
        _applied(POD.replace("cpu: 500m", "cpu: 700m")),
        Step("apply view-last-applied pod/web"),
        Step("delete -f - --now", POD),
        Step("get pods"),
    ],
    "apply several": [
        _applied("---\n".join([POD, CONFIG, JOB, GROUP])),
        Step("get pods,configmaps,jobs,podgroups.scheduling.k8s.io --show-labels"),
        Step("get all"),
        Step("get -f - -o name", "---\n".join([POD, CONFIG])),
        Step("delete pods,configmaps,jobs,podgroups --all --wait=false"),
    ],
    "apply with a dry run": [
        Step("apply -f - --dry-run=server", POD),
        Step("apply -f - --dry-run=client", POD),
        Step("create -f - --dry-run=server -o name", CONFIG),
        Step("get pods,configmaps"),
    ],
    "server-side apply": [
        Step("apply --server-side -f -", CONFIG),
        Step("apply --server-side -f -", CONFIG),
        Step("apply --server-side -f -", CONFIG.replace("red", "blue")),
        Step("apply --server-side --field-manager=other -f -", CONFIG),
        Step("apply --server-side --field-manager=other --force-conflicts -f -", CONFIG),
        Step("get configmap settings -o jsonpath={.data}"),
        Step("get configmap settings --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}"),
        _applied(CONFIG.replace("red", "green")),
    ],
    "create and replace": [
        Step("create -f -", CONFIG),
        Step("create -f -", CONFIG),
        Step("replace -f -", CONFIG.replace("red", "blue")),
        Step("get configmap settings -o yaml"),
        Step("replace --force -f -", CONFIG),
        Step("replace -f -", CONFIG.replace("settings", "other")),
        Step("create configmap more --from-literal=a=b"),
        Step("create secret generic hidden --from-literal=a=b"),
        Step("create job sleep --image=busybox -- sleep 1"),
        Step("create serviceaccount robot"),
        Step("create role reader --verb=get,list --resource=pods"),
        Step("create rolebinding readers --role=reader --serviceaccount=default:robot"),
        Step("create priorityclass kubectl-high --value=10 --description=x"),
        Step("create poddisruptionbudget budget --selector=app=web --min-available=1"),
        Step("get configmaps,secrets,jobs,serviceaccounts,roles,rolebindings,pdb"),
        Step("delete priorityclass kubectl-high"),
    ],
    "run": [
        Step("run one --image=busybox --labels=a=b --restart=Never -- sleep 60"),
        Step("get pod one -o yaml"),
        Step("expose pod one --port=80"),
        Step("get service one -o jsonpath={.spec.ports}"),
        Step("set image pod/one one=busybox:2"),
        Step("delete pod one --grace-period=0 --force"),
    ],
    "get": [
        _applied(POD),
        Step("get pods"),
        Step("get pods -o wide"),
        Step("get pods -o name"),
        Step("get pod web -o yaml"),
        Step("get pod web -o json"),
        Step("get pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[0].image"),
        Step("get pods -o go-template={{range.items}}{{.metadata.name}}{{end}}"),
        Step("get pods -l app=web,!tier --no-headers"),
        Step("get pods -l app=other"),
        Step("get pods --field-selector=status.phase=Pending -o name"),
        Step("get pods --field-selector=spec.colour=red"),
        Step("get pods -l 'app in'"),
        Step("get pods --sort-by=.metadata.name --chunk-size=1 -o name"),
        Step("get pod nobody"),
        Step("get pod web nobody"),
        Step("get nonsense"),
        Step("get pods/web configmap/nobody --ignore-not-found"),
        Step("get po,cm -o name"),
        Step("get --raw /api/v1/namespaces/default/pods/nobody"),
        Step("get --raw /version -o json"),
    ],
    "describe": [
        _applied(POD),
        Step("describe pod web"),
        _applied(CONFIG),
        Step("describe configmap settings"),
        _applied(GROUP),
        Step("describe podgroup gang"),
        _applied(JOB),
        Step("describe job train"),
        Step("describe pod nobody"),
    ],
    "bind": [
        _applied(POD),
        Step("create -f - --raw /api/v1/namespaces/NAMESPACE/pods/web/binding", BINDING),
        Step("get pod web -o wide"),
        Step("create -f - --raw /api/v1/namespaces/NAMESPACE/pods/web/binding", BINDING),
        Step("delete pod web --wait=false"),
        Step("get pods"),
        Step("delete pod web --now --wait=false"),
        Step("delete pod web --force --grace-period=0"),
    ],
    "label and annotate": [
        _applied(POD),
        Step("label pod web tier=front"),
        Step("label pod web tier=back"),
        Step("label pod web tier=back --overwrite"),
        Step("label pod web tier- app-"),
        Step("label pods --all x=y"),
        Step("label pod web bad/key/x=1"),
        Step("label pod web 'x=not a value' --overwrite"),
        Step("annotate pod web note='two words' gangsched.io/min-members=3"),
        Step("annotate pod web note-"),
        Step("get pod web --show-labels"),
        Step("get pod web -L x"),
        Step("get pod web -o jsonpath={.metadata.annotations['gangsched\\.io/min-members']}"),
    ],
    "patch": [
        _applied(POD),
        Step("""patch pod web -p '{"metadata":{"labels":{"a":"b"}}}'"""),
        Step("""patch pod web -p '{"metadata":{"labels":{"a":"b"}}}'"""),
        Step("""patch pod web --type=merge -p '{"metadata":{"labels":{"a":null}}}'"""),
        Step("""patch pod web --type=json -p '[{"op":"add","path":"/metadata/labels/c","value":"d"}]'"""),
        Step("""patch pod web --type=json -p '[{"op":"remove","path":"/metadata/nothing"}]'"""),
        Step("""patch pod web --subresource=status --type=merge -p '{"status":{"phase":"Running"}}'"""),
        Step("""patch pod web -p '{"spec":{"containers":[{"name":"main","image":"other"}]}}'"""),
        Step("""patch pod web -p '{"spec":{"hostNetwork":true}}'"""),
        Step("""patch pod web -p '{"spec":{"colour":"red"}}'"""),
        Step("""patch pod web -p '{"spec":'"""),
        Step("get pod web -o jsonpath={.status.phase},{.metadata.labels},{.spec.containers[0].image}"),
    ],
    "edit": [
        _applied(CONFIG),
        Step("edit configmap settings"),
        Step("get configmap settings -o jsonpath={.data}"),
    ],
    "wait": [
        _applied(POD),
        Step("wait pod/web --for=condition=Ready --timeout=1s"),
        Step("wait pod/web --for=jsonpath={.status.phase}=Pending --timeout=5s"),
        Step(
            "patch pod web --subresource=status --type=merge "
            """-p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'"""
        ),
        Step("wait pod/web --for=condition=Ready --timeout=5s"),
        Step("wait pod -l app=web --for=condition=Ready --timeout=5s"),
        Step("delete pod web --wait=false"),
        Step("wait pod/web --for=delete --timeout=5s"),
        Step("wait pod/web --for=condition=Ready --timeout=1s"),
        Step("wait pod/web --for=create --timeout=1s"),
    ],
    "nodes": [
        Step(
            "create -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: NAMESPACE-n, labels: {rack: r1}}\n"
        ),
        Step("cordon NAMESPACE-n"),
        Step("cordon NAMESPACE-n"),
        Step("get node NAMESPACE-n -o wide"),
        Step("uncordon NAMESPACE-n"),
        Step("taint node NAMESPACE-n gpu=yes:NoSchedule"),
        Step("taint node NAMESPACE-n gpu=yes:NoSchedule"),
        Step("taint node NAMESPACE-n gpu=yes:Sometimes"),
        Step("get node NAMESPACE-n -o jsonpath={.spec.taints}"),
        Step("taint node NAMESPACE-n gpu-"),
        Step("label node NAMESPACE-n rack=r2 --overwrite"),
        Step("drain NAMESPACE-n"),
        Step("describe node NAMESPACE-n"),
        Step("delete node NAMESPACE-n"),
    ],
    "rights": [
        Step("auth can-i create pods"),
        Step("auth can-i '*' '*'"),
        Step("auth can-i create pods/binding"),
    ],
    "wrong input": [
        Step("apply -f -", POD.replace("name: web", "name: Web_1")),
        Step("apply -f -", POD.replace("  name: web\n", "")),
        Step("apply -f -", POD.replace("    image:", "    imagee:")),
        Step("create -f -", POD.replace("    image:", "    imagee:")),
        Step("apply --server-side -f -", POD.replace("    image:", "    imagee:")),
        Step("create -f - --validate=false", POD.replace("    image:", "    imagee:")),
        Step("create -f - --validate=warn", POD.replace("labels:", "lables:")),
        Step("apply -f -", POD.replace("cpu: 500m", "cpu: lots")),
        Step("apply -f -", POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 500m")),
        Step("apply -f -", POD.replace('[sleep, "60"]', "5")),
        Step("apply -f -", POD.replace("kind: Pod", "kind: Podd")),
        Step("apply -f -", POD.replace("apiVersion: v1", "apiVersion: v7")),
        Step("apply -f -", "nonsense"),
        Step("apply -f -", "a: [b"),
        Step("apply -f /nowhere.yaml"),
        Step("apply -n nowhere -f -", CONFIG),
        Step("apply -f -", JOB.replace("restartPolicy: Never", "restartPolicy: Always")),
        Step("apply -f -", GROUP.replace("minCount: 4", "minCount: 0")),
        Step("apply -f -", GROUP.replace("minCount: 4", "minCount: four")),
        Step("apply -f -", GROUP.replace("minCount: 4", "minCount: 4, maxCount: 5")),
        Step("delete pod nobody"),
        Step("label pod nobody a=b"),
        Step("annotate pod nobody a=b"),
        Step("patch pod nobody -p {}"),
        Step("scale deployment nobody --replicas=2"),
        Step("logs nobody"),
        Step("cordon nobody"),
        Step("drain nobody"),
        Step("wait pod/nobody --for=delete --timeout=1s"),
        Step("describe node nobody"),
    ],
    "events": [
        _applied(EVENT),
        Step("get events"),
        Step("get events -o wide"),
        Step("get events.events.k8s.io -o yaml"),
        Step("get events --field-selector=involvedObject.name=web,type=Warning -o name"),
        Step("events --types=Warning"),
        Step("events --for=pod/web"),
        _applied(POD),
        Step("delete events --all"),
    ],
    "custom resources": [
        _applied(DEFINITION),
        Step("wait crd/widgets.NAMESPACE.example.com --for=condition=Established --timeout=10s"),
        Step("get widgets.NAMESPACE.example.com", patient=True),
        _applied(WIDGET),
        _applied(WIDGET),
        _applied(WIDGET.replace("size: 3", "size: 4, color: blue")),
        _applied(WIDGET.replace("size: 3", "size: 0")),
        _applied(WIDGET.replace("size: 3", "size: three")),
        _applied(WIDGET.replace("size: 3", "size: 3, colour: red")),
        _applied(WIDGET.replace("size: 3", "color: green")),
        Step(
            "create -f - --validate=false",
            WIDGET.replace("{name: w}", "{name: v}").replace("size: 3", "size: 3, a: b"),
        ),
        Step("get widgets.NAMESPACE.example.com"),
        Step("get widgets.NAMESPACE.example.com w -o wide"),
        Step("get widgets.NAMESPACE.example.com w -o yaml"),
        Step("describe widgets.NAMESPACE.example.com w"),
        Step("""patch widgets.NAMESPACE.example.com w --type=merge -p '{"spec":{"size":5}}'"""),
        Step("""patch widgets.NAMESPACE.example.com w -p '{"spec":{"size":5}}'"""),
        Step(
            """patch widgets.NAMESPACE.example.com w --subresource=status --type=merge -p '{"status":{"phase":"Big"}}'"""
        ),
        Step("wait widgets.NAMESPACE.example.com/w --for=jsonpath={.status.phase}=Big --timeout=5s"),
        Step("apply --server-side -f -", WIDGET.replace("size: 3", "size: 6")),
        Step("apply --server-side --force-conflicts -f -", WIDGET.replace("size: 3", "size: 6")),
        Step("label widgets.NAMESPACE.example.com w a=b"),
        Step("explain widgets.NAMESPACE.example.com.spec"),
        Step("explain widgets.NAMESPACE.example.com.spec.size"),
        Step("get crd widgets.NAMESPACE.example.com"),
        Step("delete widgets.NAMESPACE.example.com --all"),
        Step("delete crd widgets.NAMESPACE.example.com"),
        Step("get crd widgets.NAMESPACE.example.com"),
    ],
    "what is printed": [
        _applied(POD),
        Step("label pod web --list"),
        Step("annotate pod web --list"),
        Step("get pods --server-print=false"),
        Step("get pods --show-kind --no-headers"),
        Step("get pods -o jsonpath-as-json={.items[*].spec.tolerations}"),
        Step("get pods -o jsonpath={.items[*].status}"),
        Step("get pod web --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}"),
        Step("get pods -A --field-selector=metadata.namespace=NAMESPACE"),
        Step("get namespace NAMESPACE"),
        Step("get namespace NAMESPACE -o yaml"),
        Step("get pods --watch --request-timeout=1s"),
        Step("get pods --watch-only --request-timeout=1s"),
    ],
    "a generated name": [
        Step(
            "create -f - -o jsonpath={.metadata.generateName}",
            CONFIG.replace("name: settings", "generateName: s-"),
        ),
        _applied(CONFIG.replace("name: settings", "generateName: s-")),
    ],
    "explain": [
        Step("explain configmap.immutable"),
        Step("explain job.spec.parallelism"),
        Step("explain pod.spec.nonsense"),
        Step("explain nonsense"),
    ],
}
