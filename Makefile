# All that a change needs, by name: `make help` lists it. Tools are pinned in go.mod, so
# Go, make, git and (for the race detector) a C compiler are enough.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PKGS     ?= ./...
RACE     ?= -race
TIMEOUT  ?= 15m
FUZZTIME ?= 30s
SEEDS    ?= 100
SIM_FOR  ?=
# Where planted faults are hunted.
FAULT_PKGS ?= ./partition ./internal/sim
# Packages whose tests are run on an emulated ARMv6: those that read, keep and copy bytes.
ARM_PKGS  ?= ./record ./storage ./partition ./transport/...
ARM_SHORT ?= ./record
qemu_armv6 := qemu-arm-static -cpu arm1176
qemu_armv7 := qemu-arm-static -cpu cortex-a7
qemu_arm64 := qemu-aarch64-static -cpu cortex-a53
# Pages as a Pi 5 has them.
qemu_arm64-16k  := qemu-aarch64-static -p 16384
build_arm64-16k := arm64

VERSION ?= $(shell git describe --tags --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
# When the commit was made, not when it was built: the same sources give the same bytes.
DATE    ?= $(shell TZ=UTC git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd HEAD 2>/dev/null || echo unknown)

# Go would ask git itself and fail where git refuses a checkout of another user. The
# stamp above copes with that, so it is the only one.
export GOFLAGS := -buildvcs=false $(GOFLAGS)

# Health and metrics are plain HTTP/1.1, so HTTP/2 stays out, and nobody prints a manual from the command.
TAGS     := nethttpomithttp2,urfave_cli_no_docs
LDFLAGS  := -s -w -buildid= -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
BUILD    := go build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)'
COMMANDS := ./cmd/edged ./cmd/edgectl

# A plain GOARCH=arm means ARMv7 and dies on a Pi Zero or 1, hence both by name.
PLATFORMS       := armv6 armv7 arm64 amd64
platform_armv6  := GOARCH=arm GOARM=6
platform_armv7  := GOARCH=arm GOARM=7
platform_arm64  := GOARCH=arm64
platform_amd64  := GOARCH=amd64
platform_riscv64 := GOARCH=riscv64
# A release also has what nobody here tries on its hardware.
RELEASE_PLATFORMS ?= $(PLATFORMS) riscv64
# What a node may weigh, in bytes, so that a library that drags half the world in is seen.
MAX_EDGED := 28000000

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build edged and edgectl for this machine into bin/
	mkdir -p bin
	CGO_ENABLED=0 $(BUILD) -o bin/ $(COMMANDS)

.PHONY: build-pi
build-pi: $(PLATFORMS:%=build-linux-%) ## build for Raspberry Pi and servers into bin/linux-{armv6,armv7,arm64,amd64}/
	@for v in 6 7; do \
		go version -m bin/linux-armv$$v/edged | grep -q "GOARM=$$v" || { echo "bin/linux-armv$$v/edged is not built for ARMv$$v" >&2; exit 1; }; \
	done

.PHONY: $(RELEASE_PLATFORMS:%=build-linux-%)
$(RELEASE_PLATFORMS:%=build-linux-%): build-linux-%:
	mkdir -p bin/linux-$*
	CGO_ENABLED=0 GOOS=linux $(platform_$*) $(BUILD) -o bin/linux-$*/ $(COMMANDS)

# What packs a release is a module of its own, so that it is no part of what is in it.
PACK := go -C deploy/deb

