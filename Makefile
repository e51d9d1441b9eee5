# `make demo` and `make test` do all the set-up they need: on a new machine Python >= 3.11, make, git and the package
# registries are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

# uv does not read pip's find-links: hand on whatever wheel folder the machine offers.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# TORCH_BACKEND=cpu takes torch's small CPU build from its own index, TORCH_BACKEND=auto the one for this machine.
UV_INSTALL = $(BIN)/uv pip install --python $(BIN)/python --index-strategy unsafe-best-match -c constraints.txt \
             $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND))
SETUP_FILES = pyproject.toml constraints.txt
# What the tests open: 390 MB to download, once; of the second line what cannot be had is done without.
TEST_ASSETS = mnist5k digits8x8 letter
KIT_ASSETS  = wordnet zoo minilm wink_vectors photographs china_flower motorcycle efficientnet_lite0 \
              emoji_twitter emoji_google

.PHONY: help demo demo-full test test-all lint types evidence readme clean
help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*##/\t/' | expand -t 14

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.demo: $(SETUP_FILES) | $(BIN)/uv
	@echo "Installing paperworks with torch into $(VENV): 0.2 to 3 GB to download, 1.6 GB on disk with the CPU build of"
	@echo "torch, about 6 GB with the CUDA build (make demo TORCH_BACKEND=cpu chooses the small one)."
	$(UV_INSTALL) --quiet -e '.[torch]' || { $(if $(TORCH_BACKEND),echo "torch's own index may be out of reach: try without TORCH_BACKEND.";) false; }
	@touch $@

$(VENV)/.test: $(SETUP_FILES) | $(BIN)/uv
	@echo "Installing paperworks with all extras, development tools and peers into $(VENV) (about 2 GB with CPU torch)."
	$(UV_INSTALL) --quiet -e '.[all,dev]' --group peers
	@touch $@

$(VENV)/.browser: | $(BIN)/uv
	@command -v chromium >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "Installing Debian's chromium for the report's tests (about 120 MB to download)."; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	  else false; fi; \
	} || echo "No chromium here: the report's browser tests will be skipped."
	@touch $@

demo: $(VENV)/.demo  ## One claim of QUEST on real digits, shipped against yours, in about 2 minutes
	@$(BIN)/paperworks data quest
	@$(BIN)/paperworks verdicts quest.Q6
	@$(BIN)/paperworks report quest
	@echo; echo "Now Q6 of QUEST on this machine, real digits and seeds that the shipped evidence has not seen:"
	@$(BIN)/paperworks run quest.Q6 --seeds 12:18 --compare

demo-full: $(VENV)/.demo  ## The whole laptop study of QUEST, rerun here
	@$(BIN)/paperworks data quest
	@$(BIN)/paperworks run quest --scale laptop --compare

test: $(VENV)/.test $(VENV)/.browser  ## Lint, types, import rules and all tests but the slow ones
	@$(BIN)/paperworks data $(TEST_ASSETS)
	@$(BIN)/paperworks data $(KIT_ASSETS) || echo "The tests of what is not here will be skipped."
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

test-all: test  ## What is slow, too
	@$(BIN)/paperworks data --all
	$(BIN)/python -m pytest -n $(JOBS) -m slow

evidence: $(VENV)/.test  ## Run a paper's laptop study and ship its outcomes: make evidence PAPER=quest
	@test -n "$(PAPER)" || { echo "say which paper: make evidence PAPER=quest"; exit 2; }
	@$(BIN)/paperworks data $(PAPER)
	$(BIN)/paperworks run $(PAPER) --scale laptop
	$(BIN)/paperworks evidence $(PAPER)

readme: $(VENV)/.test  ## Write the generated tables of the README anew
	$(BIN)/python -m paperworks.readme

clean:  ## Remove the environment and what tools have left; ledgers stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +
