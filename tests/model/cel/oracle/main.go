// Evaluates selectors of devices as kube-scheduler does: the oracle that gangsched/model/cel is compared with.
//
// Reads lines of JSON, an expression and a device as a ResourceSlice has it, and answers each with a line: what does
// not compile, or whether the device matches and what the evaluation cost, or the error. `make controlplane` builds it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"math"
	"os"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

type question struct {
	Expression string `json:"expression"`
	Driver     string `json:"driver"`
	resource.Device
}

type answer struct {
	// Why the API server would refuse the expression.
	Refused string `json:"refused,omitempty"`
	// Why the evaluation failed.
	Error   string `json:"error,omitempty"`
	Matches bool   `json:"matches"`
	// Cost units: what the evaluation took, and the most that it could take for any device.
	Cost    uint64 `json:"cost"`
	MaxCost uint64 `json:"maxCost"`
}

func evaluate(asked question) (answer answer) {
	stored := environment.StoredExpressions
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	compiled := compiler.CompileCELExpression(asked.Expression, cel.Options{EnvType: &stored})
	if compiled.Error != nil {
		answer.Refused = compiled.Error.Error()
		return
	}
	// JSON of other languages has no integers beyond this.
	answer.MaxCost = min(compiled.MaxCost, math.MaxInt64)
	matches, details, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver:                   asked.Driver,
		AllowMultipleAllocations: asked.AllowMultipleAllocations,
		Attributes:               asked.Attributes,
		Capacity:                 asked.Capacity,
	})
	answer.Matches = matches
	if cost := details.ActualCost(); cost != nil {
		answer.Cost = *cost
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return
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
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		answered, err := json.Marshal(evaluate(asked))
		if err != nil {
			panic(err)
		}
		out.Write(append(answered, '\n'))
		out.Flush()
	}
}