.PHONY: release
release: $(RELEASE_PLATFORMS:%=build-linux-%) check-binaries ## build all that is published into dist/: tarballs, debs, SBOMs, SHA256SUMS
	rm -rf dist && mkdir dist
	$(MAKE) --no-print-directory deb
	for p in $(RELEASE_PLATFORMS); do \
		tar --create --sort=name --format=ustar --mtime='$(DATE)' --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
			--transform "s,^linux-$$p,edged-$(VERSION)," -C bin "linux-$$p/edged" "linux-$$p/edgectl" | \
			gzip -9 -n >"dist/edged-$(VERSION)-linux-$$p.tar.gz"; \
	done
	for c in edged edgectl; do \
		$(PACK) tool cyclonedx-gomod bin -json -noserial -notimestamp -version '$(VERSION)' \
			-output "$(CURDIR)/dist/$$c-$(VERSION).cdx.json" "$(CURDIR)/bin/linux-$(firstword $(RELEASE_PLATFORMS))/$$c"; \
	done
	cd dist && sha256sum * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS && cat SHA256SUMS

DEB_ARCHES ?= armhf arm64 amd64
MAINTAINER ?= The edged authors <edged@localhost.localdomain>
.PHONY: deb
deb: ## pack DEB_ARCHES (armhf arm64 amd64) of what `make build-pi` has built into dist/*.deb
	mkdir -p dist
	$(PACK) run . -version '$(VERSION)' -date '$(DATE)' -maintainer '$(MAINTAINER)' -arch '$(DEB_ARCHES)'

