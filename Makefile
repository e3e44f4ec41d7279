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

install: build  ## Install the program, man pages, shell completions and documents. | PREFIX=FOLDER: into FOLDER instead of /usr/local; | DESTDIR=FOLDER: into a package's files below FOLDER.
	packaging/install $(CARGO_TARGET_DIR)/release/anabranch $(abspath $(PREFIX))

static: TARGET := $(shell uname -m)-unknown-linux-musl
static:  ## Build a static program, which runs on any Linux. | Installs Rust's musl target with rustup.
	@scripts/need static
	rustup target add $(TARGET)
	scripts/build-release --target $(TARGET) -p anabranch
	@strip -o $(CACHE)/anabranch-static $(CARGO_TARGET_DIR)/$(TARGET)/release/anabranch
	@echo "built $(CACHE)/anabranch-static ($$(du -h $(CACHE)/anabranch-static | cut -f 1))"

reproducible:  ## Test that two builds of the program, in two folders, give the same | bytes. Takes twice as long as build.
	scripts/reproducible $(CACHE)/reproducible

##@ Demo
picture: demo  ## Run the demo, and draw README's picture from its traffic.
	python3 scripts/picture.py $(CACHE)/demo/demo.html docs/picture.svg

# With the optimised program where there is one, else with one that is built in less time, without
# the onion network and the experiments.
demo: PROFILE = $(if $(wildcard $(CARGO_TARGET_DIR)/release/anabranch),release,quick)
demo: LESS = $(if $(filter quick,$(PROFILE)),--no-default-features)
demo:  ## Split WireGuard, QUIC and Mosh over three emulated paths, | and show what the observer of each path sees. Four minutes.
	@scripts/need demo
	@tests/interop/setup --area demo & scripts/build-release --profile $(PROFILE) -p anabranch $(LESS) && wait
	ANABRANCH=$(CARGO_TARGET_DIR)/$(PROFILE)/anabranch python3 examples/demo.py

##@ Test and check
test:  ## Run the tests of the Rust code and of the lab, and a short test | with programs of other projects. Half an hour on two cores.
	@scripts/need test
	@scripts/test

screens:  ## Write the expected screens of the live view again, after a change | of the view (crates/cli/testdata/screens), and README's screenshot. | Check the new screens with git diff.
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

to-add:  ## Test that the table "To add" of ARCHITECTURE.md lists all files to | change: add a scheduler, a relay command, a link, an attack | and others to a copy of the repository.
	@scripts/need check
	lab/run-tests --install
	LAB_PYTHON=$(CACHE)/venv-lab/bin/python scripts/to_add.py $(CACHE)/to-add

##@ Package and release
package:  ## Build the Debian package: program, services, man pages, completions.
	@scripts/need package
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/package
	packaging/deb/build $(CARGO_TARGET_DIR)/release/anabranch $(CACHE)/package

release:  ## Build all files of a release (packages, static programs, wheels, | SBOMs) in ~/.cache/anabranch/release/files. Takes an hour.
	@scripts/need release
	scripts/release $(CACHE)/release $(ARCHITECTURES)

five-minutes:  ## Run the steps of README's "Five minutes" on a bare Debian 12, and | measure the time. Needs root; run make release first.
	scripts/five-minutes $(CACHE)/release/files $(CACHE)/five-minutes

book:  ## Build all documents and the API documentation as one searchable | book (HTML). Fails at a dead link. Installs mdBook.
	@scripts/need build
	cargo install --locked --quiet --version 0.5.4 --root $(CACHE)/mdbook mdbook
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --no-deps --locked
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/python -m pip install --quiet pdoc==16.0.0
	@rm -rf $(CACHE)/pdoc
	$(CACHE)/venv-lab/bin/pdoc --output-directory $(CACHE)/pdoc anabranch
	MDBOOK=$(CACHE)/mdbook/bin/mdbook scripts/book.py $(CACHE)/book --api $(CARGO_TARGET_DIR)/doc --python $(CACHE)/pdoc

