#!/bin/sh
# Writes ../allocator_cases.jsonl anew: runs print_test.go in a copy of the module. Needs Go and, once, a network.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
copy=$(mktemp -d)
trap 'chmod -R u+w "$copy"; rm -rf "$copy"' EXIT
cd "$here/../oracle"
module=$(go list -m -f '{{.Dir}}' k8s.io/dynamic-resource-allocation)
cp -r "$module/." "$copy"
chmod -R u+w "$copy"
cp "$here/print_test.go" "$copy/structured/"
cd "$copy"
CASES="$here/../allocator_cases.jsonl" GOWORK=off GOFLAGS=-mod=mod go test ./structured -run '^TestPrint$' -count=1
