# PLFS: build, test, install. `make help` lists the targets; each works alone on a fresh clone.
#
# Variables: PREFIX (default /usr/local), DESTDIR, BUILD (default build), CARGO, CC.
# CARGO_TARGET_DIR is honoured. PROFILE=release builds in half the time what is a tenth slower.
# With CI=true a test that cannot run here is a failure. SUITES="cli fsx" are the suites of make
# test.

PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
PROFILE ?= dist
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
INSTALL = install
STRIP ?= strip
# Files and directories that `make install` made, below PREFIX.
INSTALLED = share/plfs/installed

# What Debian calls what the build and the tests need.
PACKAGES = build-essential pkg-config python3 fio mpich libmpich-dev openmpi-bin libopenmpi-dev libhdf5-mpich-dev pnetcdf-bin libpnetcdf-dev netcdf-bin gfortran rsync attr acl bc file perl git curl ca-certificates \
	sqlite3 zip unzip cpio python3-venv stress-ng fuse3 shellcheck strace libjemalloc2 libtcmalloc-minimal4 faketime
# And what only make test-mpi needs.
MPI_PACKAGES = lammps libnetcdf-mpi-dev
# And what make test-applications needs besides.
APPLICATION_PACKAGES = lammps gromacs python3-h5py-mpi
# And what make test-foreign needs besides.
FOREIGN_PACKAGES = $(if $(shell command -v go),,golang-go)

# The linter of Python and the formatter of C, which make lint gets from PyPI.
RUFF = ruff==0.17.6
CLANG_FORMAT = clang-format==23.1.5
SUITES ?=
RUN = CARGO="$(CARGO)" tests/run --build "$(abspath $(BUILD))"

.PHONY: help deps build install uninstall test test-mpi fuzz test-fuse test-applications test-foreign torture headers lint demo bench ci clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

