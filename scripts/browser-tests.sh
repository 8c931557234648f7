#!/bin/sh
# Runs the tests of the server's page in a headless Chromium: a module of their own.
set -eu
GO=${GO:-go}
PARTS=${PARTS:-$GO run windrow/scripts/parts}
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
	echo "left out: the page in a browser: needs chromium or google-chrome"
	[ -z "${CI:-}" ]
	exit
fi
if [ -z "${WINDROW_BINARY:-}" ]; then
	env -u MAKEFLAGS -u MFLAGS make --no-print-directory build # whose -j is not this one's
	export WINDROW_BINARY="$PWD/bin/windrow"
fi
$GO -C page/browsertest vet -tags screenshots ./...
$PARTS gotest $GO -C page/browsertest test -json -count 1 ./...
