# All that is built or downloaded lies in ${XDG_CACHE_HOME:-~/.cache}/anabranch; the clone stays as it is.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/anabranch
export CARGO_TARGET_DIR ?= $(CACHE)/target
PREFIX ?= /usr/local
PYTHON := $(CACHE)/peers/venv/bin/python
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
AREA ?= all

.PHONY: to-add help book build install static reproducible picture demo test screens check package release five-minutes bench bench-wireguard flame accuracy interop soak mixed-soak experiment-overhead experiment-circumvention experiment-circuits experiment-unordered experiment-camouflage experiment-anonymity experiment-pages results reproduce-index lab-results lab-guards lab-networks lab-ray covertness web fuzz clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## */  make \1\t/p' Makefile | expand -t 20

build:  ## the program, optimised
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)
	@strip -o $(CACHE)/stripped $(CARGO_TARGET_DIR)/release/anabranch
	@echo "built $(CARGO_TARGET_DIR)/release/anabranch ($$(du -h $(CACHE)/stripped | cut -f 1) stripped)"
	@rm $(CACHE)/stripped

install: build  ## the program, man pages, completions, documents, below PREFIX=/usr/local (and DESTDIR)
	packaging/install $(CARGO_TARGET_DIR)/release/anabranch $(abspath $(PREFIX))

static: TARGET := $(shell uname -m)-unknown-linux-musl
static:  ## a static program that runs on any Linux (installs Rust's musl target by rustup)
	@scripts/need static
	rustup target add $(TARGET)
	scripts/build-release --target $(TARGET) -p anabranch
	@strip -o $(CACHE)/anabranch-static $(CARGO_TARGET_DIR)/$(TARGET)/release/anabranch
	@echo "built $(CACHE)/anabranch-static ($$(du -h $(CACHE)/anabranch-static | cut -f 1))"

reproducible:  ## builds twice, in two folders, and compares the bytes (twice as long as build)
	scripts/reproducible $(CACHE)/reproducible

picture: demo  ## README's picture, of the demo's traffic
	python3 scripts/picture.py $(CACHE)/demo/demo.html docs/picture.svg

# With the optimised program where there is one, else with one that is built in less time, without
# the onion network and the experiments.
demo: PROFILE = $(if $(wildcard $(CARGO_TARGET_DIR)/release/anabranch),release,quick)
demo: LESS = $(if $(filter quick,$(PROFILE)),--no-default-features)
demo:  ## strangers' WireGuard, QUIC and Mosh servers behind three paths, and what each observer saw
	@scripts/need demo
	@tests/interop/setup --area demo & scripts/build-release --profile $(PROFILE) -p anabranch $(LESS) && wait
	ANABRANCH=$(CARGO_TARGET_DIR)/$(PROFILE)/anabranch python3 examples/demo.py

test:  ## all tests that need no long wait: Rust, harness, and two sessions against strangers' servers
	@scripts/need test
	@scripts/test

screens:  ## the live views' golden files (crates/cli/testdata/screens), made anew: look at what git shows
	ANABRANCH_SCREENS=1 cargo test --locked -p anabranch --bin anabranch looks_as_it_did
	scripts/screen.py

check:  ## format, lints, documentation, and the guards of the design's invariants
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

to-add:  ## ARCHITECTURE.md says which files a new scheduler, command, link, attack or experiment touches: so it is
	@scripts/need check
	lab/run-tests --install
	LAB_PYTHON=$(CACHE)/venv-lab/bin/python scripts/to_add.py $(CACHE)/to-add

package:  ## the Debian package: program, service, man pages, completions
	@scripts/need package
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/package
	packaging/deb/build $(CARGO_TARGET_DIR)/release/anabranch $(CACHE)/package

release:  ## all files of a release in CACHE/release/files: packages, static programs, wheels, SBOMs (an hour)
	@scripts/need release
	scripts/release $(CACHE)/release $(ARCHITECTURES)

five-minutes:  ## README's first five minutes on a bare Debian 12, timed (root; after make release)
	scripts/five-minutes $(CACHE)/release/files $(CACHE)/five-minutes

book:  ## all documents as one book with a search, and the API documentation beside them; dead links fail (installs mdBook)
	@scripts/need build
	cargo install --locked --quiet --version 0.5.4 --root $(CACHE)/mdbook mdbook
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --no-deps --locked
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/python -m pip install --quiet pdoc==16.0.0
	@rm -rf $(CACHE)/pdoc
	$(CACHE)/venv-lab/bin/pdoc --output-directory $(CACHE)/pdoc anabranch
	MDBOOK=$(CACHE)/mdbook/bin/mdbook scripts/book.py $(CACHE)/book --api $(CARGO_TARGET_DIR)/doc --python $(CACHE)/pdoc

