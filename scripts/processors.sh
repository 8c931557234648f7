#!/bin/sh
# Runs the binary and the tests of cpu and cpu/kernels as processors that this machine
# is not, under qemu-user: each works, or says in one line what it lacks and
# ends with 1. An instruction that the processor lacks is a SIGILL there.
set -eu
GO=${GO:-go}
PARTS=${PARTS:-$GO run windrow/scripts/parts}
if [ "$($GO env GOOS)/$($GO env GOARCH)" != linux/amd64 ]; then
	echo "left out: other processors are emulated on linux/amd64 only"
	exit
fi
qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static || true)
if [ -z "$qemu" ]; then
	echo "left out: other processors need qemu-x86_64"
	[ -z "${CI:-}" ]
	exit
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export WINDROW_CACHE=off
$GO build -o "$dir/windrow" ./cmd/windrow
if [ -n "${CI:-}" ]; then
	$GO test -c -o "$dir/cpu.test" ./cpu
	$GO test -c -o "$dir/kernels.test" ./cpu/kernels
fi
question="A hall has 5 rows with 9 chairs in each row. How many chairs are there?"
answer=$("$dir/windrow" generate --backend cpu --mode verified --window 4 -n 8 "$question")

# The suite of whole forwards, and what is timed, take many minutes when
# emulated: the answer stands for the former.
skip='TestConformance|TestHybridAnswers|TestHybridFaults|TestAccelerate|TestMeasureBandwidth'
echo "left out: whole forwards (TestConformance, TestHybrid*) and timings under the emulator: the answer stands for the former"
run() { # NAME QEMU-CPU TABLE PACKAGES: the table that it should choose, and whose tests are run
	echo "processors: $1"
	"$qemu" -cpu "$2" "$dir/windrow" version >"$dir/out" 2>"$dir/err" || { echo "$1: version ended with $?"; cat "$dir/out" "$dir/err"; exit 1; }
	grep -q "$3" "$dir/out" || { echo "$1: want the kernels $3"; cat "$dir/out"; exit 1; }
	got=$("$qemu" -cpu "$2" "$dir/windrow" generate --backend cpu --mode verified --window 4 -n 8 "$question" 2>"$dir/err") || {
		echo "$1: generate ended with $?"; cat "$dir/err"; exit 1; }
	[ "$got" = "$answer" ] || { echo "$1: answered $got, this machine $answer"; exit 1; }
	# A table that it cannot run is refused in one line.
	code=0
	"$qemu" -cpu "$2" "$dir/windrow" generate --backend cpu --kernels amx hi >"$dir/out" 2>"$dir/err" || code=$?
	[ $code = 1 ] && [ "$(grep -vc '^qemu' "$dir/err")" = 1 ] && grep -q 'lacks' "$dir/err" || { echo "$1: --kernels amx ended with $code"; cat "$dir/err"; exit 1; }
	[ -n "${CI:-}" ] || return 0
	for pkg in $4; do
		(cd $pkg && $PARTS gotest $GO tool test2json -p "windrow/$pkg as $1" "$qemu" -cpu "$2" "$dir/$(basename $pkg).test" -test.v=test2json -test.short -test.timeout 20m -test.skip "$skip" 2>"$dir/err") || {
			cat "$dir/err"; exit 1; }
	done
}
run Nehalem Nehalem go-f32 "cpu cpu/kernels"
run Haswell Haswell avx2-f32 "cpu cpu/kernels"
if [ -z "${CI:-}" ]; then
	echo "left out: tests of kernels as other processors without CI set: a minute each under an emulator"
	echo "left out: answers as Haswell without FMA and as Skylake without CI set: half a minute each under an emulator"
	exit
fi
# Their tables are those of the two above: what differs is which routines they may run.
run "Haswell without FMA and F16C" Haswell,-fma,-f16c go-f32 cpu/kernels
run Skylake-Client Skylake-Client avx2-f32 cpu/kernels
