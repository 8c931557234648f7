#!/bin/sh
# Makes PTX of the CUDA sources with clang, without a CUDA toolkit:
#   sh build.sh [-o DIR] [FILE...]    FILE.cu -> FILE.sm_80.ptx.gz and FILE.sm_90a.ptx.gz; all files by default
# (zcat shows them)
# A file whose name ends in _hopper has an sm_90a image only.
set -eu
cd "$(dirname "$0")"
CLANG=${CLANG:-clang-22}
out=.
if [ "${1:-}" = -o ]; then
	out=$2
	shift 2
fi
if [ $# = 0 ]; then
	set -- *.cu
fi

# No contraction across statements: it would depend on what the optimizer
# makes of each instance of a template, and with it the bits of a row.
flags="-x cuda --cuda-device-only -nocudainc -nocudalib -std=gnu++20 -O3 -S -ffp-contract=on -Wall -Wno-unknown-cuda-version -Wno-unused-function"

# Made elsewhere and moved: an image in this folder is whole, and nothing else is in it.
temporary=$(mktemp -d "$out/.build-XXXXXX")
trap 'rm -rf "$temporary"' EXIT

image() { # file architecture PTX-version flags...
	f=$1 arch=$2 ptx=$3
	shift 3
	"$CLANG" $flags --cuda-gpu-arch=$arch --cuda-feature=+$ptx "$@" -o "$temporary/ptx" "$f.cu"
	# Kernels whose names end in _pair run in clusters of two blocks, those that end in _cN of N, for which clang has no attribute.
	awk '/\.entry / { blocks = /_pair\(/ ? 2 : match($0, /_c[0-9]+\(/) ? substr($0, RSTART + 2, RLENGTH - 3) : 1 }
		blocks > 1 { sub(/\.minnctapersm [0-9]+/, "&\n.explicitcluster\n.reqnctapercluster " blocks ", 1, 1") }
		{ print }' "$temporary/ptx" >"$temporary/marked"
	gzip -9nc "$temporary/marked" >"$temporary/$f.$arch.ptx.gz"
	mv "$temporary/$f.$arch.ptx.gz" "$out/"
}

for f; do
	f=$(basename "$f" .cu)
	case $f in
	*_hopper) ;;
	*) image "$f" sm_80 ptx74 ;;
	esac
	case $f in
	tiled_* | few_* | delta_few_*) image "$f" sm_90a ptx81 -DHOPPER ;; # st.async
	*) image "$f" sm_90a ptx80 -DHOPPER ;;
	esac
done