flame:  ## where a middle relay spends its time, as a flame graph (INTO=FILE.svg)
	@scripts/need flame
	CARGO_PROFILE_RELEASE_DEBUG=line-tables-only scripts/build-release -p anabranch
	cargo install --locked --quiet --version 0.12.8 --root $(CACHE)/inferno inferno
	tests/interop/setup --area tor
	PATH=$(CACHE)/inferno/bin:$$PATH ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch \
		$(PYTHON) bench/flame.py --into $(or $(INTO),docs/notes/relay-flame.svg) $(ARGS)

bench:  ## speed, against the targets (ARGS="forward delay" for some areas); AREA=tor: a middle relay's CPU beside C tor's; AREA=network: a client among 7,000 relays; AREA=far-end: its CPU, and goodput by way of it (root); AREA=legs: schedulers over circuits, emulated; AREA=tcp: our TCP's goodput beside Linux's (root; 20 minutes); AREA=camouflage: a pluggable transport's goodput, CPU and memory (root)
	@scripts/need bench
ifeq ($(AREA),network)
	scripts/build-release -p anabranch-bench --bin network
	$(CARGO_TARGET_DIR)/release/network $(ARGS)
else
ifeq ($(AREA),legs)
	cargo test --release --locked -p anabranch-onion --features testing --test schedulers -- --ignored --nocapture
else
ifeq ($(AREA),tcp)
	cargo test --release --locked -p anabranch-emulator --test tcp -- --ignored --nocapture
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
endif

bench-wireguard:  ## WireGuard over three emulated paths against one, and on loopback (root; part of bench)
	scripts/build-release -p anabranch
	tests/interop/setup --area wireguard
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/wireguard.py

accuracy:  ## how exact the emulator is: rate, delay, loss, TCP (root, a quiet machine; two minutes)
	@scripts/need bench
	cargo test --release --locked -p anabranch-emulator --test accuracy -- --ignored --nocapture --test-threads=1

interop:  ## against strangers' software over emulated paths; AREA=quic for a part, ALLOW_SKIP=1
	@scripts/need interop
	tests/interop/run $(AREA)

soak:  ## 20 minutes: 200 clients in one process while relays are killed; SECONDS=, CLIENTS=, SEED= (ARGS="--out FOLDER" keeps what was seen)
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/soak.py --seconds $(or $(SECONDS),1200) \
		--clients $(or $(CLIENTS),200) --seed $(or $(SEED),1) $(ARGS)

mixed-soak:  ## 20 minutes: stock relays and ours are killed under stock clients and an onion service, beside a twin of stock relays alone; SECONDS=, SEED= (ARGS="--out FOLDER")
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch -p anabranch-bench --bin anabranch --bin soak
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/mixed_soak.py --seconds $(or $(SECONDS),1200) \
		--seed $(or $(SEED),1) $(ARGS)

experiment-overhead:  ## an hour and a half: what splitting costs WireGuard, Mosh and QUIC, beside the paper; goes on where it stopped (root; ARGS=--full)
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment overhead $(or $(FOLDER),$(CACHE)/experiments/overhead) $(ARGS)

experiment-circumvention:  ## nine minutes: around a censor with the handshake alone by a VPN, and what it costs; goes on where it stopped (root)
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circumvention $(or $(FOLDER),$(CACHE)/experiments/circumvention) $(ARGS)

experiment-circuits:  ## three hours: one circuit for a stream and several, ours and C tor's, in networks of seven relays; goes on where it stopped (root; ARGS=--short)
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment circuits $(or $(FOLDER),$(CACHE)/experiments/circuits) $(ARGS)

experiment-unordered:  ## many hours, FOLDER=… ARGS=--short five minutes: links on which circuits do not wait for each other, beside links in order and C tor; goes on where it stopped (root)
	@scripts/need interop
	tests/interop/setup --area tor
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment unordered $(or $(FOLDER),$(CACHE)/experiments/unordered) $(ARGS)

experiment-camouflage:  ## many hours, FOLDER=… ARGS=--short twenty minutes: what camouflage costs through Tor, beside obfs4 and webtunnel; goes on where it stopped (root; ARGS='--pictures FOLDER' for http-image)
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment camouflage $(or $(FOLDER),$(CACHE)/experiments/camouflage) $(ARGS)

