# All that is built or downloaded lies in ${XDG_CACHE_HOME:-~/.cache}/anabranch; the clone stays as it is.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/anabranch
export CARGO_TARGET_DIR ?= $(CACHE)/target
PREFIX ?= /usr/local
PYTHON := $(CACHE)/peers/venv/bin/python
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
AREA ?= all

.PHONY: to-add help book build install static reproducible picture demo test screens check package release five-minutes bench bench-wireguard flame accuracy interop soak mixed-soak experiment-overhead experiment-circumvention experiment-circuits experiment-unordered experiment-camouflage experiment-anonymity experiment-pages results reproduce-index lab-results lab-guards lab-networks lab-ray covertness web fuzz clean

help:  ## this list of targets
	@sed -n 's/^\([a-z-]*\):[^#]*## */  make \1\t/p' Makefile | expand -t 20

build:  ## build the optimised program
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)
	@strip -o $(CACHE)/stripped $(CARGO_TARGET_DIR)/release/anabranch
	@echo "built $(CARGO_TARGET_DIR)/release/anabranch ($$(du -h $(CACHE)/stripped | cut -f 1) stripped)"
	@rm $(CACHE)/stripped

install: build  ## install the program, man pages, completions and documents below PREFIX=/usr/local (DESTDIR= is put in front of it)
	packaging/install $(CARGO_TARGET_DIR)/release/anabranch $(abspath $(PREFIX))

static: TARGET := $(shell uname -m)-unknown-linux-musl
static:  ## build a static program that runs on any Linux (rustup installs Rust's musl target)
	@scripts/need static
	rustup target add $(TARGET)
	scripts/build-release --target $(TARGET) -p anabranch
	@strip -o $(CACHE)/anabranch-static $(CARGO_TARGET_DIR)/$(TARGET)/release/anabranch
	@echo "built $(CACHE)/anabranch-static ($$(du -h $(CACHE)/anabranch-static | cut -f 1))"

reproducible:  ## build in two folders and compare the bytes (takes twice as long as build)
	scripts/reproducible $(CACHE)/reproducible

picture: demo  ## redraw the picture of README from the traffic of the demo
	python3 scripts/picture.py $(CACHE)/demo/demo.html docs/picture.svg

# With the optimised program where there is one, else with one that is built in less time, without
# the onion network and the experiments.
demo: PROFILE = $(if $(wildcard $(CARGO_TARGET_DIR)/release/anabranch),release,quick)
demo: LESS = $(if $(filter quick,$(PROFILE)),--no-default-features)
demo:  ## run unmodified WireGuard, QUIC and Mosh servers over three emulated paths, and show what each path's observer saw
	@scripts/need demo
	@tests/interop/setup --area demo & scripts/build-release --profile $(PROFILE) -p anabranch $(LESS) && wait
	ANABRANCH=$(CARGO_TARGET_DIR)/$(PROFILE)/anabranch python3 examples/demo.py

test:  ## run all tests that finish in minutes: Rust, Python harness, and two sessions with unmodified servers
	@scripts/need test
	@scripts/test

screens:  ## rewrite the golden files of the live views (crates/cli/testdata/screens); review the changes with git diff
	ANABRANCH_SCREENS=1 cargo test --locked -p anabranch --bin anabranch looks_as_it_did
	scripts/screen.py

check:  ## check format, lints, documentation, and the rules of the design (scripts/guards.py)
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

to-add:  ## check the files that ARCHITECTURE.md lists for adding a scheduler, command, link, attack or experiment
	@scripts/need check
	lab/run-tests --install
	LAB_PYTHON=$(CACHE)/venv-lab/bin/python scripts/to_add.py $(CACHE)/to-add

package:  ## build the Debian package: program, service, man pages, completions
	@scripts/need package
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/package
	packaging/deb/build $(CARGO_TARGET_DIR)/release/anabranch $(CACHE)/package

release:  ## build all files of a release in CACHE/release/files: packages, static programs, wheels, SBOMs (an hour)
	@scripts/need release
	scripts/release $(CACHE)/release $(ARCHITECTURES)

five-minutes:  ## run and time the first five minutes of README on a bare Debian 12 (root; after make release)
	scripts/five-minutes $(CACHE)/release/files $(CACHE)/five-minutes

book:  ## build all documents as one book with a search, and the API documentation; a dead link is an error (installs mdBook)
	@scripts/need build
	cargo install --locked --quiet --version 0.5.4 --root $(CACHE)/mdbook mdbook
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --no-deps --locked
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/python -m pip install --quiet pdoc==16.0.0
	@rm -rf $(CACHE)/pdoc
	$(CACHE)/venv-lab/bin/pdoc --output-directory $(CACHE)/pdoc anabranch
	MDBOOK=$(CACHE)/mdbook/bin/mdbook scripts/book.py $(CACHE)/book --api $(CARGO_TARGET_DIR)/doc --python $(CACHE)/pdoc

