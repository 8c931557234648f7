#!/bin/sh
# Runs tests of the windows/amd64 build under Wine 10 or later: mapped files, locks, sessions on disk, the console, paths
# with blanks and letters beyond ASCII, and the command line's scripts. Wine 8 lacks a DLL that Go needs.
# Not run: what needs Unix sockets or links, which Windows has and Wine 10 has not.
set -eu
GO=${GO:-go}
wine=$(command -v wine || true)
if [ -z "$wine" ]; then
	echo "left out: windows/amd64 under Wine: needs wine"
	exit 0
fi
version=$("$wine" --version | sed 's/^wine-\([0-9]*\).*/\1/')
if [ "$version" -lt 10 ]; then
	echo "left out: windows/amd64 under Wine: needs wine 10, here is $version"
	exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export WINEPREFIX="${WINEPREFIX:-$dir/prefix}" WINEDEBUG=-all LC_ALL=C.UTF-8
unset TMPDIR # Wine 10.0 aborts where it is set
"$wine" wineboot -i >/dev/null 2>&1 || true
links='TestSplitGGUF|TestSplitGGUFInACache|TestOpen'
echo "left out: $links of checkpoint under Wine: it does not follow links"
echo "left out: listen, the daemon under Wine: it has no Unix sockets"
for package in checkpoint convert filelock internal/atomicfile internal/memory internal/terminal session cmd/windrow; do
	test=$dir/$(basename "$package").test.exe
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $GO test -c -o "$test" "./$package"
	echo "windows: $package under Wine"
	# A console is there where standard output is a terminal.
	if [ "$package" = internal/terminal ] && command -v script >/dev/null; then
		(cd "$package" && script -qec "$wine $test -test.short" "$dir/typescript" </dev/null >/dev/null) || {
			cat "$dir/typescript"
			exit 1
		}
	fi
	(cd "$package" && "$wine" "$test" -test.short -test.timeout 10m -test.skip "^($links)\$")
done
