#!/bin/sh
# Builds windrow without GPU backends for Linux, and checks that it is static: that it asks for no loader and that
# purego, which would make it ask for one, is not linked. Where the machine can run it, it answers.
set -eu
GO=${GO:-go}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for arch in amd64 arm64; do
	echo "static linux/$arch"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch $GO build -tags windrow_nogpu -o "$dir/windrow-$arch" ./cmd/windrow
	if $GO version -m "$dir/windrow-$arch" | grep -q ebitengine/purego; then
		echo "linux/$arch: purego is linked"
		exit 1
	fi
	if grep -aq -e '/lib64/ld-linux' -e '/lib/ld-linux' "$dir/windrow-$arch"; then
		echo "linux/$arch: asks for a loader, so it is not static"
		exit 1
	fi
done
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 $GO vet -tags windrow_nogpu ./cuda/driver ./cuda/kernels
if [ "$($GO env GOHOSTOS)" = linux ]; then
	binary="$dir/windrow-$($GO env GOHOSTARCH)"
	[ -x "$binary" ] || exit 0
	answer=$(WINDROW_CACHE=off "$binary" generate --server off "What is 17 + 25?")
	case $answer in
	*"#### 42"*) ;;
	*) echo "the static binary answers $answer"; exit 1 ;;
	esac
	if message=$(WINDROW_CACHE=off "$binary" generate --server off --backend cuda x 2>&1); then
		echo "the static binary takes --backend cuda"
		exit 1
	fi
	case $message in
	*"without GPU backends"*) ;;
	*) echo "--backend cuda: $message"; exit 1 ;;
	esac
fi
