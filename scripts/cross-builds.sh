#!/bin/sh
# Builds for every platform that releases are made for, and vets for each system and each
# processor once: make vet has done it for this one.
set -eu
GO=${GO:-go}
for target in darwin/arm64 darwin/amd64 linux/arm64 linux/amd64 windows/amd64; do
	echo "cross $target"
	export GOOS=${target%/*} GOARCH=${target#*/}
	$GO build -o /dev/null ./cmd/windrow
	case $target in darwin/amd64 | "$($GO env GOHOSTOS)/$($GO env GOHOSTARCH)") continue ;; esac
	$GO vet ./answer ./bench ./checkpoint ./client ./cmd/windrow ./convert ./cpu/... ./engine ./eval ./filelock ./grammar ./hub/... ./internal/... ./listen ./metal ./metal/driver ./model ./schedule ./server ./synthetic ./tokenizer
done
unset GOOS GOARCH
$GO build -tags windrow_nomodel -o /dev/null ./cmd/windrow
GO="$GO" sh scripts/static-build.sh
