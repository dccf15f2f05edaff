# Builds, tests and measures Keepsake. `make` alone lists the targets. Every step prints its heading
# and its duration.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help run build-for-run test test-all test-long test-outside sim fuzz torture bench quality wishes judge lint model kafka clean check-build check-fuzz check-kafka check-deny release packages

MODEL := $(CURDIR)/.keepsake/model
KEEPSAKE := $(or $(CARGO_TARGET_DIR),target)/release/keepsake
# The nightly compiler has the sanitizers that cargo-fuzz asks for; without one, stable does.
FUZZ_TARGETS := $(notdir $(wildcard tests/data/fuzz/*))
FUZZ_SECONDS := 60
FUZZ_CARGO := $(if $(findstring --sanitizer=none,$(FUZZ)),,+nightly)
RUST_MIN := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# cargo-deny from the PATH; if there is none, `check-deny` builds this version in .keepsake/tools.
DENY_VERSION := 0.20.2
DENY := $(or $(shell command -v cargo-deny),.keepsake/tools/bin/cargo-deny)

tests = KEEPSAKE_TEST_MODEL='$(MODEL)' cargo test --locked
# Most tests wait for a broker or a process, so more run at a time than there are cores: two a core, and
# three on two cores of the long ones.
cores = $$(getconf _NPROCESSORS_ONLN)
many_at_a_time = RUST_TEST_THREADS=$$((2 * $(cores))) $(tests)
some_at_a_time = RUST_TEST_THREADS=$$(((3 * $(cores) + 1) / 2)) $(tests)

# Scenarios that take minutes together: `make test-all` runs them. `make test` keeps one of every law, on both brokers.
LONG := backup:: broker:: faults:: full_disk:: fuzz:: gateway::attacks gateway::explorer gateway::flood gateway::hidden \
	gateway::hosted gateway::places generation:: handover:: mcp:: old_events:: prometheus:: quality:: registry:: \
	rights:: secrets:: security:: seeds:: sim::the_simulator_finds_planted_bugs subject:: tracing:: verify:: worst:: \
	written::

# Long scenarios that measure how long somebody waits, or kill by the clock: one a core.
MEASURED := fuzz:: gateway::flood gateway::places handover:: prometheus:: torture:: worst::

# Scenarios that `make test` runs with a few kills and seeds, and `make test-all` with many.
OFTEN := law_nothing_lost_under_kill_9 hooks::law_nothing_lost sim::the_laws_hold torture::
MANY := KEEPSAKE_KILLS=20 KEEPSAKE_TORTURE_KILLS=20 KEEPSAKE_TORTURE_EMBEDDED=5 KEEPSAKE_SIM_SEEDS=2000

# What the steps with named tests print, and a check that each test of CONFORMANCE.md is among the passed ones.
RAN := .keepsake/ran
noted = $(1) 2>&1 | tee $(RAN)/$(2)
conformance = $(tests) --test integration -- --list $(LONG) >$(RAN)/list; python3 tests/conformance.py $(1) $(RAN)/list $(2:%=$(RAN)/%)

# $(call step,heading,command); no comma inside the command, make would cut it there.
define step
@printf '\n── %s\n' '$(1)'; SECONDS=0; \
mkdir -p $(RAN); \
trap 'code=$$?; if ((code)); then word=failed; else word=done; fi; printf "── %s: %s, %d s\n" "$(1)" "$$word" "$$SECONDS" | tee -a "$${STEPS:-/dev/null}"' EXIT; \
$(2)
endef

# $(call needs,command:Debian-package …) lists everything that is missing, with the package to install.
define needs
@missing=; for pair in $(1); do command -v "$${pair%%:*}" >/dev/null || missing+=" $$pair"; done; \
for pair in $$missing; do \
	if [[ $$pair == cargo:* ]]; then echo "missing: cargo (Rust $(RUST_MIN) or newer); see https://rustup.rs"; \
	else echo "missing: $${pair%%:*}; on Debian: apt-get install $${pair##*:}"; fi; \
done >&2; \
[[ -z $$missing ]]
endef

define lints
$(call step,format,cargo fmt --all --check)
$(call step,lints,cargo clippy --all-targets --locked -- -D warnings)
$(call step,documentation,RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --locked)
$(call step,dependency rules,$(DENY) --locked check licenses bans sources)
endef

help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|' 2>/dev/null || \
	 sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1: \2/p' $(firstword $(MAKEFILE_LIST))

run: check-build build-for-run ## build Keepsake and show a scripted conversation on an embedded broker (DEMO=--exit ends after it)
	@if [[ -n $${KEEPSAKE__EMBEDDER__MODEL:-} ]]; then \
		echo "model: $$KEEPSAKE__EMBEDDER__MODEL, set in the environment"; \
	elif deploy/model/setup.sh; then \
		export KEEPSAKE__EMBEDDER__MODEL=.keepsake/model; \
	else \
		echo 'model: not available, see above; using the stand-in "hash", which compares words, not meanings'; \
		export KEEPSAKE__EMBEDDER__MODEL=hash; \
	fi; \
	exec $(KEEPSAKE) demo $(DEMO)

test: check-build check-kafka check-deny ## lints, unit tests, and scenarios of every law, also against a real Kafka (KEEPSAKE_TEST_KAFKA=skip leaves out the tests that need Java)
	$(lints)
	$(call step,model,deploy/model/setup.sh)
ifneq ($(KEEPSAKE_TEST_KAFKA),skip)
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)
endif
	$(call step,unit tests,$(call noted,$(many_at_a_time) --lib,unit))
	$(call step,integration tests,$(call noted,$(many_at_a_time) --test integration -- $(LONG:%=--skip %),integration))
	$(call step,conformance,$(call conformance,short,unit integration))
ifeq ($(KEEPSAKE_TEST_KAFKA),skip)
	@$(skipped)
endif

# A build without the parts that it may leave out, its stand-ins, and each part alone.
PARTS := lab llm mem0 oauth published-policies registry spans
parts = cargo clippy --locked --no-default-features -- -D warnings; \
	cargo test --locked --no-default-features --lib -- lack; \
	for part in $(PARTS); do cargo check --locked --no-default-features --features $$part; done

benches = for bench in 'scale --memories 300 --one 200 --recalls 10' 'neighbours --memories 1000 --recalls 50 --batch 500' 'standby --memories 500 --rounds 2' 'workers --memories 2 --rounds 1 --encode-us 100 --set embedder.model=hash' 'lanes --batch 100 --rounds 1 --set embedder.model=hash' 'log --transactions 50 --records 1000 --events 2000 --memories 2000'; do \
	cargo run --quiet --locked --example bench -- $$bench --json --set data.dir=target/tmp/bench; done

test-all: test-long test-outside ## what `make test` leaves out: both of the next two

test-long: check-build check-kafka ## the scenarios that take minutes; more kills, seeds and power losses; small runs of the developers' benches (KEEPSAKE_TEST_KAFKA=skip leaves out the tests that need Java)
	$(call step,model,deploy/model/setup.sh)
ifneq ($(KEEPSAKE_TEST_KAFKA),skip)
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)
endif
	$(call step,long scenarios,$(call noted,$(MANY) $(some_at_a_time) --test integration -- $(filter-out $(MEASURED),$(LONG) $(OFTEN)) $(MEASURED:%=--skip %),long))
	$(call step,scenarios one a core,$(call noted,$(MANY) $(tests) --test integration -- $(MEASURED),measured))
	$(call step,conformance,$(call conformance,long,long measured))
	$(call step,power loss of the embedded log,KEEPSAKE_POWER_SEEDS=10000 $(tests) --lib power_loss)
	$(call step,benches of developers,$(benches))
ifeq ($(KEEPSAKE_TEST_KAFKA),skip)
	@$(skipped)
endif

test-outside: check-build check-kafka ## each part left out; the multilingual encoder, after its set-up (91 MB more); the deployment; the book; the dashboards; the clients, those of mem0, and those of the embedded log; growing to 24 partitions; the explorer (KEEPSAKE_TEST_KAFKA=skip leaves out all clients but mem0's)
	$(call step,model,deploy/model/setup.sh)
ifneq ($(KEEPSAKE_TEST_KAFKA),skip)
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)
endif
	$(call step,parts left out,$(parts))
	$(call step,multilingual model,deploy/model/setup.sh --multilingual)
	$(call step,multilingual tests,KEEPSAKE_TEST_MODEL='$(MODEL)' KEEPSAKE_TEST_MULTILINGUAL='$(MODEL)-multilingual' cargo test --locked multilingual -- --nocapture)
	$(call step,build,cargo test --locked --test integration --no-run)
	$(call step,deployment,tests/deploy/run.sh)
	$(call step,dashboards,deploy/grafana/check.sh)
	$(call step,clients of mem0,tests/mem0/run.sh || (($$? == 4)))
ifneq ($(KEEPSAKE_TEST_KAFKA),skip)
	$(call step,clients,tests/clients/run.sh)
	$(call step,clients of the embedded log,tests/embedded/run.sh)
endif
	$(call step,6 to 24 partitions,KEEPSAKE_GENERATION_FROM=6 KEEPSAKE_GENERATION_TO=24 cargo test --locked --test integration a_service_grows_while_it_serves::on_embedded)
	$(call step,explorer,tests/explorer/run.sh || (($$? == 4)))
ifeq ($(KEEPSAKE_TEST_KAFKA),skip)
	@$(skipped)
endif

packages: check-build ## wheel, npm package, .deb and archive for any Linux in target/packages, each installed and tried
	$(call step,model,deploy/model/setup.sh)
	$(call step,packages,program=$$(deploy/release/portable.sh); rm -rf target/packages; PORTABLE=1 PACKAGES="$$PWD/target/packages" KEEPSAKE="$$(realpath "$$program")" tests/deploy/run.sh packages)

sim: check-build ## 10,000 simulated runs with fault injection (KEEPSAKE_SIM_SEEDS sets the number; KEEPSAKE_SIM_SEED repeats one), and 100,000 power losses of the embedded log (KEEPSAKE_POWER_SEEDS, KEEPSAKE_POWER_SEED)
	$(call step,simulator,KEEPSAKE_SIM_SEEDS=$(or $(KEEPSAKE_SIM_SEEDS),10000) cargo test --locked --test integration sim:: -- --nocapture)
	$(call step,power loss of the embedded log,KEEPSAKE_POWER_SEEDS=$(or $(KEEPSAKE_POWER_SEEDS),100000) cargo test --locked -p keepsake-embedded power_loss)

fuzz: check-build check-fuzz ## fuzzing with cargo-fuzz, FUZZ_SECONDS for each target (FUZZ=--sanitizer=none runs on a stable compiler)
	$(call step,fuzzing,\
	for target in $(FUZZ_TARGETS); do \
		mkdir -p .keepsake/fuzz/$$target; \
		cargo $(FUZZ_CARGO) fuzz run --fuzz-dir tests/fuzz --target-dir .keepsake/fuzz/build $(FUZZ) $$target \
			.keepsake/fuzz/$$target tests/data/fuzz/$$target -- -max_len=65536 -timeout=5 -max_total_time=$(FUZZ_SECONDS); \
	done)

torture: check-build check-kafka ## 200 kills, pauses and broker restarts of three processes, 200 failures of one of three brokers, 200 kills of a process on the embedded log, and the last release in one group with this version (KEEPSAKE_TORTURE_KILLS, KEEPSAKE_TORTURE_BROKERS, KEEPSAKE_TORTURE_EMBEDDED)
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)
	$(call step,last release,$(last_release))
	$(call step,torture,$(last_release); KEEPSAKE_TORTURE_KILLS=$(or $(KEEPSAKE_TORTURE_KILLS),200) KEEPSAKE_TORTURE_BROKERS=$(or $(KEEPSAKE_TORTURE_BROKERS),200) KEEPSAKE_TORTURE_EMBEDDED=$(or $(KEEPSAKE_TORTURE_EMBEDDED),200) cargo test --locked --test integration torture:: -- --nocapture --test-threads=1)

# Without the commit in the history (exit 4) the test of both versions skips loudly.
last_release = if release=$$(tests/data/last-release.sh); then export KEEPSAKE_TEST_LAST_RELEASE="$$release"; else (($$? == 4)); fi

bench: check-build release model ## speed as ratios to the bare parts, appended to tests/bench/history.csv (BENCH='--brokers host:port'); bench-scale, bench-log, bench-processes, bench-gateway, bench-workers, bench-lanes, bench-standby and bench-neighbours print what only developers need
	$(call step,recall,$(call bench,recall))
	$(call step,ingest,$(call bench,ingest))
	@echo 'bench restore needs a real Kafka: $(KEEPSAKE) bench restore --brokers host:port'

bench = KEEPSAKE__EMBEDDER__MODEL='$(MODEL)' $(KEEPSAKE) bench $(1) $(BENCH) --json | python3 tests/bench/record.py

bench-%: check-build release
	$(call step,bench of $*,cargo run --release --locked --example bench -- $* $(BENCH))

quality: check-build release model ## quality on every evaluation set, beside a bare cosine (QUALITY=DIR for other sets)
	$(call step,quality,KEEPSAKE__EMBEDDER__MODEL='$(MODEL)' $(KEEPSAKE) eval all --dir '$(or $(QUALITY),tests/data/quality)')

wishes: check-build ## train the judge of wishes on tests/data/wishes, and print what it finds of each writer if trained on the others
	$(call step,judge of wishes,KEEPSAKE_WISHES=abcdeftuv cargo test --locked --release --manifest-path processors/text/Cargo.toml --lib a_writer_that -- --nocapture)

judge: ## train the judge of changes and wishes into .keepsake/judge, some 45 minutes on two cores, and print what it finds (JUDGE='--epochs 5')
	$(call step,judge of changes,deploy/judge/train.sh $(JUDGE))

lint: check-build check-deny ## formatting, lints, documentation and dependency rules only
	$(lints)

model: ## set up the encoder in .keepsake/model
	$(call step,model,deploy/model/setup.sh)

kafka: check-kafka ## fetch Apache Kafka for the tests into .keepsake
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)

clean: ## remove builds and downloads; a store in .keepsake stays
	cargo clean
	rm -rf .keepsake/cache .keepsake/clients .keepsake/embedded .keepsake/explorer .keepsake/ran .keepsake/tools .keepsake/model .keepsake/model-multilingual .keepsake/kafka-*

# Prints a line for every twentieth crate in place of one for each. What else cargo prints comes through.
build-for-run:
	@printf '\n── build\n'; built=0; SECONDS=0; \
	all=$$(cargo tree --locked --prefix none --edges normal,build | cut -d' ' -f1,2 | sort -u | wc -l); \
	[[ -x $(KEEPSAKE) ]] || echo "the first time: $$all crates, some ten minutes on two cores, then 140 MB for the model"; \
	cargo build --release --locked 2>&1 | while IFS= read -r line; do \
		case $$line in \
			*' Compiling '*) built=$$((built + 1)); \
				((built % 20)) || echo "built $$built of at most $$all crates in $$SECONDS s" ;; \
			*' Downloading '* | *' Downloaded '* | *' Updating '*) ;; \
			*) printf '%s\n' "$$line" ;; \
		esac; \
	done

release:
	$(call step,build,cargo build --release --locked)

check-build:
	$(call needs,cargo:cargo gcc:gcc g++:g++ make:make pkg-config:pkg-config python3:python3-venv)
	@pkg-config --exists openssl || { echo 'missing: OpenSSL 3 to build with; on Debian: apt-get install libssl-dev' >&2; exit 1; }
	@found=$$(rustc --version | cut -d' ' -f2); \
	if [[ $$(printf '%s\n' '$(RUST_MIN)' "$$found" | sort -V | head -n 1) != '$(RUST_MIN)' ]]; then \
		echo "rustc $$found is too old: Keepsake needs $(RUST_MIN) or newer; run: rustup update stable" >&2; exit 1; \
	fi

check-fuzz:
	@missing=0; \
	if [[ -n '$(FUZZ_CARGO)' ]] && ! cargo +nightly --version >/dev/null 2>&1; then missing=1; \
		echo 'missing: a nightly Rust; run: rustup toolchain install nightly'; \
		echo '         or fuzz without sanitizers on the stable one: make fuzz FUZZ=--sanitizer=none'; fi >&2; \
	if ! cargo fuzz --version >/dev/null 2>&1; then missing=1; \
		echo 'missing: cargo-fuzz; run: cargo install cargo-fuzz --locked'; fi >&2; \
	exit $$missing

check-deny:
ifeq ($(wildcard $(DENY)),)
	$(call step,cargo-deny $(DENY_VERSION) (once),cargo install cargo-deny --locked --quiet --version $(DENY_VERSION) --root .keepsake/tools)
endif

check-kafka:
ifeq ($(KEEPSAKE_TEST_KAFKA),skip)
	@$(skipped)
else
	$(call needs,java:default-jre-headless mvn:maven openssl:openssl)
endif

define skipped
printf '%s\n' \
	'****************************************************************************' \
	'**  KEEPSAKE_TEST_KAFKA=skip: NO TEST RUNS AGAINST A REAL KAFKA.          **' \
	'**  Of make test-all, the clients are left out as well.                   **' \
	'**  This is not a full pass.                                              **' \
	'****************************************************************************'
endef
