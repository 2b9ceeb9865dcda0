# make run   set up .venv and open the app on 127.0.0.1   (PORT=8502: another port, HEADLESS=1: open no browser)
# make check set up .venv, lint and check types
# make test  check, and run the tests                     (ARGS="-k trace": what to hand to pytest, WORKERS=3: processes)
# make golden make the golden set of the tests anew, about two minutes
# make wheel build what `pip install` takes, in dist/
# make clean remove .venv and caches

PORT ?= 8501
HEADLESS ?= 0
ARGS ?=
WORKERS ?= 3

# Without a PYTHON of your own, an old python3 is passed over for a newer one that stands beside it.
ifeq ($(origin PYTHON),undefined)
PYTHON := python3
CANDIDATES := python3 python3.13 python3.12 python3.11
else
CANDIDATES := $(PYTHON)
endif

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
BIOME := node_modules/.bin/biome
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PORT_TAKEN := import socket; raise SystemExit(socket.socket().connect_ex(("127.0.0.1", $(PORT))) != 0)

.PHONY: run check test golden wheel clean check-port
.DELETE_ON_ERROR:

run: $(STAMP) check-port
	@echo "Draftscope opens on http://127.0.0.1:$(PORT) (Ctrl+C ends it)"
	@$(VENV_PYTHON) -m streamlit run app.py --server.port=$(PORT) $(if $(filter 1,$(HEADLESS)),--server.headless=true)

check: $(STAMP)
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .
	@$(VENV_PYTHON) -m mypy
	@if [ -x $(BIOME) ]; then $(BIOME) check; else echo "Scripts and style sheets are not linted: 'npm install --no-package-lock' brings Biome"; fi

# Bytecode is kept whatever the environment says: without it every process compiles all tests, and every app all pages.
test: check
	@PYTHONDONTWRITEBYTECODE= $(VENV_PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

golden: $(STAMP)
	@$(VENV_PYTHON) -m tests.golden

wheel: $(STAMP)
	@$(VENV_PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf $(VENV) dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

check-port: $(STAMP)
	@if ! [ "$(PORT)" -ge 1 -a "$(PORT)" -le 65535 ] 2>/dev/null; then \
	  echo "PORT=$(PORT) is not a port number: run 'make run PORT=8502'." >&2; exit 1; \
	fi
	@if $(VENV_PYTHON) -c '$(PORT_TAKEN)' 2>/dev/null; then \
	  echo "Port $(PORT) is taken by another program: end that program or run 'make run PORT=$$(($(PORT) + 1))'." >&2; \
	  exit 1; \
	fi

# The stamp is newer than both lists of packages once everything in them is installed.
$(STAMP): requirements.txt requirements-dev.txt
	@python=""; \
	for name in $(CANDIDATES); do \
	  if "$$name" -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then python="$$name"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  found=$$("$(PYTHON)" --version 2>&1) || found="no working $(PYTHON)"; \
	  echo "Draftscope needs Python 3.11 or newer and found $$found: install one or run 'make PYTHON=/path/to/python3.11 ...'." >&2; \
	  exit 1; \
	fi; \
	if ! $(VENV_PYTHON) -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then \
	  echo "Setting up $(VENV) with $$("$$python" --version) (once, a few minutes)"; \
	  "$$python" -m venv --clear $(VENV) || { \
	    echo "Python could not make a virtual environment: on Debian or Ubuntu run 'apt install python3-venv', then run make again." >&2; \
	    exit 1; }; \
	fi
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-dev.txt || { \
	  echo "The packages in requirements.txt and requirements-dev.txt could not be installed: check the network and free disk space, then run make again." >&2; \
	  exit 1; }
	@touch $@
