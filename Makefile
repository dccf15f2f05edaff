# What the README names. `make` alone lists the targets; every step prints its heading and how long it took.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help run test test-all sim torture bench quality lint model kafka clean check-build check-kafka release

MODEL := $(CURDIR)/.keepsake/model
KEEPSAKE := $(or $(CARGO_TARGET_DIR),target)/release/keepsake

# $(call step,heading,command); no comma inside the command, make would cut it there.
define step
@printf '\n── %s\n' '$(1)'; SECONDS=0; \
trap 'code=$$?; if ((code)); then word=failed; else word=done; fi; printf "── %s: %s, %d s\n" "$(1)" "$$word" "$$SECONDS"' EXIT; \
$(2)
endef

# $(call needs,command:Debian-package …); names everything that is missing at once.
define needs
@missing=; for pair in $(1); do command -v "$${pair%%:*}" >/dev/null || missing+=" $$pair"; done; \
for pair in $$missing; do \
	if [[ $$pair == cargo:* ]]; then echo "missing: cargo (Rust 1.91 or newer); see https://rustup.rs"; \
	else echo "missing: $${pair%%:*}; on Debian: apt-get install $${pair##*:}"; fi; \
done >&2; \
[[ -z $$missing ]]
endef

help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|' 2>/dev/null || \
	 sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1: \2/p' $(firstword $(MAKEFILE_LIST))

run: check-build release ## build and show it: a scripted conversation on an embedded broker (DEMO=--exit ends after it)
	@if [[ -n $${KEEPSAKE__EMBEDDER__MODEL:-} ]]; then \
		echo "model: as the environment says, $$KEEPSAKE__EMBEDDER__MODEL"; \
	elif deploy/model/setup.sh; then \
		export KEEPSAKE__EMBEDDER__MODEL=.keepsake/model; \
	else \
		echo 'model: cannot be had, see above; going on with the stand-in "hash", which knows words but no meanings'; \
		export KEEPSAKE__EMBEDDER__MODEL=hash; \
	fi; \
	exec $(KEEPSAKE) demo $(DEMO)

test: check-build check-kafka ## everything CI runs (KEEPSAKE_TEST_KAFKA=skip leaves out what needs Java)
	$(call step,format,cargo fmt --check)
	$(call step,lints,cargo clippy --all-targets --locked -- -D warnings)
	$(call step,documentation,RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --locked)
	$(call step,model,deploy/model/setup.sh)
ifneq ($(KEEPSAKE_TEST_KAFKA),skip)
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)
endif
	$(call step,unit and integration tests,KEEPSAKE_TEST_MODEL='$(MODEL)' cargo test --locked)
ifeq ($(KEEPSAKE_TEST_KAFKA),skip)
	@$(skipped)
endif

test-all: check-build ## what needs more than the README lists: sets up the multilingual encoder (91 MB) and holds its figures
	$(call step,model,deploy/model/setup.sh)
	$(call step,multilingual model,deploy/model/setup.sh --multilingual)
	$(call step,tests with it,KEEPSAKE_TEST_MODEL='$(MODEL)' KEEPSAKE_TEST_MULTILINGUAL='$(MODEL)-multilingual' cargo test --locked multilingual -- --nocapture)

sim: check-build ## 10,000 stories on a simulated broker in which everything goes wrong (KEEPSAKE_SIM_SEEDS; KEEPSAKE_SIM_SEED tells one)
	$(call step,simulator,KEEPSAKE_SIM_SEEDS=$(or $(KEEPSAKE_SIM_SEEDS),10000) cargo test --locked --test integration sim:: -- --nocapture)

torture: check-build check-kafka ## 200 kills, sleeps and broker restarts on a real Kafka (KEEPSAKE_TORTURE_KILLS)
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)
	$(call step,torture,KEEPSAKE_TORTURE_KILLS=$(or $(KEEPSAKE_TORTURE_KILLS),200) cargo test --locked --test integration torture:: -- --nocapture)

bench: check-build release model ## speed of recall and ingest, as ratios to the bare parts
	$(call step,recall,KEEPSAKE__EMBEDDER__MODEL='$(MODEL)' $(KEEPSAKE) bench recall)
	$(call step,ingest,KEEPSAKE__EMBEDDER__MODEL='$(MODEL)' $(KEEPSAKE) bench ingest)
	$(call step,score,KEEPSAKE__EMBEDDER__MODEL='$(MODEL)' $(KEEPSAKE) bench score)
	@echo 'bench restore needs a real Kafka: $(KEEPSAKE) bench restore --brokers host:port'

quality: check-build release model ## what is kept, found and noticed on every evaluation set, beside a bare cosine (QUALITY=DIR for other sets)
	$(call step,quality,KEEPSAKE__EMBEDDER__MODEL='$(MODEL)' $(KEEPSAKE) eval all --dir '$(or $(QUALITY),tests/data/quality)')

lint: check-build ## format, lints and documentation only
	$(call step,format,cargo fmt --check)
	$(call step,lints,cargo clippy --all-targets --locked -- -D warnings)
	$(call step,documentation,RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --locked)

model: ## set up the embedding model in .keepsake/model
	$(call step,model,deploy/model/setup.sh)

kafka: check-kafka ## fetch Apache Kafka for the tests into .keepsake
	$(call step,Apache Kafka,deploy/kafka/kafka.sh jars)

clean: ## remove what was built and downloaded; a store in .keepsake stays
	cargo clean
	rm -rf .keepsake/cache .keepsake/model .keepsake/model-multilingual .keepsake/kafka-*

release:
	$(call step,build,cargo build --release --locked)

check-build:
	$(call needs,cargo:cargo gcc:gcc g++:g++ make:make python3:python3-venv)

check-kafka:
ifeq ($(KEEPSAKE_TEST_KAFKA),skip)
	@$(skipped)
else
	$(call needs,java:default-jre-headless mvn:maven)
endif

define skipped
printf '%s\n' \
	'****************************************************************************' \
	'**  KEEPSAKE_TEST_KAFKA=skip: NOTHING IS TESTED AGAINST A REAL KAFKA.     **' \
	'**  This is not a full pass.                                              **' \
	'****************************************************************************'
endef
