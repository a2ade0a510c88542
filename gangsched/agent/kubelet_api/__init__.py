"""kubelet's three gRPC APIs, messages and stubs: device plugins v1beta1, PodResources v1, Pods v1alpha1.

Lives here: the .proto files, with the names and field numbers of k8s.io/kubelet, and the code generated from
them and committed (`make protocol`); `pod.proto` has the few fields of a Pod that the agent reads. Only the
.proto files are written by hand. Not here: the calls (agent.plugins).
"""