##@ Measure speed
flame:  ## Draw a flame graph: where a middle relay spends its CPU time. | INTO=FILE.svg sets the file to write.
	@scripts/need flame
	CARGO_PROFILE_RELEASE_DEBUG=line-tables-only scripts/build-release -p anabranch
	cargo install --locked --quiet --version 0.12.8 --root $(CACHE)/inferno inferno
	tests/interop/setup --area tor
	PATH=$(CACHE)/inferno/bin:$$PATH ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch \
		$(PYTHON) bench/flame.py --into $(or $(INTO),docs/notes/relay-flame.svg) $(ARGS)

bench:  ## Measure speed and compare it with the targets. | ARGS="forward delay": only these areas of the splitter. | AREA=tor: CPU time of a middle relay, ours and C tor's. | AREA=network: CPU time of a client in a network of 7,000 relays. | AREA=far-end: CPU time and goodput of anabranch merge (root). | AREA=stream-paths: goodput and delay over paths that are TCP | connections (root). | AREA=legs: schedulers that split a stream over circuits. | AREA=tcp: goodput of our TCP and of Linux's (root; 20 minutes). | AREA=sim: speed of the simulator, compared with ns-3. | AREA=more: CPU time of a node of MORE for each packet. | AREA=udp-or: downloads with UDP-OR and mUDP-OR, simulated | (minutes). | AREA=lab: CPU time to train neural networks, compared with Keras. | AREA=camouflage: goodput, CPU time and memory of our pluggable | transport (root). | AREA=builds ARGS="OLD NEW": speed of two builds of the program; | OLD and NEW are folders with their programs.
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

bench-wireguard:  ## Measure the speed of a WireGuard tunnel over three emulated paths, | over one, and on loopback. Needs root; bench runs it too.
	scripts/build-release -p anabranch
	tests/interop/setup --area wireguard
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/wireguard.py

accuracy:  ## Measure how exactly the emulator keeps rates, delays and losses. | Needs root and an idle machine. Takes two minutes.
	@scripts/need bench
	cargo test --release --locked -p anabranch-emulator --test accuracy -- --ignored --nocapture --test-threads=1

##@ Test with other programs
interop:  ## Test with programs of other projects over emulated paths. | AREA=quic: only these tests; ALLOW_SKIP=1: skip missing programs.
	@scripts/need interop
	tests/interop/run $(AREA)

soak:  ## Test the onion network under load: 200 clients run for 20 minutes | while relays are killed. SECONDS=N, CLIENTS=N, SEED=N change | the test; ARGS="--out FOLDER" keeps its logs.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/soak.py --seconds $(or $(SECONDS),1200) \
		--clients $(or $(CLIENTS),200) --seed $(or $(SEED),1) $(ARGS)

mixed-soak:  ## Test a network of C tor's and our relays under load: C tor's clients | and an onion service run for 20 minutes while relays are killed. | Compare with a network of C tor only. | SECONDS=N, SEED=N change the test; ARGS="--out FOLDER" keeps its logs.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/mixed_soak.py --seconds $(or $(SECONDS),1200) \
		--seed $(or $(SEED),1) $(ARGS)

##@ Experiments; an interrupted one continues if it is started again
experiment-overhead:  ## Measure how much slower split downloads are with WireGuard, Mosh and | QUIC, and compare with the paper CoMPS (root). An hour and a half; | ARGS=--full: as in the paper, days.
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment overhead $(or $(FOLDER),$(CACHE)/experiments/overhead) $(ARGS)

experiment-circumvention:  ## Measure the cost of evading a censor by sending only handshakes | through a VPN (root). Nine minutes.
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circumvention $(or $(FOLDER),$(CACHE)/experiments/circumvention) $(ARGS)

experiment-circuits:  ## Compare downloads over one and several Tor circuits, with our | program and C tor, in networks of seven relays (root). | Three hours; ARGS=--short: a quarter of an hour.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circuits $(or $(FOLDER),$(CACHE)/experiments/circuits) $(ARGS)

