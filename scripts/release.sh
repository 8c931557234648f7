#!/bin/sh
# Makes archives and packages of this commit in dist, and publishes nothing.
#
#	release.sh          all targets, with SBOMs: make release-snapshot
#	release.sh one      linux on this machine's processor alone, without SBOMs: what make release-check does twice
#	release.sh tool     only builds goreleaser where it is not there, and prints its path
#
# goreleaser and syft are programs of their own, pinned here, built into bin/tools from the Go module proxy or from the
# module cache; with both there it needs no network. What is there already is taken: GORELEASER=PATH, SYFT=PATH.
set -eu
GO=${GO:-go}
goreleaser=github.com/goreleaser/goreleaser/v2@v2.16.0
syft=github.com/anchore/syft/cmd/syft@v1.54.1
targets=${1:-all}
tools=$PWD/bin/tools
# First what is in the cache: go install asks for more than it needs, which fails without network.
GOPROXY="file://$($GO env GOMODCACHE)/cache/download,$($GO env GOPROXY)"
export GOPROXY

# tool NAME MODULE [PATH]: prints a program's path, and builds it where it is not there.
tool() {
	version=${2##*@}
	path=${3:-$tools/$1-$version}
	if [ ! -x "$path" ]; then
		mkdir -p "$tools/new"
		echo "building $1 $version" >&2
		GOFLAGS='' GOBIN=$tools/new CGO_ENABLED=0 GOOS='' GOARCH='' $GO install "$2" >"$tools/$1.log" 2>&1 || {
			grep -v '^go: downloading' "$tools/$1.log" | tail -n 1 >&2
			return 1
		}
		mv "$tools/new/$1" "$path"
	fi
	echo "$path"
}

[ -e .git ] || {
	echo "left out: archives and packages: this is no clone"
	exit 0
}
release=$(tool goreleaser "$goreleaser" "${GORELEASER:-}") || {
	echo "left out: archives and packages: goreleaser ${goreleaser##*@} cannot be built here"
	[ "$targets" != all ]
	exit
}
if [ "$targets" = tool ]; then
	echo "$release"
	exit
fi
version=$(sed -n 's/^var version = "\(.*\)"$/\1/p' cmd/windrow/version.go)
tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || true)
[ -z "$tag" ] || version=${tag#v}
export WINDROW_VERSION="$version"
WINDROW_COMMIT=$(git rev-parse HEAD)
WINDROW_DATE=$(git log -1 --format=%cI)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
WINDROW_MODIFIED=false
[ -z "$(git status --porcelain)" ] || WINDROW_MODIFIED=true
export WINDROW_COMMIT WINDROW_DATE SOURCE_DATE_EPOCH WINDROW_MODIFIED

config=.goreleaser.yaml
skip=
if [ "$targets" = one ]; then
	mkdir -p bin
	config=bin/goreleaser-one.yaml
	sed -e 's/goos: \[linux, darwin, windows\]/goos: [linux]/' -e "s/goarch: \[amd64, arm64\]/goarch: [$($GO env GOHOSTARCH)]/" .goreleaser.yaml >"$config"
	skip=--skip=sbom
elif path=$(tool syft "$syft" "${SYFT:-}"); then
	mkdir -p "$tools/path"
	ln -sf "$path" "$tools/path/syft"
	export PATH="$tools/path:$PATH"
else
	echo "left out: SBOMs: syft ${syft##*@} cannot be built here"
	skip=--skip=sbom
fi
# Nothing is fetched, and nobody is told: modules are in the cache since the build.
"$release" release --snapshot --clean --config "$config" $skip

# The formula builds from the source archive that lies beside it.
url=${WINDROW_RELEASE_URL:-file://$PWD/dist}
sum=$(sed -n "s/^\([0-9a-f]*\)  windrow-$version\.tar\.gz\$/\1/p" dist/SHA256SUMS)
cp bin/release/source/* dist/
[ -n "$sum" ] || { echo "dist/SHA256SUMS has no source archive of $version"; exit 1; }
sed -e "s|@URL@|$url|g" -e "s|@VERSION@|$version|g" -e "s|@SHA256@|$sum|g" packaging/homebrew/windrow.rb >dist/windrow.rb
