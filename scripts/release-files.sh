#!/bin/sh
# Lays out in bin/release what packages bring besides the program: man pages, compressed; completions; the units of
# systemd with the path of a package; the copyright file; the source. The same commit gives the same bytes.
set -eu
out=bin/release
rm -rf "$out"
mkdir -p "$out/man" "$out/completions" "$out/systemd" "$out/source"
for page in packaging/man/*.1; do
	gzip -9nc "$page" >"$out/man/${page##*/}.gz"
done
for shell in bash zsh fish; do
	cp "cmd/windrow/completion/windrow.$shell" "$out/completions/"
done
cp cmd/windrow/completion/windrow.powershell "$out/completions/windrow.ps1"
for unit in service socket; do
	sed 's|%h/.local/bin/windrow|/usr/bin/windrow|' "packaging/systemd/windrow.$unit" >"$out/systemd/windrow.$unit"
done
grep -q '^ExecStart=/usr/bin/windrow ' "$out/systemd/windrow.service"
{
	echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
	echo "Upstream-Name: windrow"
	echo
	echo "Files: *"
	echo "Copyright: 2026 The Windrow authors"
	echo "License: Apache-2.0"
	echo " On Debian systems the text of the licence is in /usr/share/common-licenses/Apache-2.0."
} >"$out/copyright"
# git writes the commit into scripts/build-stamp.sh.
git -c tar.umask=0022 archive --format tar --prefix "windrow-$WINDROW_VERSION/" HEAD | gzip -9n >"$out/source/windrow-$WINDROW_VERSION.tar.gz"
chmod -R u=rwX,go=rX "$out"
