#!/bin/sh
# Checks that what make build made in a clone knows its commit.
set -eu
head=$(GIT_DIR=.git git rev-parse --verify -q HEAD 2>/dev/null) || exit 0
./bin/windrow version --json | grep -q "\"commit\": \"$head\"" || {
	echo "bin/windrow is not of commit $head: $(./bin/windrow --version)"
	exit 1
}
