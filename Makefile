# Two commands do everything on a fresh Debian or Ubuntu: make demo, make test.
# Neither installs anything a second time.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory --no-builtin-rules
PYTHON := $(CURDIR)/.venv/bin/python
# One folder, file or test: make test T=tests/python/clusters, or a part of a name: make test T=rendezvous
T ?=
# Whether the slow tests run: make test T=tests/python/clusters SLOW=1
SLOW ?=
MARKS := -m '$(if $(SLOW),slow or not slow,not slow)'
# What `make equality` compares: numbers of workers, and what carries their collectives.
WORKERS ?= 2 3
WAYS ?=
COMMUNICATION ?= auto
VIRTUAL ?=
# The random faults of `make soak`, and how long it runs jobs.
SEED ?= 1
MINUTES ?= 30
# How often `make bench` runs each system; SYSTEMS=MPI runs those with this in their name. STEPS=2 trains each network
# for two epochs of so many steps, to see what runs.
ROUNDS ?= 5
SYSTEMS ?=
STEPS ?=

export LC_ALL := C.UTF-8
export SLOW
# R uses the Python of this checkout, also where its working directory is another.
export RETICULATE_PYTHON := $(PYTHON)

# In each process oneDNN searches all kernels for each operation of the first step, for a tenth of the time of
# a small worker. These targets do without it; `make equality` and `make soak` have the kernels of users.
test test-python test-alone test-r test-cross test-clusters test-ray test-openmpi test-trackers test-zoo check faults planted: \
  export TF_ENABLE_ONEDNN_OPTS := 0

# As tests/conftest.py has it for the targets that run pytest.
equality soak planted: export PYTHONPATH := $(CURDIR)/tests/without:$(CURDIR)/tests/startup
equality zoo soak planted: export OPENBLAS_NUM_THREADS := 1
# keras-hub imports IPython, which the others do without.
zoo: export PYTHONPATH := $(CURDIR)/tests/startup

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint test-python test-alone test-r test-clusters test-ray test-openmpi test-trackers test-zoo test-debian13 test-cross check release equality zoo soak faults planted docs site test-site bench proof versions clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: ## install R, its packages, .venv and the R package; quick when all is there
	@tools/setup.sh

demo: setup ## the main job on two workers, from Python and then from R
	$(PYTHON) examples/demo.py
	@tools/demo-r.sh

# The cores are busy all the time: a second process of testthat would only load R, Python and TensorFlow once more.
test: setup ## all checks and tests but the slow ones; T=tests/python/clusters or T=name runs only those
	@$(if $(T),tools/test-one.sh '$(T)',TESTTHAT_CPUS=1 tools/test.sh test-python,test-r+check,test-cross+lint test-alone)

test-all: setup ## the slow tests too, all clusters, all faults, all cases of equality, the site
	@SLOW=1 MINUTES=4 tools/test.sh test-python,test-r+check+soak+test-trackers+test-site+test-openmpi+test-zoo,test-cross+lint test-alone faults,equality-distributed_fit,equality-drop-in+planted test-clusters,test-ray

lint: setup ## ruff, mypy, import-linter, lintr, schemas of workflows, words
	@failed=0; \
	for tool in '.venv/bin/ruff check .' .venv/bin/mypy .venv/bin/lint-imports 'Rscript tools/lint.R' tools/lint-documents.sh '.venv/bin/python tools/lint_words.py'; do \
	  echo "$$tool"; $$tool || failed=1; \
	done; \
	exit $$failed

test-python: setup ## pytest
	@tools/setup-hosts.sh
	@tools/setup-slurm.sh
	$(if $(T),$(PYTHON) -m pytest tests/python -k '$(T)',tools/test-python.sh)

test-alone: setup ## the tests that measure time, while nothing else runs
	$(PYTHON) -m pytest -m 'alone$(if $(SLOW),, and not slow)' $$(grep -rl --include='*.py' 'pytest\.mark\.alone' tests/python)

test-r: setup ## testthat
	Rscript tools/test-r.R $(T)

test-clusters: setup ## one suite for local workers, ssh, Slurm, Kubernetes and Ray
	@tools/setup-hosts.sh
	@tools/setup-slurm.sh
	$(PYTHON) -m pytest tests/clusters -m 'not alone' -n 3 $(if $(T),-k '$(T)')
	$(if $(T),,$(PYTHON) -m pytest tests/clusters -m alone)

