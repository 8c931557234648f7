#!/bin/sh
# install-test.sh DIST: tries the archives and packages of a folder that release.sh made. The static binary runs in an
# empty root; the packages list what they should; with "fresh" as the second argument the deb is installed in a fresh
# Debian (debootstrap), used, and purged, which needs root, debootstrap and a mirror.
set -eu
export LC_ALL=C WINDROW_CACHE=off
dist=$(cd "$1" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
	echo "$*"
	exit 1
}
# answers COMMAND…: the command is windrow; it must answer right.
answers() {
	answer=$("$@" generate --server off "What is 17 + 25?")
	case $answer in
	*"#### 42"*) ;;
	*) fail "$*: answers $answer" ;;
	esac
}

mkdir "$dir/scratch"
tar xzf "$dist"/windrow-static_*_linux_*.tar.gz -C "$dir"
mv "$dir"/windrow-static_*/windrow "$dir/scratch/"
if [ "$(id -u)" = 0 ]; then
	answers chroot "$dir/scratch" /windrow
elif unshare -r true 2>/dev/null; then
	answers unshare -r chroot "$dir/scratch" /windrow
else
	echo "left out: the static binary in an empty root: needs root or user namespaces"
	answers "$dir/scratch/windrow"
fi

cat >"$dir/files" <<'LIST'
/usr/bin/windrow
/usr/share/man/man1/windrow.1.gz
/usr/share/man/man1/windrow-generate.1.gz
/usr/share/bash-completion/completions/windrow
/usr/share/fish/vendor_completions.d/windrow.fish
LIST
units="/usr/lib/systemd/user/windrow.service /usr/lib/systemd/user/windrow.socket"
# has PACKAGE FILE…: the list of the package's files is standard input.
has() {
	package=$1
	shift
	sed -e 's|^\./||' -e 's|^/||' -e 's|^|/|' >"$dir/list"
	for file in $(cat "$dir/files") "$@"; do
		grep -qx "$file" "$dir/list" || fail "$package lacks $file"
	done
}
tar tzf "$dist"/windrow_*.apk 2>/dev/null | has apk /usr/share/licenses/windrow/LICENSE /usr/share/zsh/site-functions/_windrow
if command -v dpkg-deb >/dev/null; then
	dpkg-deb --fsys-tarfile "$dist"/windrow_*.deb | tar t | has deb /usr/share/doc/windrow/copyright /usr/share/zsh/vendor-completions/_windrow $units
	# Nothing may differ in owner or mode from what a package of Debian's would have.
	dpkg-deb --fsys-tarfile "$dist"/windrow_*.deb | tar tv | grep -v -e '^-rw-r--r-- root/root' -e '^drwxr-xr-x root/root' -e '^-rwxr-xr-x root/root.*/usr/bin/windrow$' && fail "owners or modes of the deb"
else
	echo "left out: what the deb has: needs dpkg-deb"
fi
if command -v rpm >/dev/null; then
	# What a root of its own has before: rpm takes no folder away that it did not make.
	mkdir -p "$dir/rpmroot/usr/bin" "$dir/rpmroot/usr/lib/systemd/user" "$dir/rpmroot/usr/share/man/man1" "$dir/rpmroot/usr/share/bash-completion/completions" \
		"$dir/rpmroot/usr/share/zsh/site-functions" "$dir/rpmroot/usr/share/fish/vendor_completions.d" "$dir/rpmroot/usr/share/licenses" "$dir/rpmroot/root"
	if [ "$(id -u)" = 0 ]; then
		(cd "$dir/rpmroot" && find usr | sort) >"$dir/rpm-before"
		rpm --root "$dir/rpmroot" --initdb 2>/dev/null
		rpm --root "$dir/rpmroot" -i --nodeps "$(realpath "$dist"/windrow-*.rpm)" 2>/dev/null || fail "rpm -i"
		answers "$dir/rpmroot/usr/bin/windrow"
		rpm --root "$dir/rpmroot" -e windrow 2>/dev/null || fail "rpm -e"
		(cd "$dir/rpmroot" && find usr | sort) | diff "$dir/rpm-before" - || fail "the rpm leaves something"
	else
		echo "left out: the rpm in a root of its own: needs root"
	fi
	rpm -qlp "$dist"/windrow-*.rpm 2>/dev/null | has rpm /usr/share/licenses/windrow/LICENSE /usr/share/zsh/site-functions/_windrow $units
else
	echo "left out: what the rpm has: needs rpm"
fi

if [ "${2:-}" != fresh ]; then
	echo "left out: the deb in a fresh Debian: make install-test, as root"
	exit 0
fi
[ "$(id -u)" = 0 ] || fail "the deb in a fresh Debian: needs root"
root=$dir/root
mirror=${MIRROR:-$(sed -n -e 's/^deb \(\[[^]]*\] \)\{0,1\}\(http[^ ]*\) .*/\2/p' -e 's/^URIs: *\(http[^ ]*\).*/\1/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v -e security -e '-security' | head -n 1)}
echo "debootstrap from ${mirror:-its default}"
debootstrap --variant=minbase stable "$root" ${mirror:+"$mirror"} >"$dir/debootstrap.log" 2>&1 || fail "debootstrap: $(tail -n 3 "$dir/debootstrap.log")"
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$dir"' EXIT
mount -t proc proc "$root/proc"
# What dpkg and the loader keep for themselves is no leftover.
tree() { (cd "$root" && find . -xdev -path ./proc -prune -o -path ./var/lib/dpkg -prune -o -path ./var/log -prune -o -path ./var/cache/ldconfig -prune -o -print | sort); }
tree >"$dir/before"
cp "$dist"/windrow_*.deb "$root/windrow.deb"
chroot "$root" dpkg -i /windrow.deb || fail "dpkg -i"
rm "$root/windrow.deb"
tree >"$dir/installed"
user="chroot --userspec=65534:65534 $root env HOME=/tmp/home WINDROW_CACHE= "
$user windrow version || fail "windrow version"
answers $user windrow
$user windrow start >/dev/null && $user windrow status && $user windrow stop || fail "the server in the background"
chroot "$root" sh -c 'zcat /usr/share/man/man1/windrow-generate.1.gz | grep -q "answer a prompt"' || fail "the man page"
completed=$(chroot "$root" bash -c '. /usr/share/bash-completion/completions/windrow
	compopt() { :; }; COMP_LINE="windrow vers"; COMP_POINT=12; COMP_WORDS=(windrow vers); COMP_CWORD=1; _windrow; echo "${COMPREPLY[@]}"')
[ "$completed" = version ] || fail "completion gives \"$completed\", want version"
rm -rf "$root/tmp/home"
chroot "$root" dpkg --purge windrow || fail "dpkg --purge"
tree >"$dir/after"
diff "$dir/before" "$dir/after" || fail "the purge leaves something"
echo "$(comm -13 "$dir/before" "$dir/installed" | grep -c .) files and folders were installed in $(cat "$root/etc/debian_version"), used, and purged without a trace"
