# Each verb has one line of help; `make` alone lists them.

PYTHON ?= python3
# A Python that is asked for by name has packages of its own: make test PYTHON=python3.13
VENV := $(if $(filter file,$(origin PYTHON)),.venv,.local/$(notdir $(PYTHON)))
PORT ?= 8080
SOURCE ?= main.py
JOB ?= nightly
TIME ?= $(shell date -u +%Y-%m-%dT%H:%M:00Z)
URL ?= http://127.0.0.1:$(PORT)
UPSTREAM ?= upstream
VERSION ?= main
AT_ONCE := --numprocesses 2 --dist loadgroup
RUNS := $${DEDUP_STORE:-sqlite:///.local/runs.db}
STORES := $(wildcard dedup/stores/requirements-*.txt)
OURS := $(wildcard dedup tests/template benchmarks examples)
NOT_YOURS := --force-exclude --extend-exclude dedup,tests/template,benchmarks,docs,examples,env,*.ipynb

.PHONY: help run deliver test-job test test-all test-latest lint lint-terraform upgrade mutants bench

help: ## List the verbs.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

run: $(VENV)/run-installed ## Serve the job on 127.0.0.1, with its runs in .local/ (PORT=8080 SOURCE=main.py).
	@echo "Starting handle_scheduled_job at $(URL), runs in $(RUNS). Send it one from another terminal: make deliver PORT=$(PORT)"
	@PYTHONUNBUFFERED=1 PYTHONPATH=. DEDUP_STORE="$(RUNS)" $(VENV)/bin/functions-framework \
		--source $(SOURCE) --target handle_scheduled_job --host 127.0.0.1 --port $(PORT)

deliver: ## Deliver a run as Cloud Scheduler does, and print the answer (JOB=nightly TIME=this minute URL=).
	@echo "$(JOB) of $(TIME), to $(URL)"
	@curl --silent --show-error --include --request POST "$(URL)" --data '' \
		--header "X-CloudScheduler-JobName: $(JOB)" --header "X-CloudScheduler-ScheduleTime: $(TIME)" --write-out '\n'

test-job: $(VENV)/dev-installed ## Run your tests, and see that main.py is wired as it is deployed (seconds).
	@$(VENV)/bin/pytest --ignore=tests/template $(wildcard tests) dedup/smoke.py

test: test-job ## Run every test, the template's long ones at a smaller size (under 3 minutes).
	@if [ -d tests/template ]; then WHOLE=0 $(VENV)/bin/pytest tests/template $(AT_ONCE); fi

test-all: test-job ## Run every test whole.
	@if [ -d tests/template ]; then $(VENV)/bin/pytest tests/template $(AT_ONCE) -m "not alone" && $(VENV)/bin/pytest tests/template -m alone; fi

test-latest: ## Run every test whole with the newest releases of all packages, in an environment of their own.
	@rm -rf .local/latest && $(PYTHON) -m venv .local/latest
	@sed -e '/^-r/d' -e 's/==.*//' requirements.txt requirements-dev.txt $(STORES) > .local/latest/requirements.txt
	@.local/latest/bin/pip install --quiet --requirement .local/latest/requirements.txt
	@.local/latest/bin/pip install --quiet --no-deps --requirement requirements-workflows.txt
	@.local/latest/bin/pip freeze > .local/latest/installed.txt
	@.local/latest/bin/pytest --ignore=tests/template $(wildcard tests) dedup/smoke.py
	@.local/latest/bin/pytest tests/template $(AT_ONCE) -m "not alone" && .local/latest/bin/pytest tests/template -m alone

lint: $(VENV)/dev-installed ## Check the template's style (ruff) and types (mypy), and your code for what is surely wrong.
	@$(VENV)/bin/ruff check --config .ci/ruff.toml $(OURS)
	@$(VENV)/bin/ruff format --check --config .ci/ruff.toml $(OURS)
	@$(VENV)/bin/mypy --config-file .ci/mypy.ini
	@$(VENV)/bin/ruff check $(NOT_YOURS) .
	@if grep -q '^\[tool\.ruff\.format' pyproject.toml; then $(VENV)/bin/ruff format --check $(NOT_YOURS) .; fi
	@if grep -q '^\[\[*tool\.mypy' pyproject.toml || [ -f mypy.ini ]; then $(VENV)/bin/mypy; fi

lint-terraform: .local/checkov/installed ## Look for what is insecure in terraform/ (checkov; 100 packages, in an environment of their own).
	@rm -rf .local/checkov/terraform && mkdir .local/checkov/terraform
	@cp $(filter-out terraform/backend.tf,$(wildcard terraform/*.tf)) .local/checkov/terraform
	@.local/checkov/bin/checkov --directory .local/checkov/terraform --framework terraform --skip-download --quiet --compact

upgrade: ## Merge the template's newest version, and run your tests on it (UPSTREAM=upstream VERSION=main).
	@.ci/upgrade "$(UPSTREAM)" "$(VERSION)"

mutants: $(VENV)/dev-installed ## Sow faults into the code, one at a time, and see that the tests catch 95 % of them (25 minutes).
	@$(VENV)/bin/python -m tests.template.mutants

bench: $(VENV)/dev-installed ## Measure what deduplication costs, beside its peers, into docs/ (15 minutes; ARGS=--quick: one, and not into docs/).
	@$(VENV)/bin/python -m benchmarks $(or $(ARGS),--publish)

# Not in requirements-dev.txt: it pins older releases of what is pinned there.
.local/checkov/installed: Makefile
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet checkov==3.3.30
	@touch $@

$(VENV)/run-installed: requirements.txt | $(VENV)
	@$(VENV)/bin/pip install --quiet --requirement $<
	@touch $@

$(VENV)/dev-installed: requirements-dev.txt requirements.txt $(STORES) requirements-workflows.txt | $(VENV)
	@$(VENV)/bin/pip install --quiet --requirement $<
	@$(VENV)/bin/pip install --quiet --no-deps --requirement requirements-workflows.txt
	@touch $@ $(VENV)/run-installed

$(VENV):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, such as: python3.12 -m venv .venv")'
	@$(PYTHON) -m venv $(VENV)