test-ray: setup ## ray_cluster() and its examples, with Ray
	@tools/test-beside.sh ray tests/clusters_ray $(MARKS) $(if $(T),-k '$(T)') --durations=10
	@$(if $(SLOW),tools/test-beside.sh ray tests/clusters/test_all_clusters.py -k ray_nodes)

test-openmpi: setup ## jobs over Open MPI
	@tools/setup-hosts.sh
	@tools/setup-slurm.sh
	@tools/test-beside.sh openmpi tests/openmpi $(if $(T),-k '$(T)')

test-trackers: setup ## MLflow and W&B
	@tools/test-beside.sh trackers tests/trackers $(MARKS) $(if $(T),-k '$(T)') --durations=10

test-zoo: setup ## ten models of keras-hub, keras-rs and keras.applications
	@tools/test-beside.sh zoo tests/zoo $(if $(T),-k '$(T)')

test-debian13: ## test-r on Debian 13, in a chroot; needs root
	@tools/test-debian13.sh

versions: setup ## old and new TensorFlow, Keras and Python; T=name, RECORD=1; NIGHTLY=1: the nightly builds
	@python3 tools/versions.py $(if $(NIGHTLY),--nightly,--only '$(T)') $(if $(RECORD),--record)
	$(if $(T)$(NIGHTLY),,@tools/test-debian13.sh)

test-cross: setup ## R and Python in one process and on one cluster
	$(PYTHON) -m pytest tests/cross $(if $(T),-k '$(T)',$(if $(SLOW),--durations=40,-m 'not slow'))

check: setup ## R CMD check --as-cran without the tests; fails on warnings and notes
	@tools/check-r.sh

release: setup ## dist/: wheel, sdist and R package, checked in empty environments; uploads nothing
	@tools/release.sh

equality: setup ## all cases on 2 and 3 workers against one; T=names, SET=cases_of_nets, WORKERS='2 3', WAYS=drop-in, VIRTUAL=4
	$(PYTHON) tests/equality/run.py --cases $(T) --workers $(WORKERS) --communication $(COMMUNICATION) \
	  $(if $(SET),--set $(SET)) $(if $(WAYS),--way $(WAYS)) $(if $(VIRTUAL),--virtual $(VIRTUAL))

equality-%: setup # the cases of one way
	@$(MAKE) -o setup equality WAYS=$*

zoo: setup ## models that others wrote, on two workers against one; T=names
	@tools/setup-beside.sh zoo
	@failed=0; \
	for virtual in '--virtual 2' ''; do \
	  .cache/zoo-venv/bin/python tests/equality/run.py --set zoo_cases --cases $(T) --workers 2 --way distributed_fit \
	    --communication $(COMMUNICATION) $$virtual || failed=1; \
	done; \
	exit $$failed

docs: ## man/ and NAMESPACE from the comments in R/
	@tools/setup-r.sh && tools/setup-reticulate.sh
	Rscript -e 'roxygen2::roxygenise()'

site: ## the documentation as a site, in site/
	@tools/setup-site.sh
	NO_MKDOCS_2_WARNING=1 .cache/site-venv/bin/mkdocs build --quiet --config-file tools/site/mkdocs.yml

test-site: site ## each page of the site in a browser
	@tools/setup-site.sh browser
	.cache/site-venv/bin/python -m pytest tests/site $(if $(T),-k '$(T)')

faults: setup ## what can happen to a worker, and who sees what after how many seconds; T=name
	$(PYTHON) -m pytest tests/faults $(if $(T),-k '$(T)')

planted: setup ## faults planted into runs, and what replay() and bisect() find; T=words of faults
	@$(PYTHON) tests/planted/run.py --cases $(T)

soak: setup ## jobs of all kinds in a loop, each with a random fault, compared bitwise; MINUTES=30, SEED=1
	@$(PYTHON) tests/chaos/soak.py --minutes $(MINUTES) --seed $(SEED)

bench: setup ## speed against Keras, PyTorch and JAX; T=parts, ROUNDS=5, SYSTEMS=, STEPS=
	@tools/setup-bench.sh
	@$(PYTHON) benchmarks/bench.py --rounds $(ROUNDS) --systems '$(SYSTEMS)' $(if $(STEPS),--steps $(STEPS)) --parts $(T)

proof: setup ## run all that the claims rest on, and write docs/proof/report.md; hours; T=parts
	@tools/setup-bench.sh
	@$(PYTHON) tools/proof/record.py --parts $(T)

clean: ## remove what setup and the tests made in this folder
	rm -rf .venv .tools .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site python/tfdistr.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
