# Built and downloaded files are written to ${XDG_CACHE_HOME:-~/.cache}/anabranch; the clone stays unchanged.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/anabranch
export CARGO_TARGET_DIR ?= $(CACHE)/target
PREFIX ?= /usr/local
PYTHON := $(CACHE)/peers/venv/bin/python
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
AREA ?= all

.PHONY: to-add help book build install static reproducible picture demo test screens check package release five-minutes bench bench-wireguard flame accuracy interop soak mixed-soak experiment-overhead experiment-circumvention experiment-circuits experiment-unordered experiment-camouflage experiment-anonymity experiment-wide experiment-validation validate-sim experiment-pages results reproduce reproduce-index lab-results lab-guards lab-designs lab-networks lab-ray covertness camouflage-loads web fuzz clean

##@ General
# A line `##@ TITLE` begins a group of the list, and ` | ` a new line of a target's text.
help:  ## Show this list.
	@awk -F ' +## ' '/^##@ / { print "\n" substr($$0, 5) } \
		/^[a-z-]+:.* ## / { split($$1, name, ":"); n = split($$2, line, " [|] "); \
			printf "  make %-26s%s\n", name[1], line[1]; \
			for (i = 2; i <= n; i++) printf "%33s%s\n", "", line[i] }' Makefile

##@ Build and install
build:  ## Build the optimised program.
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)
	@strip -o $(CACHE)/stripped $(CARGO_TARGET_DIR)/release/anabranch
	@echo "built $(CARGO_TARGET_DIR)/release/anabranch ($$(du -h $(CACHE)/stripped | cut -f 1) stripped)"
	@rm $(CACHE)/stripped

install: build  ## Install the program, man pages, completions and documents. | PREFIX=FOLDER (default /usr/local), DESTDIR=FOLDER.
	packaging/install $(CARGO_TARGET_DIR)/release/anabranch $(abspath $(PREFIX))

static: TARGET := $(shell uname -m)-unknown-linux-musl
static:  ## Build a static program for any Linux. | Installs Rust's musl target with rustup.
	@scripts/need static
	rustup target add $(TARGET)
	scripts/build-release --target $(TARGET) -p anabranch
	@strip -o $(CACHE)/anabranch-static $(CARGO_TARGET_DIR)/$(TARGET)/release/anabranch
	@echo "built $(CACHE)/anabranch-static ($$(du -h $(CACHE)/anabranch-static | cut -f 1))"

reproducible:  ## Build twice, in two folders, and compare the files. | Takes twice as long as build.
	scripts/reproducible $(CACHE)/reproducible

##@ Demo
picture: demo  ## Draw README's picture from the traffic of the demo.
	python3 scripts/picture.py $(CACHE)/demo/demo.html docs/picture.svg

# With the optimised program where there is one, else with one that is built in less time, without
# the onion network and the experiments.
demo: PROFILE = $(if $(wildcard $(CARGO_TARGET_DIR)/release/anabranch),release,quick)
demo: LESS = $(if $(filter quick,$(PROFILE)),--no-default-features)
demo:  ## Split WireGuard, QUIC and Mosh over three emulated paths, | and show what each observer sees.
	@scripts/need demo
	@tests/interop/setup --area demo & scripts/build-release --profile $(PROFILE) -p anabranch $(LESS) && wait
	ANABRANCH=$(CARGO_TARGET_DIR)/$(PROFILE)/anabranch python3 examples/demo.py

##@ Test and check
test:  ## Run unit and integration tests: Rust, the test harness, and two | sessions with programs of other projects. Half an hour on two cores.
	@scripts/need test
	@scripts/test

screens:  ## Rewrite the expected live views (crates/cli/testdata/screens) | and README's screenshot. Read the difference afterwards.
	ANABRANCH_SCREENS=1 cargo test --locked -p anabranch --bin anabranch looks_as_it_did
	scripts/screen.py

