#!/bin/sh
# Prints the linker's flags that tell windrow its commit, the commit's date, and the release where a tag says so;
# nothing where this is neither a clone nor an archive that git made of one. The Go tool's own stamp is not enough:
# it is left out where GOFLAGS has -buildvcs=false, and an error where git distrusts the folder's owner (a container's
# mount, sudo make). Who runs make runs what is in this folder already, so it may be trusted here: a repository that
# is named is not asked for its owner, by any version of git (before 2.38 -c safe.directory was passed over).
if [ -e .git ] && command -v git >/dev/null; then
	git() { GIT_DIR=.git GIT_WORK_TREE=. command git "$@" 2>/dev/null; }
	commit=$(git rev-parse --verify HEAD) || exit 0
	status=$(git status --porcelain) || exit 0
	date=$(git log -1 --format=%cI)
	tag=$(git describe --tags --exact-match --match 'v[0-9]*')
else
	# git archive fills these in (.gitattributes).
	commit='$Format:%H$' date='$Format:%cI$' status='' tag=''
	case $commit in '$'*) exit 0 ;; esac
fi
printf -- '-X main.stampedCommit=%s -X main.stampedDate=%s' "$commit" "$date"
[ -z "$status" ] || printf ' -X main.stampedModified=true'
[ -z "$tag" ] || printf ' -X main.version=%s' "${tag#v}"
exit 0
