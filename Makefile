# Sparsity on Trial. `make help` lists the targets.
#
# The environment, either of two: .venv from a lock file (the usual one), or, on a GPU node without internet,
# `make measure WHEELHOUSE=wheelhouse`, with the wheels that `make wheelhouse` fetched elsewhere. To use a Python that
# has everything already, as conda makes it from environment.yml: make <target> PY=python ENV=

PYTHON ?= python3
BUILD ?= build
UV ?= uv
# The notebooks' parameters. An empty RECORDS means: fresh ones in build/records when measuring, else the shipped ones.
MODE ?= auto
GPU ?= nvidia-h200
PRESET ?= full
SEED ?= 0
RECORDS ?=
# Of `make compare`: two folders of records or names of GPUs. Empty: those in build/records, and the shipped ones.
FRESH ?=
SHIPPED ?=
# Of `make measure`: all, or numbers as in 0,2: deals the points out to several GPUs (needs Dask: pip install distributed).
GPUS ?=
# Of `make claims`: text, markdown, csv or json.
FORMAT ?= text
# The node that `make wheelhouse` is for. NODE_HAS: a file with what `python3 -m pip list --format=freeze` prints there;
# what the node has, at a version that will do, is left out.
NODE_PYTHON ?= 3.12
NODE_GLIBC ?= 2.39
NODE_HAS ?=
# Extras of pyproject.toml.
NODE_EXTRAS ?= gpu test
# Where wheels are: set it on the node to install from there and nowhere else.
WHEELHOUSE ?=

SHELL := /bin/sh
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := help

# A GPU's driver, that is; whether it drives anything shows when it is asked to measure.
HAS_GPU := $(shell $(PYTHON) -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null && echo yes)
ifdef HAS_GPU
.NOTPARALLEL: # a second notebook on the GPU would spoil the first one's timings
else ifeq ($(MAKELEVEL),0) # a make within make takes its share of these
MAKEFLAGS += --jobs=$(or $(JOBS),$(shell nproc 2>/dev/null || echo 1))
endif

.PHONY: artifact test test-gpu kick measure profile sanitize claims check compare notebooks book environment wheelhouse lock dist lint clean clean-records help
ifneq ($(word 2,$(MAKECMDGOALS)),)
# Goals of one command are reached one after the other: at once, two that need the book would both build it.
.NOTPARALLEL:
$(MAKECMDGOALS):
	@$(MAKE) --no-print-directory $@
else

# Make splits names at spaces, whatever is done about it; a folder with one is refused before a rule meets it.
ifneq ($(words $(BUILD)),1)
$(error BUILD is "$(BUILD)", but must be a folder without a space in its name: make splits names there)
endif
ifneq ($(word 2,$(WHEELHOUSE)),)
$(error WHEELHOUSE is "$(WHEELHOUSE)", but must be a folder without a space in its name: make splits names there)
endif

# As a word of a shell's command: nothing in it is run.
quoted = '$(subst ','\'',$(1))'
# These two stand in names of targets, where no quote helps.
unsafe = $(shell printf '%s' $(call quoted,$(1)) | LC_ALL=C tr -d 'A-Za-z0-9_./+,=@\200-\377-')
ifneq ($(call unsafe,$(BUILD)$(WHEELHOUSE)),)
$(error BUILD or WHEELHOUSE has the characters $(call unsafe,$(BUILD)$(WHEELHOUSE)) in its name, which make or the shell would take for something else)
endif
ifeq ($(abspath $(BUILD)),$(CURDIR))
$(error BUILD is the folder of the sources, which would be built over themselves: name another one, such as build)
endif

export SPARSITY_BUILD := $(abspath $(BUILD))
export SPARSITY_CACHE ?= $(CURDIR)/build/cubin
# Where it is set, as in many containers, each of the some hundred processes would compile again all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# --- environment -------------------------------------------------------------------------------
VENV := .venv
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --require-hashes --only-binary :all: --no-compile
ifeq ($(WHEELHOUSE),)
LOCK := requirements/$(if $(HAS_GPU),gpu,base).lock
else
LOCK := $(WHEELHOUSE)/requirements.txt
PIP_INSTALL += --no-index --find-links $(WHEELHOUSE)
endif

ifneq ($(if $(WHEELHOUSE),$(wildcard $(WHEELHOUSE)/left-out.txt)),)
# The wheels complete what the node's own Python has. That Python may itself live in a virtual environment, which a
# .venv made from it would not see; so it is used as it is, with the wheels' folder before its own.
ENV := build/site/ready
PY := PYTHONPATH=$(CURDIR)/build/site$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON)
build/site/ready: $(LOCK)
	@echo "environment: $$($(PYTHON) --version) of this node, with the wheels of $(WHEELHOUSE) in build/site"
	@$(PYTHON) -c $(CHECK_PYTHON)
	@rm -rf build/site build/site.new && mkdir -p build
	@$(PYTHON) $(PIP_INSTALL) --no-deps --target build/site.new -r $(LOCK)
	@mv build/site.new build/site && touch $@
