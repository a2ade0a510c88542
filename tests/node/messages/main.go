// Prints messages as kubelet and its plugins send them, made from the published definitions: one line of JSON each,
// with the gRPC type's name and the bytes. tests/kubelet/messages.jsonl is its output, kept so that the comparison
// needs no Go: `go run ./messages > ../kubelet/messages.jsonl` in tests/node.
package main

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

var out = json.NewEncoder(os.Stdout)

func print(name string, body []byte) {
	if err := out.Encode(map[string]string{"message": name, "hex": hex.EncodeToString(body)}); err != nil {
		panic(err)
	}
}

func message(m proto.Message) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	print(string(m.ProtoReflect().Descriptor().FullName()), body)
}

func pod() []byte {
	when := metav1.NewTime(time.Unix(1767323045, 0))
	body, err := (&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "w-0", Namespace: "team", UID: "u-1", ResourceVersion: "7", CreationTimestamp: when,
			DeletionTimestamp: &when, Labels: map[string]string{"l": "x"},
			Annotations: map[string]string{"gangsched.io/allocated-devices": `{"main":{"example.com/gpu":["a"]}}`},
		},
		Spec:   v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main", Image: "busybox"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, StartTime: &when},
	}).Marshal()
	if err != nil {
		panic(err)
	}
	return body
}

func main() {
	options := &plugin.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
	numa := &plugin.TopologyInfo{Nodes: []*plugin.NUMANode{{ID: 1}}}
	message(options)
	message(&plugin.RegisterRequest{
		Version: "v1beta1", Endpoint: "gangsched.sock", ResourceName: "example.com/gpu", Options: options,
	})
	message(&plugin.ListAndWatchResponse{Devices: []*plugin.Device{
		{ID: "a", Health: "Healthy", Topology: numa}, {ID: "b", Health: "Unhealthy"},
	}})
	message(&plugin.PreferredAllocationRequest{ContainerRequests: []*plugin.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: []string{"a", "b", "c"}, MustIncludeDeviceIDs: []string{"a"}, AllocationSize: 2},
	}})
	message(&plugin.PreferredAllocationResponse{
		ContainerResponses: []*plugin.ContainerPreferredAllocationResponse{{DeviceIDs: []string{"a", "b"}}},
	})
	message(&plugin.AllocateRequest{
		ContainerRequests: []*plugin.ContainerAllocateRequest{{DevicesIds: []string{"a", "b"}}},
	})
	message(&plugin.AllocateResponse{ContainerResponses: []*plugin.ContainerAllocateResponse{{
		Envs:        map[string]string{"IDS": "a,b"},
		Mounts:      []*plugin.Mount{{ContainerPath: "/lib/x", HostPath: "/opt/x", ReadOnly: true}},
		Devices:     []*plugin.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/host-a", Permissions: "rwm"}},
		Annotations: map[string]string{"k": "v"},
		CdiDevices:  []*plugin.CDIDevice{{Name: "example.com/gpu=a"}},
	}}})
	message(&plugin.PreStartContainerRequest{DevicesIds: []string{"a", "b"}})
	message(&plugin.PreStartContainerResponse{})
	devices := []*resources.ContainerDevices{{
		ResourceName: "example.com/gpu", DeviceIds: []string{"a", "b"},
		Topology: &resources.TopologyInfo{Nodes: []*resources.NUMANode{{ID: 0}, {ID: 1}}},
	}}
	listed := &resources.PodResources{Name: "w-0", Namespace: "team", Containers: []*resources.ContainerResources{
		{Name: "main", Devices: devices}, {Name: "side"},
	}}
	message(&resources.ListPodResourcesResponse{PodResources: []*resources.PodResources{listed}})
	message(&resources.AllocatableResourcesResponse{Devices: devices})
	message(&resources.GetPodResourcesRequest{PodName: "w-0", PodNamespace: "team"})
	message(&resources.GetPodResourcesResponse{PodResources: listed})
	message(&pods.WatchPodsEvent{Type: pods.EventType_INITIAL_SYNC_COMPLETE})
	message(&pods.WatchPodsEvent{Type: pods.EventType_MODIFIED, Pod: []byte("pod")})
	message(&pods.ListPodsResponse{Pods: [][]byte{[]byte("one"), []byte("two")}})
	message(&pods.GetPodRequest{PodUID: "u-1"})
	message(&pods.GetPodResponse{Pod: []byte("one")})
	print("gangsched.node.Pod", pod())
	// What they have that we leave out must be skipped.
	message(&resources.ListPodResourcesResponse{PodResources: []*resources.PodResources{{
		Name: "w-1", Namespace: "team", CpuIds: []int64{1, 2},
		Containers: []*resources.ContainerResources{{
			Name: "main", Devices: devices, CpuIds: []int64{3},
			Memory: []*resources.ContainerMemory{{MemoryType: "memory", Size: 5}},
		}},
	}}})
}
