#!/bin/sh
# Looks up what is linked into windrow in Go's database of vulnerabilities, with govulncheck, pinned, run as a tool.
# VULNDB=URL is another database. Where the tool or the database cannot be reached, a line says so.
set -eu
GO=${GO:-go}
tool=golang.org/x/vuln/cmd/govulncheck@v1.9.0
# First what is in the cache: go run asks for more than it needs, which fails without network.
GOPROXY="file://$($GO env GOMODCACHE)/cache/download,$($GO env GOPROXY)"
export GOPROXY
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# Apart from its run: what cannot be built is no finding.
if ! GOFLAGS='' $GO run "$tool" -version >"$out" 2>&1 && ! grep -q '^Scanner:' "$out"; then
	echo "left out: known vulnerabilities: govulncheck cannot be built here: $(grep -v '^go: downloading' "$out" | tail -n 1)"
	exit 0
fi
code=0
GOFLAGS='' $GO run "$tool" ${VULNDB:+-db "$VULNDB"} ./cmd/windrow >"$out" 2>&1 || code=$?
if [ "$code" = 0 ]; then
	cat "$out"
elif grep -q '^Vulnerability #' "$out"; then
	cat "$out"
	exit 1
elif grep -q -e 'fetching vulnerabilities' -e 'fetching DB' "$out"; then
	echo "left out: known vulnerabilities: the database cannot be reached: $(grep -m 1 'fetching' "$out")"
else
	cat "$out"
	exit 1
fi
