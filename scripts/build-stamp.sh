#!/bin/sh
# Prints the linker's flags that tell windrow its commit, the commit's date, and the release where a tag says so;
# nothing where this is no clone. The Go tool's own stamp is not enough: it is left out where GOFLAGS has
# -buildvcs=false, and an error where git distrusts the folder's owner (a container's mount, sudo make). Who runs make
# runs what is in this folder already, so it may be trusted here.
git() { command git -c safe.directory='*' "$@" 2>/dev/null; }
prefix=$(git rev-parse --show-prefix) && [ -z "$prefix" ] || exit 0 # a part of another repository
commit=$(git rev-parse HEAD) || exit 0
status=$(git status --porcelain) || exit 0
printf -- '-X main.stampedCommit=%s -X main.stampedDate=%s' "$commit" "$(git log -1 --format=%cI)"
[ -z "$status" ] || printf ' -X main.stampedModified=true'
tag=$(git describe --tags --exact-match --match 'v[0-9]*') && printf ' -X main.version=%s' "${tag#v}"
exit 0
