// Prints the tables of Kubernetes' own tests of its allocator as the lines of allocator_cases.jsonl.
//
// To be put into a copy of the module k8s.io/dynamic-resource-allocation, as structured/print_test.go; print.sh does
// it. Each line is what oracle/main.go reads, with: "case", the test's name; "features", all of them; "off", those
// of them that 1.37 has off by default; "answer", what the
// test expects, as its allocator gave it and the test accepted it; "defaults", the answer with the features that are on
// by default, where that is another one.
package structured

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured/internal"
	"k8s.io/dynamic-resource-allocation/structured/internal/allocatortesting"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

var defaults = Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}

type printedAnswer struct {
	Error       string                         `json:"error,omitempty"`
	OnNode      bool                           `json:"onNode,omitempty"`
	None        bool                           `json:"none,omitempty"`
	Allocations []resourceapi.AllocationResult `json:"allocations,omitzero"`
}

type printedCase struct {
	Case      string                       `json:"case"`
	Features  map[string]bool              `json:"features"`
	Off       []string                     `json:"off,omitempty"`
	Nodes     []*v1.Node                   `json:"nodes"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Answer    printedAnswer                `json:"answer"`
	Defaults  *printedAnswer               `json:"defaults,omitempty"`
}

// A share without a name of its own: upstream's tables have consumed capacity without one.
var namelessShare = types.UID("bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb")

// A case with a quantity of 1e21, which has no suffix and is written as 1.
const unwritable = "consumable-capacity-requests-are-not-modified"

// printer stands between a test and the allocator that it tests.
type printer struct {
	internal.Allocator
	printed *[]printedCase
	name    string
	in      printedCase
	state   AllocatedState
	classes DeviceClassLister
	enabled Features
}

func (p *printer) GetStats() internal.Stats {
	return p.Allocator.(internal.AllocatorExtended).GetStats()
}

func (p *printer) Allocate(ctx context.Context, node *v1.Node, claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	results, err := p.Allocator.Allocate(ctx, node, claims)
	if strings.Contains(p.name, "/interrupt/") || strings.HasSuffix(p.name, "/"+unwritable) {
		return results, err
	}
	in := p.in
	in.Case = p.name[strings.LastIndex(p.name, "/")+1:]
	in.Nodes = []*v1.Node{node}
	in.Claims = claims
	in.Allocated = claimsOf(p.state)
	in.Features, in.Off = named(p.enabled)
	in.Answer = answerOf(results, err, len(claims))
	if len(in.Off) == 0 {
		allocator, newErr := NewAllocator(ctx, defaults, p.state, p.classes, in.Slices, cel.NewCache(1, cel.Features{EnableConsumableCapacity: true}))
		if newErr != nil {
			panic(newErr)
		}
		byDefault, defaultErr := allocator.Allocate(ctx, node, claims)
		if answer := answerOf(byDefault, defaultErr, len(claims)); textOf(answer) != textOf(in.Answer) {
			in.Defaults = &answer
		}
	}
	*p.printed = append(*p.printed, in)
	return results, err
}

func answerOf(results []resourceapi.AllocationResult, err error, claims int) printedAnswer {
	switch {
	case err != nil:
		return printedAnswer{Error: err.Error(), OnNode: errors.Is(err, ErrFailedAllocationOnNode)}
	case len(results) != claims:
		return printedAnswer{None: true}
	}
	copied := make([]resourceapi.AllocationResult, len(results))
	for i, result := range results {
		result.DeepCopyInto(&copied[i])
		for j := range copied[i].Devices.Results {
			if copied[i].Devices.Results[j].ShareID != nil {
				copied[i].Devices.Results[j].ShareID = &namelessShare
			}
		}
	}
	return printedAnswer{Allocations: copied}
}

func textOf(answer printedAnswer) string {
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// claimsOf is the state as a claim that has been allocated all of it.
func claimsOf(state AllocatedState) []*resourceapi.ResourceClaim {
	var results []resourceapi.DeviceRequestAllocationResult
	add := func(id DeviceID, share *types.UID, capacity map[resourceapi.QualifiedName]resource.Quantity) {
		results = append(results, resourceapi.DeviceRequestAllocationResult{
			Request: "req", Driver: id.Driver.String(), Pool: id.Pool.String(), Device: id.Device.String(),
			ShareID: share, ConsumedCapacity: capacity,
		})
	}
	for id := range state.AllocatedDevices {
		add(id, nil, nil)
	}
	for shared := range state.AllocatedSharedDeviceIDs {
		share := types.UID(shared.ShareID.String())
		add(shared.GetDeviceID(), &share, nil)
	}
	slices.SortFunc(results, compared)
	for id, consumed := range state.AggregatedCapacity {
		capacity := map[resourceapi.QualifiedName]resource.Quantity{}
		for name, quantity := range consumed {
			capacity[name] = quantity.DeepCopy()
		}
		share, at := &namelessShare, -1
		for i, result := range results {
			if result.ShareID != nil && MakeDeviceID(result.Driver, result.Pool, result.Device) == id {
				at = i
			}
		}
		if at >= 0 {
			results[at].ConsumedCapacity = capacity
		} else {
			add(id, share, capacity)
		}
	}
	if len(results) == 0 {
		return []*resourceapi.ResourceClaim{}
	}
	slices.SortFunc(results, compared)
	claim := &resourceapi.ResourceClaim{}
	claim.Name = "allocated"
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	claim.Status.Allocation.Devices.Results = results
	return []*resourceapi.ResourceClaim{claim}
}

func compared(a, b resourceapi.DeviceRequestAllocationResult) int {
	share := func(of *types.UID) types.UID {
		if of == nil {
			return ""
		}
		return *of
	}
	return cmp.Or(
		cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Device, b.Device),
		cmp.Compare(share(a.ShareID), share(b.ShareID)),
	)
}

// named lists all features, and those that are not on by default.
func named(features Features) (all map[string]bool, off []string) {
	all = map[string]bool{}
	value, byDefault := reflect.ValueOf(features), reflect.ValueOf(defaults)
	for i := range value.NumField() {
		runes := []rune(value.Type().Field(i).Name)
		runes[0] = unicode.ToLower(runes[0])
		all[string(runes)] = value.Field(i).Bool()
		if value.Field(i).Bool() && !byDefault.Field(i).Bool() {
			off = append(off, string(runes))
		}
	}
	return
}

func TestPrint(t *testing.T) {
	var printed []printedCase
	newAllocator := func(
		ctx context.Context,
		features Features,
		state AllocatedState,
		classes DeviceClassLister,
		slices []*resourceapi.ResourceSlice,
		cache *cel.Cache,
	) (internal.Allocator, error) {
		allocator, err := NewAllocator(ctx, features, state, classes, slices, cache)
		if err != nil {
			return nil, err
		}
		all, err := classes.List()
		if err != nil {
			return nil, err
		}
		test := klog.FromContext(ctx).GetSink().(ktesting.Underlier).GetUnderlying().(interface{ Name() string })
		return &printer{
			Allocator: allocator.(internal.Allocator), printed: &printed, name: test.Name(),
			in: printedCase{Slices: slices, Classes: all}, state: state, classes: classes, enabled: features,
		}, nil
	}
	// Not "stable", which 1.37 does not select and which takes pools in any order.
	EnableAllocators("incubating", "experimental")
	allocatortesting.TestAllocator(t, internal.FeaturesAll, newAllocator)
	allocatortesting.TestLexicographicalAllocator(t, internal.FeaturesAll, newAllocator)
	slices.SortFunc(printed, func(a, b printedCase) int { return strings.Compare(a.Case, b.Case) })
	file, err := os.Create(os.Getenv("CASES"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, one := range printed {
		if err := encoder.Encode(one); err != nil {
			t.Fatal(err)
		}
	}
}