experiment-unordered:  ## Compare connections between relays on which a loss delays only one | circuit with ordinary ones and C tor's (root). Many hours; | FOLDER=F ARGS=--short: five minutes.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment unordered $(or $(FOLDER),$(CACHE)/experiments/unordered) $(ARGS)

experiment-camouflage:  ## Measure how much slower our camouflage makes Tor, compared with | obfs4 and webtunnel (root). Many hours; FOLDER=F ARGS=--short: | twenty minutes; ARGS='--pictures DIR': with profile http-image.
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment camouflage $(or $(FOLDER),$(CACHE)/experiments/camouflage) $(ARGS)

experiment-anonymity:  ## Compute what hostile Tor relays learn about clients that use several | circuits, from lists of relays (consensuses). Hours. | CONSENSUSES="2015-10-10.tsv 2017-03-10.tsv" is required; FOLDER=F | sets the folder of results, ARGS=... further options.
	@test -n "$(CONSENSUSES)" || { echo 'make experiment-anonymity CONSENSUSES="FILE FILE": consensuses of the public network' >&2; exit 2; }
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment anonymity $(or $(FOLDER),$(CACHE)/experiments/anonymity) $(addprefix --consensus ,$(CONSENSUSES)) $(ARGS)

experiment-wide:  ## Compare protocols that use several Tor circuits, in a simulated | network of 315 nodes. Many hours on all processors; | ARGS='--networks 1 --seconds 120 --warm-up 60': less.
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment wide $(or $(FOLDER),$(CACHE)/experiments/wide) $(ARGS)

experiment-validation:  ## Measure a network of 24 relays and 66 clients in the emulator, and | compare it with simulations (root). Twenty minutes on an idle | machine; FOLDER=F ARGS=--short: five minutes.
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment validation $(or $(FOLDER),$(CACHE)/experiments/validation) $(ARGS)

validate-sim:  ## Compare the simulator with the results of experiment-circuits, and | write docs/results/simulator.md. Minutes; ARGS='--seeds 2': less.
	@scripts/need build
	scripts/build-release -p anabranch-experiment --example validate_simulator
	$(CARGO_TARGET_DIR)/release/examples/validate_simulator docs/results/circuits.parquet \
		--into docs/results/simulator.md $(ARGS)

experiment-pages: web  ## Record loads of web pages in Chromium, split and unsplit, as a data | set (root). Hours; ARGS='--monitored 5 --loads 3': less.
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment pages $(or $(FOLDER),$(CACHE)/experiments/pages) --web $(CACHE)/web $(ARGS)

##@ Lab
lab-results:  ## Measure which web pages the observer of a path recognises. Days of | one core; started again, it continues. | DATA=shadow_tor_wikipedia98.parquet (recorded page loads) is | required; SWEEPS=schedules: only these evaluations (lab/results); | OTHERS=FILE: also evaluate these page loads.
	@test -n "$(DATA)" || { echo "make lab-results DATA=FILE: the traces to evaluate on" >&2; exit 2; }
	lab/run-tests --install
	lab/results/run $(abspath $(DATA)) $(CACHE)/lab-results

results:  ## Print all tables of docs/results/PAGE.jsonl, and write an HTML page | and figures to ~/.cache/anabranch/results. | PAGE=fingerprinting or PAGE=schedules is required.
	@test -f "docs/results/$(PAGE).jsonl" || { echo "make results PAGE=fingerprinting|schedules" >&2; exit 2; }
	@lab/run-tests --install >&2
	@mkdir -p $(CACHE)/results
	@rm -f $(CACHE)/results/$(PAGE).md
	@$(CACHE)/venv-lab/bin/anabranch-lab report docs/results/$(PAGE).jsonl --out $(CACHE)/results/$(PAGE) \
		--markdown $(CACHE)/results/$(PAGE).md >&2
	@cat $(CACHE)/results/$(PAGE).md