check:  ## Check formatting, lints, types, documentation and design rules.
	@scripts/need check
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p anabranch --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --no-deps --locked
	scripts/venv
	cd tests/interop && $(PYTHON) -m ruff format --check --no-cache . setup && $(PYTHON) -m ruff check --no-cache . setup
	cd tests/interop && $(PYTHON) -m mypy --cache-dir=$(CACHE)/mypy .
	$(PYTHON) -m ruff format --check --no-cache scripts && $(PYTHON) -m ruff check --no-cache scripts
	$(PYTHON) -m mypy --cache-dir=$(CACHE)/mypy --strict scripts/*.py
	MYPYPATH=scripts/web $(PYTHON) -m mypy --cache-dir=$(CACHE)/mypy --strict scripts/web/*.py
	$(PYTHON) -m ruff check --no-cache --config tests/interop/pyproject.toml examples bench
	MYPYPATH=tests/interop:bench $(PYTHON) -m mypy --cache-dir=$(CACHE)/mypy --config-file tests/interop/pyproject.toml \
		--strict examples/*.py bench/*.py
	lab/run-tests --check
	scripts/shellcheck
	python3 -B scripts/test_guards.py
	python3 -B scripts/test_book.py
	python3 -B scripts/web/test_web.py
	python3 -B scripts/guards.py
	python3 -B scripts/licences.py --check
	scripts/deny

to-add:  ## Test the table "To add" of ARCHITECTURE.md: add an example of a | scheduler, relay command, link, protocol, cover, attack, defence, experiment and others.
	@scripts/need check
	lab/run-tests --install
	LAB_PYTHON=$(CACHE)/venv-lab/bin/python scripts/to_add.py $(CACHE)/to-add

##@ Package and release
package:  ## Build the Debian package: program, services, man pages, completions.
	@scripts/need package
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/package
	packaging/deb/build $(CARGO_TARGET_DIR)/release/anabranch $(CACHE)/package

release:  ## Build all files of a release in CACHE/release/files: packages, | static programs, wheels, SBOMs. Takes an hour.
	@scripts/need release
	scripts/release $(CACHE)/release $(ARCHITECTURES)

five-minutes:  ## Run README's first five minutes on a bare Debian 12, and measure | the time. Needs root, and make release first.
	scripts/five-minutes $(CACHE)/release/files $(CACHE)/five-minutes

book:  ## Build all documents and the API documentation as one searchable | book. Fails at a dead link. Installs mdBook.
	@scripts/need build
	cargo install --locked --quiet --version 0.5.4 --root $(CACHE)/mdbook mdbook
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --no-deps --locked
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/python -m pip install --quiet pdoc==16.0.0
	@rm -rf $(CACHE)/pdoc
	$(CACHE)/venv-lab/bin/pdoc --output-directory $(CACHE)/pdoc anabranch
	MDBOOK=$(CACHE)/mdbook/bin/mdbook scripts/book.py $(CACHE)/book --api $(CARGO_TARGET_DIR)/doc --python $(CACHE)/pdoc

##@ Measure speed
flame:  ## Draw a flame graph of a middle relay. | INTO=FILE.svg.
	@scripts/need flame
	CARGO_PROFILE_RELEASE_DEBUG=line-tables-only scripts/build-release -p anabranch
	cargo install --locked --quiet --version 0.12.8 --root $(CACHE)/inferno inferno
	tests/interop/setup --area tor
	PATH=$(CACHE)/inferno/bin:$$PATH ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch \
		$(PYTHON) bench/flame.py --into $(or $(INTO),docs/notes/relay-flame.svg) $(ARGS)

bench:  ## Measure speed and compare it with the targets. | ARGS="forward delay" measures some areas of the splitter only. | AREA=tor: CPU time of a middle relay, compared with C tor. | AREA=network: a client in a network of 7,000 relays. | AREA=far-end: CPU time and goodput of a far end (root). | AREA=stream-paths: TCP connections as paths (root). | AREA=legs: schedulers over circuits, emulated. | AREA=tcp: goodput of our TCP and of Linux's (root; 20 minutes). | AREA=sim: speed of the simulator, compared with ns-3, and in the 315-node network. | AREA=more: CPU time of a relay of MORE. | AREA=udp-or: UDP-OR and mUDP-OR, simulated (minutes). | AREA=lab: CPU time to train networks, compared with Keras. | AREA=camouflage: goodput, CPU and memory of a pluggable transport (root). | AREA=builds ARGS="OLD NEW": two builds against each other.
	@scripts/need bench
ifeq ($(AREA),network)
	scripts/build-release -p anabranch-bench --bin network
	$(CARGO_TARGET_DIR)/release/network $(ARGS)
else ifeq ($(AREA),legs)
	cargo test --release --locked -p anabranch-onion --test schedulers -- --ignored --nocapture
else ifeq ($(AREA),tcp)
	cargo test --release --locked -p anabranch-emulator --test tcp -- --ignored --nocapture
else ifeq ($(AREA),sim)
	scripts/build-release -p anabranch-sim --example speed --example wide
	$(CARGO_TARGET_DIR)/release/examples/wide
	tests/interop/setup --area simulator || true
	$(PYTHON) bench/simulator.py $(CARGO_TARGET_DIR)/release/examples/speed $(ARGS)
else ifeq ($(AREA),lab)
	lab/run-tests --install
	tests/interop/setup --area networks || true
	$(CACHE)/venv-lab/bin/python bench/networks.py $(ARGS)
else ifeq ($(AREA),more)
	scripts/build-release -p anabranch-bench --bin more-relay
	$(CARGO_TARGET_DIR)/release/more-relay $(ARGS)
else ifeq ($(AREA),udp-or)
	scripts/build-release -p anabranch-sim --example udp_or
	$(CARGO_TARGET_DIR)/release/examples/udp_or $(ARGS)
else ifeq ($(AREA),far-end)
	scripts/build-release -p anabranch -p anabranch-bench -p anabranch-os --bins --examples
	$(CARGO_TARGET_DIR)/release/bench far-end
	tests/interop/setup --area wireguard
	tests/interop/setup --area quic
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/far_end.py $(ARGS)
else ifeq ($(AREA),stream-paths)
	scripts/build-release -p anabranch
	tests/interop/setup --area stream_paths
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/stream_paths.py $(ARGS)
else ifeq ($(AREA),camouflage)
	scripts/venv
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/camouflage.py $(ARGS)
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/camouflage_load.py
else ifeq ($(AREA),builds)
	tests/interop/setup --area tor
	$(PYTHON) bench/two_builds.py $(ARGS)
else ifeq ($(AREA),tor)
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin idle-circuits --bin guard-clients --bin relay-limit --bin middle-relay
	scripts/build-release -p anabranch-os --example pass
	$(CARGO_TARGET_DIR)/release/idle-circuits
	$(CARGO_TARGET_DIR)/release/guard-clients
	$(CARGO_TARGET_DIR)/release/relay-limit
	$(CARGO_TARGET_DIR)/release/middle-relay
	$(CARGO_TARGET_DIR)/release/examples/pass
	tests/interop/setup --area tor
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/tor.py $(ARGS)
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/tor_streams.py $(ARGS)
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/many_streams.py
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/exit_legs.py
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/joining_relay.py
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/links.py
else
	scripts/build-release -p anabranch -p anabranch-bench -p anabranch-os --bins --examples
	$(CARGO_TARGET_DIR)/release/bench $(ARGS)
	$(if $(ARGS),,$(MAKE) bench-wireguard)
endif

bench-wireguard:  ## Measure WireGuard over three emulated paths and over one, and on | loopback. Needs root; part of bench.
	scripts/build-release -p anabranch
	tests/interop/setup --area wireguard
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/wireguard.py

accuracy:  ## Measure the accuracy of the emulator: rate, delay, loss, TCP. | Needs root and an idle machine. Takes two minutes.
	@scripts/need bench
	cargo test --release --locked -p anabranch-emulator --test accuracy -- --ignored --nocapture --test-threads=1

##@ Test with other programs
interop:  ## Test with programs of other projects over emulated paths. | AREA=quic: one part; ALLOW_SKIP=1: skip missing programs.
	@scripts/need interop
	tests/interop/run $(AREA)

soak:  ## Run 200 clients in one process for 20 minutes while relays are | killed. SECONDS=N, CLIENTS=N, SEED=N; | ARGS="--out FOLDER" stores the observations.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/soak.py --seconds $(or $(SECONDS),1200) \
		--clients $(or $(CLIENTS),200) --seed $(or $(SEED),1) $(ARGS)

mixed-soak:  ## Kill stock relays and ours for 20 minutes under stock clients and | an onion service, and compare with a network of stock relays. | SECONDS=N, SEED=N; ARGS="--out FOLDER" stores the observations.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/mixed_soak.py --seconds $(or $(SECONDS),1200) \
		--seed $(or $(SEED),1) $(ARGS)

##@ Experiments; each continues where it stopped
experiment-overhead:  ## Measure the cost of splitting for WireGuard, Mosh and QUIC, and | compare it with the paper (root). An hour and a half. ARGS=--full.
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment overhead $(or $(FOLDER),$(CACHE)/experiments/overhead) $(ARGS)

experiment-circumvention:  ## Send only the handshake around a censor, through a VPN, and measure | the cost (root). Nine minutes.
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circumvention $(or $(FOLDER),$(CACHE)/experiments/circumvention) $(ARGS)

experiment-circuits:  ## Compare one circuit for a stream with several, ours and C tor's, in | networks of seven relays (root). Three hours. ARGS=--short.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circuits $(or $(FOLDER),$(CACHE)/experiments/circuits) $(ARGS)

experiment-unordered:  ## Compare links on which circuits do not wait for each other with | ordinary links and C tor (root). Many hours; | FOLDER=F ARGS=--short: five minutes.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment unordered $(or $(FOLDER),$(CACHE)/experiments/unordered) $(ARGS)

experiment-camouflage:  ## Measure the cost of camouflage through Tor, and compare it with | obfs4 and webtunnel (root). Many hours; FOLDER=F ARGS=--short: | twenty minutes; ARGS='--pictures FOLDER' for http-image.
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment camouflage $(or $(FOLDER),$(CACHE)/experiments/camouflage) $(ARGS)

experiment-anonymity:  ## Compute what hostile relays learn about circuits with several legs. | Hours. CONSENSUSES="2015-10-10.tsv 2017-03-10.tsv"; FOLDER=, ARGS=.
	@test -n "$(CONSENSUSES)" || { echo 'make experiment-anonymity CONSENSUSES="FILE FILE": consensuses of the public network' >&2; exit 2; }
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment anonymity $(or $(FOLDER),$(CACHE)/experiments/anonymity) $(addprefix --consensus ,$(CONSENSUSES)) $(ARGS)

experiment-wide:  ## Compare multi-path designs in a simulated network of 315 nodes. | Many hours on all processors. | ARGS='--networks 1 --seconds 120 --warm-up 60': less.
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment wide $(or $(FOLDER),$(CACHE)/experiments/wide) $(ARGS)

experiment-validation:  ## Measure a network of 24 relays and 66 clients in the emulator, and | compare it with simulations (root). Twenty minutes on an idle | machine; FOLDER=F ARGS=--short: five.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment validation $(or $(FOLDER),$(CACHE)/experiments/validation) $(ARGS)

validate-sim:  ## Compare the simulator with the measurements of experiment-circuits, and | write docs/results/simulator.md. Minutes. ARGS='--seeds 2': less.
	@scripts/need build
	scripts/build-release -p anabranch-experiment --example validate_simulator
	$(CARGO_TARGET_DIR)/release/examples/validate_simulator docs/results/circuits.parquet \
		--into docs/results/simulator.md $(ARGS)

experiment-pages: web  ## Record page loads in Chromium, split and unsplit, as a data set | (root). Hours. ARGS='--monitored 5 --loads 3'.
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment pages $(or $(FOLDER),$(CACHE)/experiments/pages) --web $(CACHE)/web $(ARGS)

##@ Lab
lab-results:  ## Measure what each observer learns. Days of one core; continues | where it stopped. DATA=shadow_tor_wikipedia98.parquet; | SWEEPS=schedules: only these; OTHERS=FILE: with more page loads.
	@test -n "$(DATA)" || { echo "make lab-results DATA=FILE: the traces to evaluate on" >&2; exit 2; }
	lab/run-tests --install
	lab/results/run $(abspath $(DATA)) $(CACHE)/lab-results

results:  ## Print all tables of docs/results/PAGE.jsonl, and write page and | figures to the cache. PAGE=fingerprinting or PAGE=schedules.
	@test -f "docs/results/$(PAGE).jsonl" || { echo "make results PAGE=fingerprinting|schedules" >&2; exit 2; }
	@lab/run-tests --install >&2
	@mkdir -p $(CACHE)/results
	@rm -f $(CACHE)/results/$(PAGE).md
	@$(CACHE)/venv-lab/bin/anabranch-lab report docs/results/$(PAGE).jsonl --out $(CACHE)/results/$(PAGE) \
		--markdown $(CACHE)/results/$(PAGE).md >&2
	@cat $(CACHE)/results/$(PAGE).md

reproduce-index:  ## Write docs/reproduction.md from the committed data: tables, figures | and claims of the papers, with our numbers and verdicts.
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/anabranch-lab reproduction docs/results --pages --into docs/reproduction.md

reproduce:  ## Run the papers' experiments and compare their verdicts with | docs/results (root). Days; SHORT=1: an hour. | CONSENSUSES="FILE FILE": also what hostile relays learn.
	@scripts/need interop
	tests/interop/setup --area experiments
	tests/interop/setup --area tor
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	lab/run-tests --install
	@mkdir -p $(CACHE)/experiments
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch CONSENSUSES="$(CONSENSUSES)" \
		scripts/reproduce $(or $(FOLDER),$(CACHE)/experiments/reproduce$(if $(SHORT),-short)) $(if $(SHORT),--short)

lab-guards:  ## Measure what each guard of a circuit with several legs learns about | pages. DATA=shadow_tor_wikipedia98.parquet, ARGS="PAGES LOADS".
	@test -n "$(DATA)" || { echo "make lab-guards DATA=FILE: loads as one guard saw them" >&2; exit 2; }
	lab/run-tests --install
	scripts/build-release -p anabranch-bench --bin guards
	GUARDS=$(CARGO_TARGET_DIR)/release/guards lab/results/guards $(abspath $(DATA)) $(CACHE)/lab-guards $(ARGS)

lab-designs:  ## Simulate multi-path designs in one small network, and write | docs/results/designs.parquet. Minutes of one core.
	@scripts/need build
	scripts/build-release -p anabranch
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/python lab/results/designs.py $(CARGO_TARGET_DIR)/release/anabranch \
		$(CACHE)/lab-designs docs/results/designs.parquet
	$(MAKE) reproduce-index

lab-networks:  ## Run scikit-learn's checks of estimators on every neural network. | Takes about 15 minutes.
	lab/run-tests --networks

lab-ray:  ## Run the lab's sweeps on a Ray of this machine. | Installs Ray into the lab's environment (260 MB).
	lab/run-tests --ray

covertness: web  ## Test whether a classifier distinguishes our transport from Chromium, | and write the results page (root). An hour; continues where it | stopped. FOLDER=, PICTURES=, ARGS="--sessions 1".
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/covertness.py $(or $(FOLDER),$(CACHE)/covertness) $(ARGS)
	$(CACHE)/venv-lab/bin/anabranch-lab covertness $(or $(FOLDER),$(CACHE)/covertness) \
		--markdown docs/results/covertness.md --out docs/results/covertness.json

camouflage-loads: web  ## Load pages through our transport with SSH and tor inside, run | attacks on the loads, and write the results page (root). Hours; | continues where it stopped. FOLDER=F INTO=F ARGS=--short: ten minutes.
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/camouflage_fingerprinting.py $(or $(FOLDER),$(CACHE)/camouflage-loads) $(ARGS)
	$(CACHE)/venv-lab/bin/anabranch-lab camouflage $(or $(INTO),docs/results/camouflage-fingerprinting) \
		--captures $(or $(FOLDER),$(CACHE)/camouflage-loads) --markdown $(or $(INTO),docs/results/camouflage-fingerprinting).md

##@ Other
web:  ## Build the local web for experiments: a page for each of 369 | packages of Debian and npm. Downloads 0.7 GB.
	@scripts/need web
	python3 -B scripts/web/build.py --cache $(CACHE)/web-packages --out $(CACHE)/web

fuzz:  ## Run each fuzz target for SECONDS=60. TARGET=core_driver: one target.
	scripts/fuzz $(or $(SECONDS),60) $(or $(TARGET),$(FUZZ_TARGETS))

clean:  ## Remove all built files.
	rm -rf $(CACHE)