.PHONY: check-deb
check-deb: ## ask lintian, shellcheck, mandoc and the shells about the packages in dist/ (Debian packages lintian shellcheck mandoc zsh fish)
	lintian --allow-root --fail-on error,warning dist/*.deb
	shellcheck deploy/deb/scripts/* deploy/deb/try
	mandoc -T lint -W error deploy/man/*
	d=$$(mktemp -d); trap 'rm -rf $$d' EXIT; dpkg-deb -x "$$(ls dist/*.deb | head -n 1)" $$d; \
	bash -n $$d/usr/share/bash-completion/completions/*; \
	zsh -n $$d/usr/share/zsh/vendor-completions/*; \
	fish --no-execute $$d/usr/share/fish/vendor_completions.d/*

TRY_ARCHES ?= amd64 armhf
.PHONY: try-deb
try-deb: ## install, run, upgrade, remove and purge the packages of TRY_ARCHES (amd64 armhf) in Debian trees (root; mmdebstrap arch-test qemu-user-static)
	@later=$$(mktemp -d); trap 'rm -rf $$later' EXIT; \
	for arch in $(TRY_ARCHES); do \
		$(PACK) run . -version '$(VERSION)' -date '$(DATE)' -arch $$arch; \
		$(PACK) run . -version '$(VERSION).1' -date '$(DATE)' -arch $$arch -out $$later; \
		deploy/deb/try $$arch "$$(ls -t dist/*_$$arch.deb | head -n 1)" $$later/*_$$arch.deb; \
	done

# Debian 12 has systemd 252, Debian 13 has 257.
TRY_SYSTEMD ?= bookworm trixie
.PHONY: try-systemd
try-systemd: $(TRY_SYSTEMD:%=bin/trees/systemd-%.tar) ## start, reload, stall and stop the packaged service under real systemds, in a user-mode Linux (root; user-mode-linux mmdebstrap, after make deb)
	for suite in $(TRY_SYSTEMD); do deploy/systemd/try bin/trees/systemd-$$suite.tar "$$(ls -t dist/*_amd64.deb | head -n 1)"; done

bin/trees/systemd-%.tar:
	mkdir -p bin/trees
	mmdebstrap --mode=root --variant=minbase --include=systemd,init-system-helpers $* $@.new.tar
	mv $@.new.tar $@

.PHONY: acceptance
acceptance: ## run what a device's service is accepted by, and print a table (an hour; ACCEPTANCE="1 2 7" for some)
	@deploy/acceptance

.PHONY: docs
docs: ## write the manual pages that are made from the code
	go test ./cmd/edged ./cmd/edgectl -count=1 -run TestManual -update

.PHONY: check-binaries
check-binaries: ## look whether what was built into bin/linux-* is static, stripped, for the right CPU, and light
	@EDGED_BINARIES=$(CURDIR)/bin MAX_EDGED=$(MAX_EDGED) RELEASE_PLATFORMS='$(RELEASE_PLATFORMS)' $(PACK) test -count=1 -run TestBinaries -v .

.PHONY: check-reproducible
check-reproducible: ## build REPRODUCE (armv6) twice, from two directories and with two caches, and compare the bytes
	@a=$$(mktemp -d); b=$$(mktemp -d); trap 'chmod -R u+w $$a $$b; rm -rf $$a $$b' EXIT; \
	git clone -q . $$a/src; git clone -q $$a/src $$b/src; \
	for d in $$a $$b; do \
		GOCACHE=$$d/cache $(MAKE) --no-print-directory -C $$d/src release RELEASE_PLATFORMS=$(REPRODUCE) DEB_ARCHES=$(REPRODUCE_DEB) VERSION=$(VERSION) >/dev/null; \
	done; \
	diff $$a/src/dist/SHA256SUMS $$b/src/dist/SHA256SUMS && cat $$a/src/dist/SHA256SUMS && echo "built twice: the same bytes"
REPRODUCE     ?= armv6
REPRODUCE_DEB ?= armhf

.PHONY: test
test: ## run all tests with the race detector (PKGS=./record for one package, RACE= without)
	go test $(RACE) -timeout $(TIMEOUT) $(PKGS)

.PHONY: test-long
test-long: ## run the tests with real processes at length (an hour; as root nothing is skipped) and print figures
	EDGED_TEST_LONG=1 go test -count=1 -v -timeout 2h ./test

.PHONY: interop-kafka
interop-kafka: ## compare edged's answers with those of Apache Kafka (needs Java 17 and Maven)
	cd test/interop && go test -count=1 -timeout $(TIMEOUT) ./kafka

CUTS ?= 200
.PHONY: power-cut
power-cut: ## cut the power of nodes in the middle of the load, CUTS (200) times for one node and for three, on cards of ext4 over FUSE (root)
	EDGED_POWER_CUTS=$(CUTS) go test -count=1 ./internal/card
	EDGED_POWER_CUTS=$(CUTS) go test -count=1 -v -timeout 5h -run '^Test(PowerCut|SlowCard)_' ./test

.PHONY: power-cut-short
power-cut-short: ## cut the power five times for one node, for three, and on cards that lie; says so where that is impossible
	go test -c -o bin/power.test ./test
	cd test && EDGED_POWER_CUTS=5 timeout --kill-after=10 300 ../bin/power.test -test.v -test.timeout 280s -test.run '^TestPowerCut_' || \
		{ cd .. && EDGED_POWER_CUTS=1 timeout 60 go test -count=1 -run '^TestSweep' ./internal/card; exit 1; } # nothing stays mounted

.PHONY: test-32
test-32: ## run all tests as a 32-bit program on a PC: int and alignment are as on a small Pi
	CGO_ENABLED=0 GOARCH=386 go test -timeout $(TIMEOUT) $(PKGS)

.PHONY: interop
interop: ## let Kafka's clients judge real processes and print a table (JUDGES="kcat kgo" for some, SHORT=1 for less)
	cd test/interop && go vet ./... && JUDGES="$(JUDGES)" SHORT="$(SHORT)" go test -count=1 -parallel 2 -timeout 30m -v .

SUITES ?= kgo kafka-go sarama librdkafka
.PHONY: interop-suites
interop-suites: ## run the test suites of kgo, kafka-go, sarama and librdkafka against edged, or SUITES (as root; half an hour)
	cd test/interop && SUITES="$(SUITES)" go test -count=1 -timeout 60m -run TestSuites -v .

.PHONY: interop-ports
interop-ports: ## measure the same records through both ports of the same nodes, one and three, and print a table
	cd test/interop && PORTS=1 go test -count=1 -timeout $(TIMEOUT) -run TestPorts -v .

.PHONY: test-arm
test-arm: round-trip-armv6 round-trip-armv7 round-trip-arm64 round-trip-arm64-16k ## run ARM_PKGS on an emulated ARMv6, and three nodes of each kind of ARM that lose their leader (needs qemu-user-static)
	CGO_ENABLED=0 GOARCH=arm GOARM=6 go test -short -timeout 60m -p 1 -exec '$(qemu_armv6)' $(ARM_PKGS)

.PHONY: test-arm-short
test-arm-short: round-trip-armv6 ## the part of test-arm that every change runs: under two minutes
	CGO_ENABLED=0 GOARCH=arm GOARM=6 go test -short -timeout $(TIMEOUT) -exec '$(qemu_armv6)' $(ARM_SHORT)

# round-trip-% of each emulated machine; the binaries are those of its name, or of build_%.
round_trips := $(patsubst %,round-trip-%,armv6 armv7 arm64 arm64-16k)
.PHONY: $(round_trips)
.SECONDEXPANSION:
$(round_trips): round-trip-%: build-linux-$$(or $$(build_$$*),$$*)
	@mkdir -p bin/emulated-$*; for c in edged edgectl; do \
		printf '#!/bin/sh\nexec %s "%s" "$$@"\n' '$(qemu_$*)' "$(CURDIR)/bin/linux-$(or $(build_$*),$*)/$$c" >bin/emulated-$*/$$c; \
		chmod +x bin/emulated-$*/$$c; \
	done
	bin/emulated-$*/edged version
	bin/emulated-$*/edgectl --version
	EDGED_TEST_EMULATED=1 EDGED_TEST_BIN=$(CURDIR)/bin/emulated-$* go test -count=1 -timeout $(TIMEOUT) -run '^TestRoundTrip_' ./test

