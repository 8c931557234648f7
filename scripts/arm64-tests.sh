#!/bin/sh
# Runs the arm64 kernels' tests: natively on arm64, under qemu-user elsewhere.
set -eu
GO=${GO:-go}
PARTS=${PARTS:-$GO run windrow/scripts/parts}
if [ "$($GO env GOARCH)" = arm64 ]; then
	echo "arm64: the unit tests have run natively"
	exit 0
fi
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [ -z "$qemu" ]; then
	echo "left out: arm64 needs qemu-aarch64"
	[ -z "${CI:-}" ]
	exit
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
packages="cpu cpu/kernels quant rope"
if [ -z "${CI:-}" ]; then
	packages="quant rope"
	echo "left out: arm64's kernels and forwards without CI set: minutes under an emulator"
fi
for pkg in $packages; do
	test=$dir/$(basename "$pkg").test
	GOOS=linux GOARCH=arm64 $GO test -c -o "$test" ./$pkg
	echo "arm64: $pkg under qemu"
	(cd "$pkg" && $PARTS gotest $GO tool test2json -p "windrow/$pkg" "$qemu" "$test" -test.v=test2json -test.short -test.timeout 20m)
done