experiment-anonymity:  ## hours: what hostile relays learn of circuits over several legs; CONSENSUSES="2015-10-10.tsv 2017-03-10.tsv", goes on where it stopped (FOLDER=, ARGS=)
	@test -n "$(CONSENSUSES)" || { echo 'make experiment-anonymity CONSENSUSES="FILE FILE": consensuses of the public network' >&2; exit 2; }
	@scripts/need build
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment anonymity $(or $(FOLDER),$(CACHE)/experiments/anonymity) $(addprefix --consensus ,$(CONSENSUSES)) $(ARGS)

experiment-pages: web  ## hours: page loads in Chromium, split and undefended, as a data set; goes on where it stopped (root; ARGS='--monitored 5 --loads 3')
	@scripts/need interop
	tests/interop/setup --area experiments
	scripts/build-release -p anabranch
	@mkdir -p $(CACHE)/experiments
	$(CARGO_TARGET_DIR)/release/anabranch experiment pages $(or $(FOLDER),$(CACHE)/experiments/pages) --web $(CACHE)/web $(ARGS)

lab-results:  ## hours: what each observer learns; DATA=shadow_tor_wikipedia98.parquet, goes on where it stopped (SWEEPS=schedules: those alone; OTHERS=FILE: these on further loads)
	@test -n "$(DATA)" || { echo "make lab-results DATA=FILE: the traces to evaluate on" >&2; exit 2; }
	lab/run-tests --install
	lab/results/run $(abspath $(DATA)) $(CACHE)/lab-results

results:  ## prints all tables of docs/results/PAGE.jsonl (PAGE=fingerprinting or schedules); page and figures in the cache
	@test -f "docs/results/$(PAGE).jsonl" || { echo "make results PAGE=fingerprinting|schedules" >&2; exit 2; }
	@lab/run-tests --install >&2
	@mkdir -p $(CACHE)/results
	@rm -f $(CACHE)/results/$(PAGE).md
	@$(CACHE)/venv-lab/bin/anabranch-lab report docs/results/$(PAGE).jsonl --out $(CACHE)/results/$(PAGE) \
		--markdown $(CACHE)/results/$(PAGE).md >&2
	@cat $(CACHE)/results/$(PAGE).md

reproduce-index:  ## docs/reproduction.md from the committed data: the papers' tables, figures and claims, with our numbers and verdicts
	lab/run-tests --install
	$(CACHE)/venv-lab/bin/anabranch-lab reproduction docs/results --into docs/reproduction.md

lab-guards:  ## what each guard of a circuit with several legs learns: loads played by cores, then attacked; DATA=shadow_tor_wikipedia98.parquet (ARGS="PAGES LOADS")
	@test -n "$(DATA)" || { echo "make lab-guards DATA=FILE: loads as one guard saw them" >&2; exit 2; }
	lab/run-tests --install
	scripts/build-release -p anabranch-bench --bin guards
	GUARDS=$(CARGO_TARGET_DIR)/release/guards lab/results/guards $(abspath $(DATA)) $(CACHE)/lab-guards $(ARGS)

lab-networks:  ## scikit-learn's checks of estimators on every network of the lab, some 15 minutes
	lab/run-tests --networks

lab-ray:  ## the lab's sweeps on a Ray of this machine, which it installs into the lab's environment (260 MB)
	lab/run-tests --ray

covertness: web  ## an hour: is a transport told from Chromium? captures on one line, judged, the page's numbers made anew; goes on where it stopped (root; FOLDER=, PICTURES=, ARGS="--sessions 1")
	@scripts/need interop
	tests/interop/setup --area pt
	scripts/build-release -p anabranch
	ANABRANCH=$(CARGO_TARGET_DIR)/release/anabranch $(PYTHON) bench/covertness.py $(or $(FOLDER),$(CACHE)/covertness) $(ARGS)
	$(CACHE)/venv-lab/bin/anabranch-lab covertness $(or $(FOLDER),$(CACHE)/covertness) --markdown docs/results/covertness.md

web:  ## the local web: a page of each of 369 packages of Debian and npm, for experiments (0.7 GB of downloads)
	@scripts/need web
	python3 -B scripts/web/build.py --cache $(CACHE)/web-packages --out $(CACHE)/web

fuzz:  ## each target for SECONDS=60; TARGET=core_driver for one
	scripts/fuzz $(or $(SECONDS),60) $(or $(TARGET),$(FUZZ_TARGETS))

clean:  ## removes everything that was built
	rm -rf $(CACHE)
