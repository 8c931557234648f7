#!/bin/sh
# Runs the tests that share memory between goroutines under the race detector.
set -eu
GO=${GO:-go}
PARTS=${PARTS:-$GO run windrow/scripts/parts}
if ! command -v gcc >/dev/null && ! command -v cc >/dev/null; then
	echo "left out: the race detector needs a C compiler"
	[ -z "${CI:-}" ]
	exit
fi
export CGO_ENABLED=1
race() { $PARTS gotest "$GO" test -json -vet=off -race -short -timeout 20m "$@"; }
# Schemas are walked by one goroutine: minutes under the detector, for nothing. So are the decoder's
# sequences, and forwards but for drafts': what a forward shares among threads is cpu's.
race -skip '^TestRandomSchemas$' ./checkpoint ./convert ./engine ./eval ./hub/... ./listen ./schedule ./server ./session ./tokenizer
race -run 'Draft' ./model
race -run 'Concurrent|Flush|Rollback' ./grammar
race -run 'Pool|Race|Concurrent|Pass' ./cpu
race -run 'GPU|AtOnce' ./metal
