#!/bin/sh
# Makes archives and packages of this commit twice for linux on this machine's processor, the second time from a clone
# in another folder, with another umask and at another time; compares them to the byte; and tries what is in them
# (install-test.sh, which gets the arguments).
set -eu
export LC_ALL=C
git rev-parse --verify -q HEAD >/dev/null 2>&1 || {
	echo "left out: archives and packages: this is no clone, or git does not trust it"
	exit 0
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GORELEASER=${GORELEASER:-$(sh scripts/release.sh tool)} || exit 1
case $GORELEASER in
'left out: '*)
	echo "$GORELEASER"
	exit 0
	;;
esac
export GORELEASER
for name in one two-é; do
	git clone -q --no-hardlinks . "$dir/$name"
	(
		cd "$dir/$name"
		[ "$name" = one ] || umask 077
		sh scripts/release.sh one >"$dir/$name.log" 2>&1
	) || {
		tail -n 30 "$dir/$name.log"
		exit 1
	}
	rm -rf "$dir/$name/dist/windrow_linux_"* "$dir/$name/dist/windrow-static_linux_"*
done
if ! diff "$dir/one/dist/SHA256SUMS" "$dir/two-é/dist/SHA256SUMS"; then
	echo "two builds of one commit differ"
	exit 1
fi
for file in tar.gz deb rpm apk; do
	[ -n "$(find "$dir/one/dist" -name "*.$file")" ] || {
		echo "no .$file was made: $(ls "$dir/one/dist")"
		exit 1
	}
done
(cd "$dir/one/dist" && sha256sum -c --quiet SHA256SUMS)
commit=$(git rev-parse HEAD)
for archive in "$dir"/one/dist/windrow_*.tar.gz "$dir"/one/dist/windrow-static_*.tar.gz; do
	name=$(basename "$archive" .tar.gz)
	tar xzf "$archive" -C "$dir"
	for file in LICENSE README.md man/windrow.1 completions/windrow.bash; do
		[ -s "$dir/$name/$file" ] || {
			echo "$name lacks $file"
			exit 1
		}
	done
	"$dir/$name/windrow" version --json | grep -q "\"commit\": \"$commit\"" || {
		echo "$name: not of commit $commit: $("$dir/$name/windrow" version)"
		exit 1
	}
done
echo "two builds of $commit are equal: $(grep -c . "$dir/one/dist/SHA256SUMS") files"
sh scripts/install-test.sh "$dir/one/dist" "$@"
