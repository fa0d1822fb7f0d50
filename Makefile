# What people type. CMake does the work; everything it makes is under build/.
MAKEFLAGS += --no-print-directory
BUILD    ?= build
PREFIX   ?= /usr/local
JOBS     ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE    ?= cmake
ONLY     ?=
FORMAT   ?=
TIME     ?= 10m
KILLS    ?= 500
SEEDS    ?= 2000
SEED     ?= 1
SIZE     ?=
SANITIZE ?=
SECONDS  ?= 60

.PHONY: all help deps demo test bench sim soak mutants fuzz coverage install clean format

all:
	@$(CMAKE) -S . -B $(BUILD) -DSTET_WERROR=ON -DCMAKE_INSTALL_PREFIX="$(PREFIX)" >/dev/null
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

help:
	@echo "make            build libraries, the stet command, examples and tests in $(BUILD)/"
	@echo "make demo       see it work: a workflow is killed and goes on"
	@echo "make test       install what is missing, build three ways, run every test"
	@echo "                CONFIGS='plain asan tsan checks' and ONLY=substring narrow it down"
	@echo "make bench      measure; ONLY=name one benchmark, FORMAT=json for programs"
	@echo "make sim        a fleet on virtual time from a seed; SEEDS=$(SEEDS) SEED=$(SEED) [SIZE=large] [SANITIZE=address]"
	@echo "make soak       new seeds, crash, fault and e2e tests, kill -9 in thousands; TIME=$(TIME)"
	@echo "make mutants    bugs planted on purpose: each must be found; ONLY=name one of them"
	@echo "make fuzz       fuzz the parsers and decoders; SECONDS=$(SECONDS) each, or TIME=10m"
	@echo "make coverage   branches of src/ the tests take; fails below its floors"
	@echo "make install    to PREFIX=$(PREFIX)"
	@echo "make deps       install missing Debian packages"
	@echo "make format     apply .clang-format to the sources (headers are laid out by hand)"
	@echo "make clean      remove $(BUILD)/"

deps:
	@tools/deps.sh

demo:
	@BUILD="$(BUILD)" examples/demo.sh

test: deps
	@BUILD="$(BUILD)" ONLY="$(ONLY)" JOBS="$(JOBS)" tools/run-tests.sh

# The build talks to standard error, so that FORMAT=json prints nothing but figures.
bench:
	@$(MAKE) all 1>&2
	@$(BUILD)/bench/stet-bench $(if $(ONLY),--only=$(ONLY)) $(if $(FORMAT),--format=$(FORMAT))

# With AddressSanitizer arenas ask for each thing by itself, so a seed is another history.
sim: SIM = $(BUILD)$(if $(SANITIZE),/sim-$(SANITIZE))
sim:
	@$(CMAKE) -S . -B $(SIM) -DSTET_WERROR=ON \
	    $(if $(SANITIZE),-DSTET_SANITIZE=$(SANITIZE) -DCMAKE_C_COMPILER=clang) >/dev/null
	@$(CMAKE) --build $(SIM) -j $(JOBS) --target stet-sim | grep -v -e Built -e '%]' || true
	@$(SIM)/tests/stet-sim --seed $(SEED) --seeds $(SEEDS) $(if $(filter large,$(SIZE)),--large)

soak: all
	@BUILD="$(BUILD)" TIME="$(TIME)" KILLS="$(KILLS)" ONLY="$(ONLY)" tools/soak.sh

# The crash programs are the second net: they are asked about what the seeds did not catch.
mutants:
	@$(CMAKE) -S . -B $(BUILD)/mutants -DSTET_WERROR=ON -DSTET_MUTANTS=ON >/dev/null
	@$(CMAKE) --build $(BUILD)/mutants -j $(JOBS) --target stet-mutants crash_programs unit_testkit_test >$(BUILD)/mutants/log 2>&1 || \
		{ cat $(BUILD)/mutants/log; exit 1; }
	@$(BUILD)/mutants/tests/stet-mutants --seeds $(SEEDS) --crash $(BUILD)/mutants/tests $(ONLY)
	@$(if $(ONLY),,$(BUILD)/mutants/tests/unit_testkit_test I6_bugs)

fuzz:
	@BUILD="$(BUILD)" FUZZ_SECONDS="$(SECONDS)" TIME="$(if $(findstring $(origin TIME),command line),$(TIME))" \
	    ONLY="$(ONLY)" tools/fuzz.sh

coverage:
	@BUILD="$(BUILD)" ONLY="$(ONLY)" JOBS="$(JOBS)" tools/coverage.sh

install: all
	@$(CMAKE) --install $(BUILD) --prefix "$(PREFIX)"

clean:
	rm -rf $(BUILD)

format:
	@find src tests bench examples fuzz -name '*.c' 2>/dev/null | xargs clang-format -i
