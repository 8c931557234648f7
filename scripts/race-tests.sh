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
# What one goroutine does alone takes minutes under the detector, for nothing: schemas, what a
# clock simulates, beginnings beside a list, one answer after the other. So are the decoder's
# sequences, and forwards but for drafts': what a forward shares among threads is cpu's.
race -skip '^Test(RandomSchemas|Explosions|ForcedText|Constraint|HeadDrafts|EchoLogprobs|Logprobs|ToolChoice|ThinkingBudget)$' ./checkpoint ./convert ./engine ./eval ./hub/... ./listen ./server ./session ./tokenizer
race -skip 'UnderLoad|AgainstList|PromptLogprobs|HitIsMiss|SharedBeginnings' ./schedule
race -run 'Draft' ./model
race -run 'Concurrent|Flush|Rollback' ./grammar
race -run 'Pool|Race|Concurrent|Pass' ./cpu
race -run 'GPU|AtOnce' ./metal
