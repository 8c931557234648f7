# make demo    builds and answers a word problem with the embedded model
# make test    build, vet, tests, arm64, other processors, the page: under 10 minutes on two cores.
#              With CI set, as in CI, all of them in full, races, staticcheck, other platforms, fuzzing, clients, releases: under 45 minutes
#
# make clients         clients of OpenAI's and Anthropic's APIs, for Go and of npm, against the program
# make cuda-kernels    PTX from the CUDA sources, by clang-22; checked in
# make cuda-test       the CUDA backend's tests on this machine's GPU 0
# make browser-test    the page's tests in a headless Chromium; part of make test where there is one
# make bare            tests that use tools, where there is Go alone; part of make test with CI set
# make race            tests that share memory between goroutines, under the race detector; part of make test with CI set
# make screenshots     the pictures of the page in docs/images, by the same
# make release-snapshot   archives and packages of this commit in dist, for all platforms; publishes nothing
# make release-check      the same twice for this processor, compared to the byte and tried; part of make test with CI set
# make install-test       and the deb in a fresh Debian, as root
# make wine-test          tests of the Windows build under Wine 10
# make man             the man pages in packaging/man from the table of commands; checked in
# make cross           builds for all platforms, and vets there; part of make test with CI set
# make metal-test      the Metal backend's tests on this Mac's GPU, and the doctor's report
#
# Parts of make test that need a tool which is not there (qemu for arm64 and for other processors,
# a C compiler for the race detector, clang-22 for GPU kernels on the CPU) are left out with a line that says so;
# with CI set they must be there. At its end make test says how long each part took, and what was left out and why.

export CGO_ENABLED ?= 0
GO ?= go
FUZZTIME ?= 4s

.PHONY: build demo test vet staticcheck unit load beside race bare arm64 processors browser browser-test screenshots fuzz clients man cross vulncheck release-snapshot release-tool release-check install-test wine-test slow cuda-kernels cuda-test metal-test clean

build:
	$(GO) build -trimpath -buildvcs=false -ldflags "-s -w $$(sh scripts/build-stamp.sh)" -o bin/windrow ./cmd/windrow

demo: build
	./bin/windrow generate --mode verified --stats "Maya has 4 crates with 12 apples each. She gives 5 apples to each of 6 friends. How many apples are left?"

# Most parts leave a core idle now and then: two or three run together. Beside the unit tests CI builds what it has to, with
# what processors' time they leave; beside load, fuzzing and clients nothing runs.
test:
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && export WINDROW_PARTS=$$dir && $(GO) build -o $$dir/parts ./scripts/parts && \
	code=0; $(MAKE) --no-print-directory PARTS=$$dir/parts all-parts || code=$$?; \
	$$dir/parts report || code=1; \
	if [ $$code = 0 ]; then echo "make test: all parts passed"; else echo "make test: FAILED"; fi; exit $$code

# A part is run by scripts/parts, which notes how long it took and what it left out. What go test would vet is vetted before.
PARTS ?= $(GO) run windrow/scripts/parts
PART = $(PARTS) run $@
GOTEST = $(PARTS) gotest $(GO) test -json -vet=off

.PHONY: all-parts
all-parts:
	@$(PARTS) run build sh -c '$(MAKE) --no-print-directory build && sh scripts/build-check.sh'
	@$(MAKE) --no-print-directory -j 2 vet $(if $(CI),staticcheck)
	@$(MAKE) --no-print-directory $(if $(CI),-j 2 beside) unit
	@$(MAKE) --no-print-directory load
	@$(MAKE) --no-print-directory -j 3 $(if $(CI),race bare) processors arm64 browser
	@$(if $(CI),$(MAKE) --no-print-directory fuzz clients release-check)
	@$(if $(CI),,$(PARTS) run staticcheck echo "left out: staticcheck without CI set, two minutes of a processor to build and to run: make staticcheck")
	@$(if $(CI),,$(PARTS) run bare echo "left out: tests where there is Go alone without CI set: make bare")
	@$(if $(CI),,$(PARTS) run race echo "left out: the race detector without CI set: minutes to build everything once more and to run: make race")
	@$(if $(CI),,$(PARTS) run fuzz echo "left out: fuzzing without CI set; the seeds of all targets have run")
	@$(if $(CI),,$(PARTS) run clients echo "left out: clients of the server without CI set, as they are fetched: make clients")
	@$(if $(CI),,$(PARTS) run cross echo "left out: builds for other platforms without CI set: make cross")
	@$(if $(CI),,$(PARTS) run release-check echo "left out: archives and packages without CI set, as their tools are fetched: make release-check")
	@$(if $(CI),,$(PARTS) run vulncheck echo "left out: known vulnerabilities without CI set, as they are fetched: make vulncheck")

