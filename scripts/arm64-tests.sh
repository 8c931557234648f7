#!/bin/sh
# Runs the arm64 kernels' tests: natively on arm64, under qemu-user elsewhere.
set -eu
GO=${GO:-go}
if [ "$($GO env GOARCH)" = arm64 ]; then
	echo "arm64: this machine is arm64, the unit tests have run natively"
	exit 0
fi
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [ -z "$qemu" ]; then
	echo "arm64: no qemu-aarch64, left out"
	[ -z "${CI:-}" ]
	exit
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for pkg in cpu quant rope; do
	GOOS=linux GOARCH=arm64 $GO test -c -o "$dir/$pkg.test" ./$pkg
	echo "arm64: $pkg under qemu"
	(cd "$pkg" && "$qemu" "$dir/$pkg.test" -test.short -test.timeout 20m)
done