else
ENV := $(VENV)/ready
PY := $(VENV)/bin/python
$(VENV)/ready: $(LOCK)
	@$(PYTHON) -c $(CHECK_PYTHON)
	@echo "environment: $$($(PYTHON) --version), $$(grep -c '^[a-z].*==' $(LOCK)) packages of $(LOCK) into $(VENV), about a minute"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "error: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: python3-venv) or name another Python with PYTHON=..." >&2; exit 2; }
	@$(PY) $(PIP_INSTALL) -r $(LOCK)
	@touch $@
endif
CHECK_PYTHON := 'import sys; v = sys.version_info; (3, 11) <= v < (3, 15) or sys.exit("error: Python 3.11 to 3.14 is needed, this is %d.%d: name another with PYTHON=..." % v[:2])'

# --- notebooks and book ------------------------------------------------------------------------
# The longest first: begun last, it would leave all cores but one with nothing to do. That is the one with the most text,
# but for two that judge every claim on every GPU.
LONG := $(wildcard notebooks/elsewhere.ipynb notebooks/reviewers.ipynb)
NOTEBOOKS := $(LONG) $(filter-out $(LONG),$(shell ls -S notebooks/*.ipynb 2>/dev/null))
EXECUTED := $(NOTEBOOKS:notebooks/%=$(BUILD)/notebooks/%)
HTML := $(BUILD)/html/index.html
SOURCES := $(shell find kernels artifact -type f ! -name '*.pyc' ! -name '.*')
PAGES := $(shell find book -type f)
# What a user gave: the parameters, and what lies in the folders of records and of matrices that they named. A file's name holds
# its checksum: other parameters or other records, other file, so the notebooks run again. The values may hold spaces.
GIVEN := $(foreach name,MODE GPU PRESET SEED RECORDS,$(call quoted,$(name)=$($(name))))
MARK := $(BUILD)/parameters/$(word 1,$(shell { printf '%s\n' $(GIVEN); for folder in $(call quoted,$(RECORDS)) "$$SPARSITY_MATRICES"; do \
	[ -n "$$folder" ] && [ -d "$$folder" ] && find "$$folder" -type f -exec ls -ln {} + | LC_ALL=C sort; done; } | cksum))

OPTIONS = --mode $(call quoted,$(MODE)) --gpu $(call quoted,$(GPU)) --preset $(call quoted,$(PRESET)) \
	--seed $(call quoted,$(SEED)) --records $(call quoted,$(RECORDS))

# What is wrong with the parameters, or with the folder to build into, is said once, before any notebook starts and
# anything is removed.
$(MARK): $(ENV)
	@$(PY) -m artifact.build check $(OPTIONS)
	@rm -rf $(BUILD)/parameters && mkdir -p $(@D) && printf '%s\n' $(GIVEN) > $@

$(BUILD)/notebooks/%.ipynb: notebooks/%.ipynb $(SOURCES) $(MARK) $(ENV)
	@$(PY) -m artifact.build notebook $< $@ $(OPTIONS)

# These speak of what the others measure, so they come after them.
LATE := $(addprefix $(BUILD)/notebooks/,elsewhere.ipynb index.ipynb ledger.ipynb reviewers.ipynb trial.ipynb which.ipynb)
$(LATE): | $(filter-out $(LATE),$(EXECUTED))

# Whatever was put on trial is shown on its page.
$(BUILD)/notebooks/trial.ipynb: $(wildcard $(BUILD)/trials/*/*/*/trial.csv)

$(HTML): $(EXECUTED) $(PAGES)
	@echo "book: $(HTML), warnings are errors"
	@$(PY) -m artifact.build book $(BUILD)/notebooks $(BUILD)/html

# --- targets -----------------------------------------------------------------------------------

artifact: $(HTML) ## Everything: environment, every notebook executed, the book in build/html/index.html

# With a GPU, the book that is tested is drawn from the shipped records: the tests shall not wait for a full measurement.
test: $(ENV) ## Build the book, then pass the tests (those that need a GPU or Chromium skip without)
	@$(MAKE) --no-print-directory book $(if $(HAS_GPU),MODE=recorded BUILD=build/recorded)
	$(if $(HAS_GPU),SPARSITY_BUILD=$(CURDIR)/build/recorded $(PY) -m pytest $(ON_GPU),$(PY) -m pytest --durations=20)

test-gpu: $(ENV) ## Only the tests that need a GPU
	$(PY) -m pytest -m gpu $(ON_GPU)

# One by one, but those of a library all in one process, which loads it once, and those that measure in one at the end.
ON_GPU := --dist loadgroup --no-loadscope-reorder --durations=20

kick: ## Every notebook on one small shape per system, in build/kick
	@echo "kick: every notebook, one small shape per system, into build/kick/notebooks"
	@$(MAKE) --no-print-directory notebooks PRESET=kick BUILD=build/kick

measure: $(ENV) ## Measure every system in full on this machine's GPU, into build/records; goes on where it stopped (GPUS=all)
	@echo "measure: every system in full on this GPU, into $(BUILD)/records"
	$(if $(GPUS),@$(PY) -m artifact.distributed.farm --gpus $(call quoted,$(GPUS)) --target $(BUILD)/farm $(NOTEBOOKS) -- --mode measure --gpu $(call quoted,$(GPU)) --preset full --seed $(call quoted,$(SEED)) --records $(call quoted,$(RECORDS)))
	@$(MAKE) --no-print-directory notebooks MODE=measure PRESET=full

profile: $(ENV) ## Profile every system's kernels with Nsight Compute (needs ncu)
	$(PY) -m artifact profile

sanitize: $(ENV) ## Every kernel under compute-sanitizer's four tools, on small ragged problems (needs compute-sanitizer)
	$(PY) -m artifact.sanitize

claims: $(ENV) ## The verdict on every claim of the sources (FORMAT=text|markdown|csv|json)
	$(PY) -m artifact claims --gpu $(call quoted,$(GPU)) $(if $(RECORDS),--records $(call quoted,$(RECORDS))) --format $(call quoted,$(FORMAT))

check: $(ENV) ## Records, their provenance, facts and verdicts: are they what they say they are
	$(PY) -m artifact check $(if $(RECORDS),--records $(call quoted,$(RECORDS)))

compare: $(ENV) ## Fresh records against the shipped ones, or any two (FRESH=, SHIPPED=); the exit code says whether they agree
	$(PY) -m artifact compare $(if $(FRESH),--fresh $(call quoted,$(FRESH))) $(if $(SHIPPED),--shipped $(call quoted,$(SHIPPED)))

notebooks: $(EXECUTED) ## Execute the notebooks that are out of date, into build/notebooks
book: $(HTML) ## Build the book, executing only the notebooks that are out of date
environment: $(ENV) ## Make the Python environment only

wheelhouse: $(ENV) ## Fetch the wheels for a GPU node without internet (NODE_PYTHON, NODE_HAS, …) into wheelhouse/
	$(PY) -m artifact.wheelhouse wheelhouse --python $(call quoted,$(NODE_PYTHON)) --glibc $(call quoted,$(NODE_GLIBC)) --extras $(foreach extra,$(NODE_EXTRAS),$(call quoted,$(extra))) $(if $(NODE_HAS),--has $(call quoted,$(NODE_HAS)))

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --no-build --generate-hashes --no-emit-index-url --custom-compile-command "make lock" pyproject.toml --extra artifact
lock: ## Renew requirements/*.lock from pyproject.toml (needs uv)
	@command -v $(UV) >/dev/null || { echo "error: uv is not on the PATH: install it (pip install uv) or name it with UV=..." >&2; exit 2; }
	$(COMPILE) --extra book --extra dev --extra gpu --extra test --output-file requirements/gpu.lock
	$(COMPILE) --extra book --extra dev --extra test --constraints requirements/gpu.lock --output-file requirements/base.lock

# The book in it is drawn from the shipped records, also where there is a GPU: nothing of this machine is in a release.
dist: $(ENV) ## The release in build/dist: sources, records, rendered book, checksums; the same bytes from the same commit
	@$(MAKE) --no-print-directory book MODE=recorded GPU=nvidia-h200 PRESET=full SEED=0 RECORDS= BUILD=build/dist
	@SPARSITY_BUILD=$(CURDIR)/build/dist $(PY) -m artifact.dist build/dist/html build/dist

CUDA = $(sort $(shell find artifact kernels tests -name '*.cu' -o -name '*.cuh'))
lint: $(ENV) ## Check style, formatting, import layers and types, as .pre-commit-config.yaml does before a commit
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo --no-cache
	$(PY) -m mypy
	$(PY) -c 'import clang_format; clang_format.clang_format()' --dry-run -Werror $(CUDA)

clean: ## Remove everything that was built; the environment stays, and so do fresh records (hours of a GPU's time)
	@find build -mindepth 1 -maxdepth 1 ! -name records ! -name choices -exec rm -rf {} + 2>/dev/null || true
	@rmdir build 2>/dev/null || ! [ -d build ] || echo "kept: $$(ls build | paste -sd ' ' -) in build; make clean-records removes them"

clean-records: ## Remove the fresh records and the tuners' choices in build/ as well
	rm -rf build/records build/choices

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile
	@echo "Variables: MODE=auto|measure|recorded PRESET=full|kick GPU=$(GPU) SEED=0 RECORDS= PYTHON=python3 WHEELHOUSE= DEBUG=1 (a traceback)"

endif
