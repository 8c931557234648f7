# make demo    builds and answers a word problem with the embedded model
# make test    everything that CI runs: build, vet, staticcheck, tests, race, arm64, fuzz, cross-builds
#
# make cuda-kernels    PTX from the CUDA sources, by clang-22; checked in
# make cuda-test       the CUDA backend's tests on this machine's GPU 0
# make metal-test      the Metal backend's tests on this Mac's GPU, and the doctor's report
#
# Parts of make test that need a tool which is not there (qemu-aarch64 for arm64,
# a C compiler for the race detector, clang-22 for GPU kernels on the CPU) are left out with a line that says so;
# with CI set they must be there.

export CGO_ENABLED ?= 0
GO ?= go
FUZZTIME ?= 4s

.PHONY: build demo test vet staticcheck unit race arm64 fuzz cross slow cuda-kernels cuda-test metal-test clean

build:
	$(GO) build -trimpath -buildvcs=false -ldflags "-s -w $$(sh scripts/build-stamp.sh)" -o bin/windrow ./cmd/windrow

demo: build
	./bin/windrow generate --mode verified --stats "Maya has 4 crates with 12 apples each. She gives 5 apples to each of 6 friends. How many apples are left?"

# The race detector and the emulator of arm64 leave a core idle each: they run together.
test: build vet staticcheck unit
	@$(MAKE) --no-print-directory -j 2 race arm64
	@$(MAKE) --no-print-directory fuzz cross
	@echo "make test: all parts passed"

vet:
	$(GO) vet ./...
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt needed:"; gofmt -l $$(git ls-files '*.go'); exit 1; }

staticcheck:
	$(GO) tool staticcheck ./...

# GPU kernels run on the CPU here: minutes. CI plants all faults in the Metal
# kernels (TestMutations).
unit:
	$(if $(CI),WINDROW_MUTATIONS=all) $(GO) test -timeout 45m ./...

race:
	@if command -v gcc >/dev/null || command -v cc >/dev/null; then \
		set -x; CGO_ENABLED=1 $(GO) test -race -short ./decoder ./eval ./model ./tokenizer && CGO_ENABLED=1 $(GO) test -race -short -run 'Pool|Race|Concurrent|Pass' ./cpu && CGO_ENABLED=1 $(GO) test -race -short -run 'GPU|AtOnce' ./metal; \
	else echo "race: no C compiler, left out"; test -z "$$CI"; fi

arm64:
	GO="$(GO)" sh scripts/arm64-tests.sh

fuzz:
	GO="$(GO)" FUZZTIME="$(FUZZTIME)" sh scripts/fuzz-all.sh

cross:
	@for t in darwin/arm64 darwin/amd64 linux/arm64 linux/amd64 windows/amd64; do \
		echo "cross $$t"; GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build -o /dev/null ./cmd/windrow && \
		GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) vet ./cpu ./model ./metal ./metal/driver || exit 1; done
	$(GO) build -tags windrow_nomodel -o /dev/null ./cmd/windrow

# slow runs the long tiers: the whole held-out set, long property tests.
slow:
	WINDROW_SLOW=1 $(GO) test -timeout 60m ./...

cuda-kernels:
	sh cuda/kernels/build.sh

cuda-test:
	WINDROW_CUDA_DEVICE=0 $(GO) test -count 1 ./cuda

metal-test: build
	$(GO) test -count 1 ./metal/...
	./bin/windrow doctor --backend metal

clean:
	rm -rf bin dist