vet:
	@$(PART) sh -c '$(GO) vet ./... && $(GO) test ./internal/house || exit; unformatted=$$(gofmt -l $$(git ls-files "*.go")); test -z "$$unformatted" || { echo "gofmt needed:" $$unformatted; exit 1; }'

staticcheck:
	@$(PART) $(GO) tool staticcheck ./...

# Without CI set -short leaves the longest out. GPU kernels run on the CPU here: minutes. CI
# plants all faults in the Metal kernels (TestMutations).
unit:
	@$(if $(CI),WINDROW_MUTATIONS=all) $(PART) sh -c '$(GOTEST) $(if $(CI),,-short) -timeout 45m $$($(GO) list ./... | grep -v /loadtest)'

# The tests of load compare times: nothing runs beside them.
load:
	@$(PART) sh -c '$(GOTEST) -timeout 15m ./server/loadtest'

# What is built for CI, one after the other.
beside:
	@for part in release-tool cross vulncheck; do nice -n 19 $(MAKE) --no-print-directory $$part || exit; done

race:
	@PARTS="$(PARTS)" GO="$(GO)" $(PART) sh scripts/race-tests.sh

# Tests as they are where there is Go alone.
bare:
	@GO="$(GO)" $(PART) sh scripts/bare-tests.sh

arm64:
	@PARTS="$(PARTS)" GO="$(GO)" $(PART) sh scripts/arm64-tests.sh

# The binary and the kernels' tests as processors that this machine is not.
processors:
	@PARTS="$(PARTS)" GO="$(GO)" $(PART) sh scripts/processors.sh

browser:
	@PARTS="$(PARTS)" GO="$(GO)" $(PART) sh scripts/browser-tests.sh

browser-test: build
	cd page/browsertest && WINDROW_BINARY=$(CURDIR)/bin/windrow $(GO) test -count 1 ./...

screenshots: build
	mkdir -p docs/images
	cd page/browsertest && WINDROW_BINARY=$(CURDIR)/bin/windrow $(GO) test -tags screenshots -count 1 -run TestScreenshots . -args -screenshots $(CURDIR)/docs/images

fuzz:
	@GO="$(GO)" FUZZTIME="$(FUZZTIME)" $(PART) sh scripts/fuzz-all.sh

# Clients of Go and npm against the program, in a module of their own.
clients:
	@$(PART) sh -c 'cd clients && $(GO) vet ./... && $(GO) test -count=1 -timeout 10m ./...'

cross:
	@GO="$(GO)" $(PART) sh scripts/cross-builds.sh

vulncheck:
	@GO="$(GO)" $(PART) sh scripts/vulncheck.sh

release-snapshot:
	@GO="$(GO)" sh scripts/release.sh all

# goreleaser takes minutes to build where the cache has nothing of it: CI does it beside the unit tests.
release-tool:
	@GO="$(GO)" $(PART) sh scripts/release.sh tool

release-check:
	@GO="$(GO)" $(PART) sh scripts/release-check.sh

install-test:
	@GO="$(GO)" sh scripts/release-check.sh fresh

wine-test:
	@GO="$(GO)" $(PART) sh scripts/wine-tests.sh

# slow runs the long tiers: the whole held-out set, long property tests.
slow:
	WINDROW_SLOW=1 $(GO) test -timeout 60m ./...

man:
	$(GO) test -count 1 -run 'TestManPages$$' ./cmd/windrow -update

cuda-kernels:
	sh cuda/kernels/build.sh

cuda-test:
	WINDROW_CUDA_DEVICE=0 $(GO) test -count 1 -p 1 ./cuda/launch ./cuda

metal-test: build
	$(GO) test -count 1 ./metal/...
	./bin/windrow doctor --backend metal

clean:
	rm -rf bin dist