.PHONY: check
check: check-format check-tidy vet staticcheck arrows build-pi ## all that a change needs beside the tests
	@echo "check: all passed"

.PHONY: check-format
check-format:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted (run: make format):"; echo "$$out"; exit 1; fi

.PHONY: check-tidy
check-tidy:
	@go mod tidy -diff || { echo "go.mod or go.sum is not tidy (run: go mod tidy)"; exit 1; }

.PHONY: vet
vet:
	go vet $(PKGS)
	CGO_ENABLED=0 GOOS=linux $(platform_armv6) go vet $(PKGS)

.PHONY: staticcheck
staticcheck:
	go tool staticcheck $(PKGS)

.PHONY: arrows
arrows: ## check which package imports which
	go test ./internal/deptest

.PHONY: format
format: ## format all Go files
	gofmt -w .

.PHONY: demo
demo: build ## run a cluster on this machine, kill its leader, and watch what happens
	go run ./internal/demo

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s); what it finds is kept in testdata/fuzz of its package
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's|^(.*)/[^/]*:func (.*)|\1 \2|' | sort | \
	while read -r dir target; do \
		echo "== $$dir $$target"; \
		go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$$dir"; \
	done

.PHONY: bench
bench: ## run all benchmarks
	go test -run '^$$' -bench . -benchmem $(PKGS)

.PHONY: sim
sim: ## run the simulated cluster with SEEDS (100) different seeds, or for SIM_FOR (as 3m), on all cores
	mkdir -p bin
	go test -c -o bin/sim.test ./internal/sim
	cd internal/sim && EDGED_SIM_SEEDS=$(SEEDS) EDGED_SIM_FOR=$(SIM_FOR) EDGED_SIM_WORKERS=$$(nproc) ../../bin/sim.test -test.run '^TestSim$$' -test.timeout 0

.PHONY: faults
faults: ## see that each planted fault is found (FAULT_PKGS=./partition for the quick half)
	go test -count=1 -timeout 60m -tags edged_faults -run Faults $(FAULT_PKGS)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