reproduce-index:  ## Write docs/reproduction.md from the data in docs/results: tables, | figures and claims of the papers, with our numbers and verdicts.
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/anabranch-lab reproduction docs/results --pages --into docs/reproduction.md

reproduce:  ## Run the experiments of the papers, and compare which claims hold | with docs/results (root). Days; SHORT=1: an hour. | CONSENSUSES="FILE FILE": run experiment-anonymity too.
	@scripts/need interop
	tests/interop/setup --area experiments
	tests/interop/setup --area tor
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	lab/run-tests --install
	@mkdir -p $(CACHE)/experiments
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch CONSENSUSES="$(CONSENSUSES)" \
		scripts/reproduce $(or $(FOLDER),$(CACHE)/experiments/reproduce$(if $(SHORT),-short)) $(if $(SHORT),--short)

lab-guards:  ## Measure which web pages a guard recognises if a client uses several | circuits. DATA=shadow_tor_wikipedia98.parquet (page loads) is | required; ARGS="PAGES LOADS": only the first pages and loads.
	@test -n "$(DATA)" || { echo "make lab-guards DATA=FILE: loads as one guard saw them" >&2; exit 2; }
	lab/run-tests --install
	scripts/build-release -p anabranch-bench --bin guards
	GUARDS=$(CARGO_TARGET_DIR)/release/guards lab/results/guards $(abspath $(DATA)) $(CACHE)/lab-guards $(ARGS)

lab-designs:  ## Simulate protocols that use several circuits in a small network, and | write docs/results/designs.parquet. Minutes of one core.
	@scripts/need build
	scripts/build-release -p anabranch
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/python lab/results/designs.py $(CARGO_TARGET_DIR)/release/anabranch \
		$(CACHE)/lab-designs docs/results/designs.parquet
	$(MAKE) reproduce-index

lab-networks:  ## Test every neural network of the lab with scikit-learn's checks of | classifiers. Takes about 15 minutes.
	lab/run-tests --networks

lab-ray:  ## Test the lab's sweeps on a Ray cluster that runs on this machine. | Installs Ray (260 MB) into the lab's environment.
	lab/run-tests --ray

covertness: web  ## Test whether a classifier distinguishes our pluggable transport from | Chromium, and write docs/results/covertness.md (root). An hour; | started again, it continues. FOLDER=F: folder of the captures; | PICTURES=DIR: JPEG files for http-image; ARGS="--sessions 1": less.
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/covertness.py $(or $(FOLDER),$(CACHE)/covertness) $(ARGS)
	$(CACHE)/venv-lab/bin/anabranch-lab covertness $(or $(FOLDER),$(CACHE)/covertness) \
		--markdown docs/results/covertness.md --out docs/results/covertness.json

camouflage-loads: web  ## Measure which web pages are recognised through our pluggable | transport, and write docs/results/camouflage-fingerprinting.md | (root). Hours; started again, it continues. | FOLDER=F INTO=F ARGS=--short: ten minutes.
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/camouflage_fingerprinting.py $(or $(FOLDER),$(CACHE)/camouflage-loads) $(ARGS)
	$(CACHE)/venv-lab/bin/anabranch-lab camouflage $(or $(INTO),docs/results/camouflage-fingerprinting) \
		--captures $(or $(FOLDER),$(CACHE)/camouflage-loads) --markdown $(or $(INTO),docs/results/camouflage-fingerprinting).md

##@ Other
web:  ## Build local web sites for experiments, one from each of 369 packages | of Debian and npm. Downloads 0.7 GB.
	@scripts/need web
	python3 -B scripts/web/build.py --cache $(CACHE)/web-packages --out $(CACHE)/web

fuzz:  ## Run each fuzz target for 60 seconds. SECONDS=N: for N seconds; | TARGET=core_driver: only this target.
	scripts/fuzz $(or $(SECONDS),60) $(or $(TARGET),$(FUZZ_TARGETS))

clean:  ## Remove all built and downloaded files (~/.cache/anabranch).
	rm -rf $(CACHE)