deps: ## install what is missing (Debian packages, Rust); needs root or says what to run
	@missing=$$(for p in $(PACKAGES); do dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null | grep -qx installed || echo $$p; done | tr '\n' ' '); \
	command -v javac > /dev/null || missing="$$missing default-jdk-headless"; \
	if [ -n "$$missing" ]; then \
		command -v apt-get > /dev/null || { echo "make deps knows Debian only; install what these packages of Debian have: $$missing" >&2; exit 1; }; \
		[ $$(id -u) = 0 ] || { echo "as root, run: apt-get install $$missing" >&2; exit 1; }; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing || exit 1; \
	fi
	@# CPython's own tests, of which Debian has a package for each version.
	@python3 -c 'import test.test_fileio' 2> /dev/null || /usr/bin/python3 -c 'import test.test_fileio' 2> /dev/null || { [ $$(id -u) = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		libpython$$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite; } || echo "the tests of CPython cannot be had; tests/foreign leaves them out" >&2
	@# Debian 13 has rustup; its own Rust is too old.
	@command -v $(CARGO) > /dev/null && $(CARGO) --version > /dev/null || { \
		command -v rustup > /dev/null || [ $$(id -u) != 0 ] || apt-get install -q -y --no-install-recommends rustup 2> /dev/null || true; \
		if command -v rustup > /dev/null; then rustup toolchain install stable --profile minimal -c rustfmt -c clippy && rustup default stable; \
		else echo "PLFS needs Rust 1.88 or later: install it from https://rustup.rs, then run make again" >&2; exit 1; fi; }
	@# An MPI with the standard ABI, which Debian does not have: its header for the build, the rest for the tests.
	@[ -e $(BUILD)/deps/mpich/include/mpi_abi.h ] || { python3 -m venv $(BUILD)/deps/mpich && $(BUILD)/deps/mpich/bin/pip install -q --no-compile --disable-pip-version-check mpich==5.0.2; } \
		|| echo "the MPICH of PyPI cannot be had; PLFS will be built without MPI-IO for the standard ABI" >&2

build: ## release build into build/, laid out as it is installed
	@# Beside plfs-headers, of which nothing is built, dependencies have the features of the workspace.
	$(CARGO) build --profile $(PROFILE) --locked -p plfs-cli -p plfs-capi -p plfs-headers --lib --bin plfs
	@mkdir -p $(BUILD)/bin $(BUILD)/lib/plfs $(BUILD)/lib/pkgconfig $(BUILD)/include $(BUILD)/share/man/man1 \
		$(BUILD)/share/bash-completion/completions $(BUILD)/share/zsh/site-functions $(BUILD)/share/fish/vendor_completions.d
	@# Through a second name: a program that is running keeps its file.
	@$(INSTALL) -m 755 $(TARGET)/$(PROFILE)/plfs $(BUILD)/bin/.plfs.new && mv -f $(BUILD)/bin/.plfs.new $(BUILD)/bin/plfs
	@$(INSTALL) -m 755 $(TARGET)/$(PROFILE)/libplfs.so $(BUILD)/lib/.libplfs.new && mv -f $(BUILD)/lib/.libplfs.new $(BUILD)/lib/libplfs.so.$(VERSION)
	@ln -sf libplfs.so.$(VERSION) $(BUILD)/lib/libplfs.so.0
	@ln -sf libplfs.so.0 $(BUILD)/lib/libplfs.so
	@cmp -s crates/plfs-capi/include/plfs.h $(BUILD)/include/plfs.h || $(INSTALL) -m 644 crates/plfs-capi/include/plfs.h $(BUILD)/include/plfs.h
	@printf '%s\n' 'prefix=$${pcfiledir}/../..' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' 'Name: plfs' \
		'Description: Shared files become logs that storage likes' 'Version: $(VERSION)' \
		'Libs: -L$${libdir} -lplfs' 'Cflags: -I$${includedir}' > $(BUILD)/lib/pkgconfig/plfs.pc
	$(MAKE) --no-print-directory -C preload OUT=$(abspath $(BUILD))/lib/plfs PLFS_INC=$(abspath crates/plfs-capi/include) PLFS_LIB=$(abspath $(BUILD))/lib
	$(MAKE) --no-print-directory -C mpi OUT=$(abspath $(BUILD))/lib/plfs OBJ=$(abspath $(BUILD))/obj/mpi PKGCONFIG=$(abspath $(BUILD))/lib/pkgconfig VERSION=$(VERSION) PLFS_INC=$(abspath crates/plfs-capi/include) PLFS_LIB=$(abspath $(BUILD))/lib \
		ABI_INC=$(if $(ABI_INC),$(ABI_INC),$(abspath $(BUILD))/deps/mpich/include)
	$(MAKE) --no-print-directory -C netcdf OUT=$(abspath $(BUILD))/lib/plfs OBJ=$(abspath $(BUILD))/obj/netcdf PKGCONFIG=$(abspath $(BUILD))/lib/pkgconfig VERSION=$(VERSION) PLFS_INC=$(abspath crates/plfs-capi/include)
	@# mount -t fuse.plfs looks for this name in /sbin; it is the same program.
	@mkdir -p $(BUILD)/sbin $(BUILD)/lib/systemd/system
	@ln -sf ../bin/plfs $(BUILD)/sbin/mount.fuse.plfs
	@$(INSTALL) -m 644 crates/plfs-fuse/plfs@.service $(BUILD)/lib/systemd/system/plfs@.service
	@$(BUILD)/bin/plfs man $(BUILD)/share/man/man1
	@$(BUILD)/bin/plfs completions bash > $(BUILD)/share/bash-completion/completions/plfs
	@$(BUILD)/bin/plfs completions zsh > $(BUILD)/share/zsh/site-functions/_plfs
	@$(BUILD)/bin/plfs completions fish > $(BUILD)/share/fish/vendor_completions.d/plfs.fish

install: build ## copy build/ to DESTDIR/PREFIX (make install PREFIX=$HOME/plfs), without symbols (STRIP=: keeps them)
	@# What is new there, with a / behind directories, is what `make uninstall` takes away.
	@cd $(BUILD) && to="$(abspath $(DESTDIR)$(PREFIX))" && list="$$to/$(INSTALLED)" && \
		new=$$({ echo $(dir $(INSTALLED)); find bin sbin lib include share -depth -type d; } | while read -r dir; do [ -d "$$to/$$dir" ] || echo "$${dir%/}/"; done; grep '/$$' "$$list" 2> /dev/null || true) && \
		mkdir -p "$${list%/*}" && { find bin sbin lib include share ! -type d; echo $(INSTALLED); echo "$$new"; } > "$$list" && \
		tar cf - --owner=0 --group=0 bin sbin lib include share | tar xf - --no-same-owner -C "$$to" && \
		$(STRIP) --strip-unneeded "$$to/bin/plfs" "$$to/lib/libplfs.so.$(VERSION)" "$$to"/lib/plfs/*.so && $(STRIP) --strip-debug "$$to"/lib/plfs/*.a
	@# mount(8) looks in /sbin only, systemd reads what is in its own directories.
	@sed -i 's|^ExecStart=plfs|ExecStart=$(PREFIX)/bin/plfs|; s|^ExecStop=plfs|ExecStop=$(PREFIX)/bin/plfs|' "$(DESTDIR)$(PREFIX)/lib/systemd/system/plfs@.service"
	@echo "installed in $(DESTDIR)$(PREFIX); try: $(PREFIX)/bin/plfs run -- COMMAND"
	@[ "$(PREFIX)" = /usr ] || echo "for mount -t fuse.plfs and /etc/fstab: ln -s $(PREFIX)/bin/plfs /sbin/mount.fuse.plfs; for systemd: systemctl link $(PREFIX)/lib/systemd/system/plfs@.service"

uninstall: ## take away what `make install` put into DESTDIR/PREFIX
	@cd "$(DESTDIR)$(PREFIX)" && [ -e $(INSTALLED) ] || { echo "nothing is installed in $(DESTDIR)$(PREFIX), or by a build without a list ($(INSTALLED))" >&2; exit 1; }
	@cd "$(DESTDIR)$(PREFIX)" && list=$$(cat $(INSTALLED)) && echo "$$list" | grep -v '/$$' | tr '\n' '\0' | xargs -0 rm -f && \
		echo "$$list" | grep '/$$' | tr '\n' '\0' | xargs -0r rmdir --ignore-fail-on-non-empty

test: build ## all tests; the last line sums them up
	@$(RUN) $(SUITES)

test-mpi: ## programs that use MPI-IO, on 1 to 8 ranks of five MPIs; installs them, takes half an hour
	$(MAKE) --no-print-directory deps PACKAGES="$(PACKAGES) $(MPI_PACKAGES)"
	$(MAKE) --no-print-directory build
	$(RUN) --full mpi_programs

test-fuse: deps build ## programs in a mount at length, and stress-ng; needs root, takes an hour
	$(RUN) --full fuse

test-applications: ## GROMACS, LAMMPS, h5py (also over MPI), zarr, duckdb, adios2, numpy, and torch if it is there; installs them, takes minutes
	$(MAKE) --no-print-directory deps PACKAGES="$(PACKAGES) $(APPLICATION_PACKAGES)"
	$(MAKE) --no-print-directory build
	$(RUN) applications

test-foreign: ## the test-suites of others (glibc, POSIX, CPython, Perl, busybox, OpenJDK, Go) in full; needs root for the mount, takes an hour
	$(MAKE) --no-print-directory deps PACKAGES="$(PACKAGES) $(FOREIGN_PACKAGES)"
	$(MAKE) --no-print-directory build
	$(RUN) --full foreign

fuzz: ## feed hostile bytes to every decoder, FUZZ_SECONDS=60 each; findings stay in fuzz/artifacts
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) $(RUN) fuzz

torture: deps build ## the random tests for hours, with fresh seeds: millions of operations, of steps against the model, of power losses, an hour of threads and signals
	T_FULL=1 OPS=$(or $(OPS),4000000) PLFS_MODEL_STEPS=$(or $(PLFS_MODEL_STEPS),20000000) PLFS_CRASH_ROUNDS=$(or $(PLFS_CRASH_ROUNDS),50000) \
		PLFS_HOSTILE_ROUNDS=$(or $(PLFS_HOSTILE_ROUNDS),100000) PLFS_KILL_ROUNDS=$(or $(PLFS_KILL_ROUNDS),2000) PLFS_SCHEDULES=$(or $(PLFS_SCHEDULES),500000) PLFS_RACES=$(or $(PLFS_RACES),20000) PLFS_MODEL_DEPTH=$(or $(PLFS_MODEL_DEPTH),0) \
		PLFS_INDEX_PERCENT=$(or $(PLFS_INDEX_PERCENT),10000) PLFS_PACK_ROUNDS=$(or $(PLFS_PACK_ROUNDS),3000) \
		PLFS_STRESS_S=$(or $(PLFS_STRESS_S),1800) PLFS_STRESS_PERCENT=$(or $(PLFS_STRESS_PERCENT),1000) \
		FUZZ_SECONDS=$(or $(FUZZ_SECONDS),3600) $(RUN) engine models schedules fsx stress fuzz

headers: ## write plfs.h and plfs_door.h, which are committed, from the sources of the C API
	$(CARGO) build --release --locked --workspace --bin plfs-headers

lint: ## formatting and linters of Rust, C, Python and shell, and the committed headers are the generated ones
	$(MAKE) --no-print-directory -C preload analyze PLFS_INC=$(abspath crates/plfs-capi/include)
	$(MAKE) --no-print-directory -C mpi analyze PLFS_INC=$(abspath crates/plfs-capi/include)
	$(MAKE) --no-print-directory -C netcdf analyze
	@[ "$$(cat $(BUILD)/deps/lint/has 2> /dev/null)" = "$(RUFF) $(CLANG_FORMAT)" ] || { python3 -m venv $(BUILD)/deps/lint && \
		$(BUILD)/deps/lint/bin/pip install -q --no-compile --disable-pip-version-check $(RUFF) $(CLANG_FORMAT) && \
		echo "$(RUFF) $(CLANG_FORMAT)" > $(BUILD)/deps/lint/has; }
	$(BUILD)/deps/lint/bin/ruff check
	$(BUILD)/deps/lint/bin/ruff format --check
	@# plfs.h and plfs_door.h are generated, but for the heads in headers/.
	git ls-files '*.c' '*.h' ':!crates/plfs-capi/include' | xargs $(BUILD)/deps/lint/bin/clang-format --dry-run -Werror
	python3 .ci/lines.py
	@# The s_*.sh of tests/preload are what users write, odd on purpose. Below a warning are matters of style.
	git ls-files '*.sh' .ci/run ':!tests/preload/s_*' | xargs shellcheck -x -S warning
	$(CARGO) fmt --all --check
	@# The build script of plfs-headers writes the headers, here as in make headers.
	@# With the locks of tests/schedules, which are larger: what is only there without them is a few lines of plfs/src/sync.rs.
	$(CARGO) clippy --release --locked --workspace --all-targets --features plfs-tests/shuttle -- -D warnings -A clippy::large-enum-variant
	git diff --exit-code crates/plfs-capi/include

demo: deps build ## the main job, direct and through PLFS, in one table
	python3 bench/demo.py --build $(abspath $(BUILD))

bench: build ## measure: shared file and file per process, direct and through PLFS; single calls; indexes
	python3 bench/run.py --build $(abspath $(BUILD)) --storage tmpfs
	python3 bench/micro.py --build $(abspath $(BUILD))
	CARGO="$(CARGO)" python3 bench/index.py --small
	python3 bench/habits.py --build $(abspath $(BUILD)) --writes 160000 --mib 256 --only tiny,synced,map

# Doors and tests of one profile, in which nothing is compiled twice.
ci: export CARGO_INCREMENTAL = 0
ci: export PROFILE = release
ci: ## what the gate runs: lint and test, where a skipped test is a failure
	@# cargo's lock makes the linters of Rust wait for the build, or it for them; those of C do not.
	@mkdir -p $(BUILD)
	@$(MAKE) --no-print-directory lint > $(BUILD)/lint.log 2>&1 & lint=$$!; \
	$(MAKE) --no-print-directory build; build=$$?; \
	wait $$lint || { cat $(BUILD)/lint.log; echo "make lint failed"; exit 1; }; \
	echo "make lint: nothing found"; exit $$build
	CI=true $(MAKE) --no-print-directory test

clean: ## remove everything built
	rm -rf $(BUILD)
	$(CARGO) clean
