# A fresh machine needs Python 3.11 or newer and make. Each target installs what it needs, and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python keeps the bytecode of sources even where the environment forbids it: a run starts several processes, and each
# would compile all of assay anew.
export PYTHONDONTWRITEBYTECODE :=

TRACK := .venv-track
ABSENT := $(CURDIR)/.venv-absent
PACKAGE := .venv-package
# Errors are shown, and nothing else: warnings of pip are about the registry, and say nothing to a reader.
PIP := -m pip --quiet --quiet --disable-pip-version-check install

.NOTPARALLEL:
.PHONY: demo test slow browser track absent absent-quick absent-tests absent-ready package check gpu setup bench docs docs-run site notebooks clean

demo: setup
	@echo "Four optimizations, and three of them together, against a plain small GPT:"
	@echo "memory, time and loss, predicted and measured, in a table and on a page."
	@echo "Three minutes on two cores: half a minute of timing, then 24 short trainings."
	$(BIN)/assay compare demo --with sdpa_attention --with bf16_mixed --with activation_checkpointing \
	  --with gradient_accumulation:micro_batches=4 --with sdpa_attention+bf16_mixed+activation_checkpointing --seeds 3

# Three processes for two cores, because some tests wait for what they started.
test: $(VENV)/.with-test
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder
	@echo "not run here: what needs a GPU or an absent one (make absent, make gpu)"

slow: $(VENV)/.with-test
	$(BIN)/pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder

browser: $(VENV)/.with-test $(VENV)/.with-browser
	$(BIN)/pytest -m browser tests/browser

# The libraries of trackers, which other versions of some pinned packages go with, so in an environment of their own.
track: $(TRACK)/.ready
	$(TRACK)/bin/python -m pytest -m trackers tests/tracking

$(TRACK)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TRACK)
	$(TRACK)/bin/python $(PIP) "$$(grep '^torch==' constraints.txt)" --editable '.[track]' pytest hypothesis
	touch $@

# Scripts and the gpu tests on an absent GPU, with a CUDA build of torch in an environment of its own: 5 GB, only on Linux
# on x86-64. CI runs `make absent-quick`, without slow tests, and with a dozen measured steps instead of all.
absent: CHOSEN = absent
absent: absent-tests
	$(BIN)/python benchmarks/absent_peaks.py --python $(ABSENT)/bin/python

absent-quick: CHOSEN = absent and not slow
absent-quick: absent-tests
	$(BIN)/python benchmarks/absent_peaks.py --python $(ABSENT)/bin/python --few

# Files with gpu tests are found by their marker, because collecting all tests would need all extras.
absent-tests: absent-ready
	$(BIN)/assay absent h200 -- $(ABSENT)/bin/python -m pytest -n 2 -m "gpu and not device_values" -p no:cacheprovider \
	  $$(grep --recursive --files-with-matches --include='test_*.py' 'mark\.gpu' tests)
	ASSAY_ABSENT_PYTHON=$(ABSENT)/bin/python $(BIN)/pytest -m "$(CHOSEN)" -n 2 tests/absent tests/advise tests/fake tests/cli tests/benchmarks

absent-ready: $(VENV)/.with-test $(ABSENT)/.ready

$(ABSENT)/.ready: pyproject.toml
	$(PYTHON) -m venv $(ABSENT)
	$(ABSENT)/bin/python $(PIP) torch==2.11.0 --editable '.[low-bit]' pytest pytest-xdist hypothesis transformers accelerate lightning
	touch $@

# The wheel and the sdist: built, checked, and the wheel run in an environment without the repository. Minutes.
package: $(PACKAGE)/.ready
	rm -rf dist
	$(PACKAGE)/bin/python -m build --outdir dist
	$(PACKAGE)/bin/python -m twine check --strict dist/*
	$(PACKAGE)/bin/python .ci/package.py

$(PACKAGE)/.ready: constraints.txt
	$(PYTHON) -m venv $(PACKAGE)
	$(PACKAGE)/bin/python $(PIP) --constraint constraints.txt build twine
	touch $@

check: $(VENV)/.with-test $(VENV)/.with-docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What a CUDA device can do and whether the lab is right on it, in parts that can be stopped and taken up again.
gpu: $(VENV)/.with-test
	$(BIN)/python benchmarks/gpu_kit rates peaks race honest tests --minutes 60
	$(BIN)/python benchmarks/gpu_kit/page.py gpu-kit

bench: $(VENV)/.with-test
	$(BIN)/python benchmarks/step_time.py

# The documentation site in site/, after the pages that are generated from the code are written anew. The pages of the
# studies that were run are made from their records, into site/studies.
docs: $(VENV)/.with-docs
	$(BIN)/python docs/generate.py
	$(MAKE) site
	$(BIN)/python docs/study_pages.py --pages site/studies

# The commands of the README, the tutorial and the how-tos, as they are written, in a home of their own. An hour or less.
docs-run: $(VENV)/.with-test
	$(BIN)/python docs/walk.py

# The site alone, from the pages as they are.
site: $(VENV)/.with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebooks: $(VENV)/.with-test $(VENV)/.with-docs
	$(BIN)/pytest -m notebooks

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "assay needs Python 3.11 or newer; run make PYTHON=python3.11" >&2; exit 2; }
	@echo "Setting up $(VENV): 360 MB to download, 1.6 GB on disk; several GB if torch is a CUDA build."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) --constraint constraints.txt --editable .
	@touch $@

# What the tests, the documentation or the browser tests need beside: an extra of pyproject.toml.
$(VENV)/.with-%: $(VENV)/.ready
	@echo "Adding to $(VENV) what the extra '$*' has: 180 MB to download at most."
	@$(BIN)/python $(PIP) --constraint constraints.txt --editable '.[$*]'
	@touch $@

clean:
	rm -rf $(VENV) $(TRACK) $(ABSENT) $(PACKAGE) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
