# Two commands matter: `make train` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Parallel test processes; each one uses one thread.
JOBS ?= 2

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_TEST := $(VENV)/.installed-test
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help install train test test-all lint tiny tiny_agent clean

help:
	@echo "make install           create $(VENV) and install selfdistill into it"
	@echo "make train [ARGS=...]  train the embedded model with GEAR on the code environment"
	@echo "                       for example: make train ARGS=\"method=grpo run.max_steps=5\""
	@echo "make test [ARGS=...]   the tests, except those that take minutes each"
	@echo "make test-all          all tests"
	@echo "make lint              ruff, import contracts, pyright"
	@echo "make tiny              make the embedded policy again, from nothing (about 20 minutes)"
	@echo "make tiny_agent        make the embedded agents again, from nothing (minutes for each)"
	@echo "make clean             remove $(VENV)"
	@echo "Another Python: make install PYTHON=python3.12"

install: $(INSTALLED)

train: $(INSTALLED)
	$(BIN)/selfdistill train method=gear env=code $(ARGS)

test: $(INSTALLED_TEST)
	$(PYTEST) -m "not slow and not gpu" $(ARGS)

test-all: $(INSTALLED_TEST)
	$(PYTEST) $(ARGS)

lint: $(INSTALLED_TEST)
	$(BIN)/ruff check selfdistill_cli tests
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

# Tokenizer and three stages; the weights that ship are in
# runs/warmup_tiny/checkpoints/step_000340/policy.
tiny: $(INSTALLED)
	$(BIN)/python -m selfdistill_cli.training.tiny_tokenizer runs/tiny_tokenizer
	$(BIN)/selfdistill train experiment=warmup_tiny_copy tracker=none
	$(BIN)/selfdistill train experiment=warmup_tiny_parts tracker=none
	$(BIN)/selfdistill train experiment=warmup_tiny tracker=none

# For each environment its warm-up and the step that ships. Their one tokenizer stays as it is:
# it was trained on texts of earlier made-up worlds.
tiny_agent: $(INSTALLED)
	$(BIN)/selfdistill train experiment=warmup_agent_textgame tracker=none
	$(BIN)/python -m selfdistill_cli.cli.tiny_agent weights textgame warmup_agent_textgame:60
	$(BIN)/selfdistill train experiment=warmup_agent_math tracker=none
	$(BIN)/python -m selfdistill_cli.cli.tiny_agent weights math warmup_agent_math:600
	$(BIN)/selfdistill train experiment=warmup_agent_search tracker=none
	$(BIN)/python -m selfdistill_cli.cli.tiny_agent weights search warmup_agent_search:110
	$(BIN)/selfdistill train experiment=warmup_agent_tools tracker=none
	$(BIN)/python -m selfdistill_cli.cli.tiny_agent weights tools warmup_agent_tools:70

clean:
	rm -rf $(VENV)

# A stamp is newer than what it was installed from, so a second call does nothing.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) install -c constraints.txt -e ".[lora]"
	@touch $@

$(INSTALLED_TEST): $(INSTALLED)
	$(PIP) install -c constraints.txt -e ".[lora,test]"
	@touch $@

# Debian and Ubuntu keep ensurepip in the package python3-venv. Without it, a pip that is
# installed for $(PYTHON) does as well.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "$(PYTHON) is missing or not Python 3.11 to 3.13; name another one:"; \
	  echo "  make install PYTHON=python3.12"; exit 2; }
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -c 'import pip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(BIN)/python install pip; \
	else \
	  echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu:"; \
	  echo "  sudo apt install python3-venv"; exit 2; \
	fi