flame:  ## write a flame graph of a middle relay's CPU time (INTO=FILE.svg)
	@scripts/need flame
	CARGO_PROFILE_RELEASE_DEBUG=line-tables-only scripts/build-release -p anabranch
	cargo install --locked --quiet --version 0.12.8 --root $(CACHE)/inferno inferno
	tests/interop/setup --area tor
	PATH=$(CACHE)/inferno/bin:$$PATH ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch \
		$(PYTHON) bench/flame.py --into $(or $(INTO),docs/notes/relay-flame.svg) $(ARGS)

bench:  ## measure speed and compare it with the targets (ARGS="forward delay" for some areas). AREA=tor: CPU of a middle relay, ours and C tor's; AREA=network: a client among 7,000 relays; AREA=far-end: CPU and goodput of a far end (root); AREA=legs: schedulers over emulated circuits; AREA=camouflage: goodput, CPU and memory of a pluggable transport (root)
	@scripts/need bench
ifeq ($(AREA),network)
	scripts/build-release -p anabranch-bench --bin network
	$(CARGO_TARGET_DIR)/release/network $(ARGS)
else
ifeq ($(AREA),legs)
	cargo test --release --locked -p anabranch-onion --features testing --test schedulers -- --ignored --nocapture
else
ifeq ($(AREA),far-end)
	scripts/build-release -p anabranch -p anabranch-bench -p anabranch-os --bins --examples
	$(CARGO_TARGET_DIR)/release/bench far-end
	tests/interop/setup --area wireguard
	tests/interop/setup --area quic
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/far_end.py $(ARGS)
else
ifeq ($(AREA),camouflage)
	scripts/venv
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/camouflage.py $(ARGS)
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/camouflage_load.py
else
ifeq ($(AREA),tor)
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin idle-circuits --bin guard-clients --bin relay-limit
	scripts/build-release -p anabranch-os --example pass
	$(CARGO_TARGET_DIR)/release/idle-circuits
	$(CARGO_TARGET_DIR)/release/guard-clients
	$(CARGO_TARGET_DIR)/release/relay-limit
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
endif
endif
endif
endif

bench-wireguard:  ## measure WireGuard over three emulated paths, over one, and on loopback (root; part of bench)
	scripts/build-release -p anabranch
	tests/interop/setup --area wireguard
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/wireguard.py

accuracy:  ## measure how exact the emulator is: rate, delay, loss, TCP (root, on an idle machine; two minutes)
	@scripts/need bench
	cargo test --release --locked -p anabranch-emulator --test accuracy -- --ignored --nocapture --test-threads=1

interop:  ## test with unmodified software over emulated paths; AREA=quic for one area, ALLOW_SKIP=1 to skip what is not installed
	@scripts/need interop
	tests/interop/run $(AREA)

soak:  ## 20 minutes: run 200 clients in one process while relays are killed; SECONDS=, CLIENTS=, SEED= (ARGS="--out FOLDER" keeps the records)
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/soak.py --seconds $(or $(SECONDS),1200) \
		--clients $(or $(CLIENTS),200) --seed $(or $(SEED),1) $(ARGS)

mixed-soak:  ## 20 minutes: kill C tor's relays and ours under C tor clients and an onion service, and compare with C tor relays alone; SECONDS=, SEED= (ARGS="--out FOLDER")
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/mixed_soak.py --seconds $(or $(SECONDS),1200) \
		--seed $(or $(SEED),1) $(ARGS)

experiment-overhead:  ## an hour and a half: what splitting costs WireGuard, Mosh and QUIC, compared with the paper; continues after a stop (root; ARGS=--full)
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment overhead $(or $(FOLDER),$(CACHE)/experiments/overhead) $(ARGS)

experiment-circumvention:  ## nine minutes: evade a censor by sending only the handshake through a VPN; continues after a stop (root)
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circumvention $(or $(FOLDER),$(CACHE)/experiments/circumvention) $(ARGS)

experiment-circuits:  ## three hours: one circuit for a stream or several, ours and C tor's, in networks of seven relays; continues after a stop (root; ARGS=--short)
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circuits $(or $(FOLDER),$(CACHE)/experiments/circuits) $(ARGS)

experiment-unordered:  ## many hours, or five minutes with ARGS=--short: links on which circuits do not wait for each other, compared with ordered links and C tor; continues after a stop (root; FOLDER=)
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment unordered $(or $(FOLDER),$(CACHE)/experiments/unordered) $(ARGS)

experiment-camouflage:  ## many hours, or twenty minutes with ARGS=--short: what camouflage costs through Tor, compared with obfs4 and webtunnel; continues after a stop (root; FOLDER=, ARGS='--pictures FOLDER' for http-image)
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment camouflage $(or $(FOLDER),$(CACHE)/experiments/camouflage) $(ARGS)

experiment-anonymity:  ## hours: what hostile relays learn about circuits with several legs; CONSENSUSES="2015-10-10.tsv 2017-03-10.tsv"; continues after a stop (FOLDER=, ARGS=)
	@test -n "$(CONSENSUSES)" || { echo 'CONSENSUSES is missing: make experiment-anonymity CONSENSUSES="FILE FILE" (consensuses of the Tor network)' >&2; exit 2; }
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment anonymity $(or $(FOLDER),$(CACHE)/experiments/anonymity) $(addprefix --consensus ,$(CONSENSUSES)) $(ARGS)

experiment-pages: web  ## hours: record page loads in Chromium, split and undefended, as a data set; continues after a stop (root; ARGS='--monitored 5 --loads 3')
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment pages $(or $(FOLDER),$(CACHE)/experiments/pages) --web $(CACHE)/web $(ARGS)

lab-results:  ## hours: evaluate what each observer learns; DATA=shadow_tor_wikipedia98.parquet; continues after a stop (SWEEPS=schedules: only these; OTHERS=FILE: also on these loads)
	@test -n "$(DATA)" || { echo "DATA is missing: make lab-results DATA=FILE (the traces to evaluate)" >&2; exit 2; }
	lab/run-tests --install
	lab/results/run $(abspath $(DATA)) $(CACHE)/lab-results

results:  ## print all tables of docs/results/PAGE.jsonl (PAGE=fingerprinting or schedules); page and figures go to the cache
	@test -f "docs/results/$(PAGE).jsonl" || { echo "docs/results/$(PAGE).jsonl does not exist: make results PAGE=fingerprinting or PAGE=schedules" >&2; exit 2; }
	@lab/run-tests --install >&2
	@mkdir -p $(CACHE)/results
	@rm -f $(CACHE)/results/$(PAGE).md
	@$(CACHE)/venv-lab/bin/anabranch-lab report docs/results/$(PAGE).jsonl --out $(CACHE)/results/$(PAGE) \
		--markdown $(CACHE)/results/$(PAGE).md >&2
	@cat $(CACHE)/results/$(PAGE).md

reproduce-index:  ## write docs/reproduction.md from the committed data: the papers' tables, figures and claims, with our numbers and verdicts
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/anabranch-lab reproduction docs/results --into docs/reproduction.md

lab-guards:  ## evaluate what each guard of a circuit with several legs learns; DATA=shadow_tor_wikipedia98.parquet (ARGS="PAGES LOADS")
	@test -n "$(DATA)" || { echo "DATA is missing: make lab-guards DATA=FILE (loads that one guard saw)" >&2; exit 2; }
	lab/run-tests --install
	scripts/build-release -p anabranch-bench --bin guards
	GUARDS=$(CARGO_TARGET_DIR)/release/guards lab/results/guards $(abspath $(DATA)) $(CACHE)/lab-guards $(ARGS)

lab-networks:  ## 15 minutes: run scikit-learn's estimator checks on every neural network of the lab
	lab/run-tests --networks

lab-ray:  ## test the lab's sweeps with Ray on this machine (installs 260 MB into the lab's environment)
	lab/run-tests --ray

covertness: web  ## an hour: capture transports and Chromium on one line, and test whether they can be told apart; rewrites the numbers of the page; continues after a stop (root; FOLDER=, PICTURES=, ARGS="--sessions 1")
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/covertness.py $(or $(FOLDER),$(CACHE)/covertness) $(ARGS)
	$(CACHE)/venv-lab/bin/anabranch-lab covertness $(or $(FOLDER),$(CACHE)/covertness) --markdown docs/results/covertness.md

web:  ## create the local web for experiments: one page of each of 369 packages of Debian and npm (0.7 GB of downloads)
	@scripts/need web
	python3 -B scripts/web/build.py --cache $(CACHE)/web-packages --out $(CACHE)/web

fuzz:  ## fuzz each target for SECONDS=60; TARGET=core_driver for one target
	scripts/fuzz $(or $(SECONDS),60) $(or $(TARGET),$(FUZZ_TARGETS))

clean:  ## remove everything that was built
	rm -rf $(CACHE)
