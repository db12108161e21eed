# Each verb has one line of help; `make` alone lists them.

PYTHON ?= python3
PORT ?= 8080
SOURCE ?= main.py
JOB ?= nightly
TIME ?= $(shell date -u +%Y-%m-%dT%H:%M:00Z)
URL ?= http://127.0.0.1:$(PORT)
AT_ONCE := --numprocesses 2 --dist loadgroup
RUNS := $${DEDUP_STORE:-sqlite:///.local/runs.db}

.PHONY: help run deliver test test-all lint lint-terraform mutants bench

help: ## List the verbs.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

run: .venv/run-installed ## Serve the job on 127.0.0.1, with its runs in .local/ (PORT=8080 SOURCE=main.py).
	@echo "Starting handle_scheduled_job at $(URL), runs in $(RUNS). Send it one from another terminal: make deliver PORT=$(PORT)"
	@PYTHONUNBUFFERED=1 PYTHONPATH=. DEDUP_STORE="$(RUNS)" .venv/bin/functions-framework \
		--source $(SOURCE) --target handle_scheduled_job --host 127.0.0.1 --port $(PORT)

deliver: ## Deliver a run as Cloud Scheduler does, and print the answer (JOB=nightly TIME=this minute URL=).
	@echo "$(JOB) of $(TIME), to $(URL)"
	@curl --silent --show-error --include --request POST "$(URL)" --data '' \
		--header "X-CloudScheduler-JobName: $(JOB)" --header "X-CloudScheduler-ScheduleTime: $(TIME)" --write-out '\n'

test: .venv/dev-installed ## Run every test, the long ones at a smaller size (under 3 minutes).
	@WHOLE=0 .venv/bin/pytest $(AT_ONCE)

test-all: .venv/dev-installed ## Run every test whole.
	@WHOLE=1 .venv/bin/pytest $(AT_ONCE)

lint: .venv/dev-installed ## Check style (ruff) and types (mypy).
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

lint-terraform: .local/checkov/installed ## Look for what is insecure in terraform/ (checkov; 100 packages, in an environment of their own).
	@.local/checkov/bin/checkov --directory terraform --framework terraform --skip-download --quiet --compact

mutants: .venv/dev-installed ## Sow faults into the code, one at a time, and see that the tests catch 95 % of them (25 minutes).
	@.venv/bin/python -m tests.template.mutants

bench: .venv/dev-installed ## Measure what deduplication costs, beside its peers, into docs/ (15 minutes; ARGS=--quick: one, and not into docs/).
	@.venv/bin/python -m benchmarks $(or $(ARGS),--publish)

# Not in requirements-dev.txt: it pins older releases of what is pinned there.
.local/checkov/installed: Makefile
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet checkov==3.3.30
	@touch $@

.venv/run-installed: requirements.txt | .venv
	@.venv/bin/pip install --quiet --requirement $<
	@touch $@

.venv/dev-installed: requirements-dev.txt requirements.txt dedup/stores/requirements-spanner.txt dedup/stores/requirements-redis.txt requirements-workflows.txt | .venv
	@.venv/bin/pip install --quiet --requirement $<
	@.venv/bin/pip install --quiet --no-deps --requirement requirements-workflows.txt
	@touch $@ .venv/run-installed

.venv:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv .venv
