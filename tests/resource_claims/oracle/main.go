// Allocates devices as kube-scheduler does: the oracle that our allocator of resource claims is compared with.
//
// Reads lines of JSON, each a case of nodes, slices, classes, rules, allocated claims and claims to be allocated
// together, as the API server stores them (so with its defaults); answers each with a line: per node the allocations,
// none, or the error. `make controlplane` builds it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"
	_ "unsafe" // for go:linkname

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/dynamic-resource-allocation/structured"
)

// What the gates that are on in 1.37 select (AllocatorFeatures in pkg/scheduler/framework/plugins/dynamicresources).
// FractionalCapacityRange is off unless the servers run with --min-compatibility-version=1.37.
var defaults = structured.Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}

// A search is exponential, and a case must not hang the run.
const defaultTimeoutSeconds = 5

type question struct {
	Name      string                      `json:"name"`
	Nodes     []*core.Node                `json:"nodes"`
	Slices    []*resource.ResourceSlice   `json:"slices"`
	Classes   []*resource.DeviceClass     `json:"classes"`
	Rules     []*resource.DeviceTaintRule `json:"rules"`
	Allocated []*resource.ResourceClaim   `json:"allocated"`
	Claims    []*resource.ResourceClaim   `json:"claims"`
	// Fields of structured.Features: what is not named is as in 1.37.
	Features json.RawMessage `json:"features"`
	// Of the whole case.
	TimeoutSeconds float64 `json:"timeoutSeconds"`
}

type nodeAnswer struct {
	Error string `json:"error,omitempty"`
	// The error is one of this node; without it no other node is tried either.
	OnNode      bool                        `json:"onNode,omitempty"`
	None        bool                        `json:"none,omitempty"`
	Allocations []resource.AllocationResult `json:"allocations,omitzero"`
}

type answer struct {
	Nodes map[string]nodeAnswer `json:"nodes"`
}

type classes []*resource.DeviceClass

func (c classes) List() ([]*resource.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resource.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resource.Resource("deviceclasses"), name)
}

// How kube-scheduler adds the taints of rules to devices. The method uses nothing of the tracker.
//
//go:linkname applyPatches k8s.io/dynamic-resource-allocation/resourceslice/tracker.(*Tracker).applyPatches
func applyPatches(*tracker.Tracker, context.Context, *resource.ResourceSlice, []*resource.DeviceTaintRule) (*resource.ResourceSlice, error)

// The devices in use, as allocateddevices.go of kube-scheduler's plugin gathers them from claims.
func allocatedState(claims []*resource.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}

// One for all cases: most expressions come again.
var caches = map[cel.Features]*cel.Cache{}

func cacheFor(features structured.Features) *cel.Cache {
	key := cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	}
	if caches[key] == nil {
		caches[key] = cel.NewCache(1000, key)
	}
	return caches[key]
}

func allocate(asked question) (answered answer) {
	answered.Nodes = map[string]nodeAnswer{}
	features := defaults
	if len(asked.Features) > 0 {
		must(json.Unmarshal(asked.Features, &features))
	}
	if asked.TimeoutSeconds == 0 {
		asked.TimeoutSeconds = defaultTimeoutSeconds
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(asked.TimeoutSeconds*float64(time.Second)))
	defer cancel()
	slices := make([]*resource.ResourceSlice, len(asked.Slices))
	for i, slice := range asked.Slices {
		tainted, err := applyPatches(nil, ctx, slice, asked.Rules)
		must(err)
		slices[i] = tainted
	}
	state := allocatedState(asked.Allocated)
	for _, node := range asked.Nodes {
		// One a node: an allocator keeps the counters of a pool as the first node asked sees the pool, so with
		// nodes that see different generations its answers depend on the order of the nodes.
		allocator, err := structured.NewAllocator(ctx, features, state, classes(asked.Classes), slices, cacheFor(features))
		must(err)
		results, err := allocator.Allocate(ctx, node, asked.Claims)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			answered.Nodes[node.Name] = nodeAnswer{Error: "deadline"}
		case err != nil:
			onNode := errors.Is(err, structured.ErrFailedAllocationOnNode)
			answered.Nodes[node.Name] = nodeAnswer{Error: err.Error(), OnNode: onNode}
		case len(results) != len(asked.Claims):
			answered.Nodes[node.Name] = nodeAnswer{None: true}
		default:
			answered.Nodes[node.Name] = nodeAnswer{Allocations: results}
		}
	}
	return
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var asked question
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		must(decoder.Decode(&asked))
		answered, err := json.Marshal(allocate(asked))
		must(err)
		out.Write(append(answered, '\n'))
		out.Flush()
	}
}
