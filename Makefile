# Everyday commands; each first creates or completes the virtualenv.
.PHONY: demo demo-lora study test test-long test-slurm check format slurm gpu
SHELL := bash
PYTHON := .venv/bin/python

demo:
	env/create.sh
	jobs/demo.sh

demo-lora:
	env/create.sh
	jobs/demo-lora.sh

# Two workers: the tests are designed for two cores.
test:
	env/create.sh dev
	$(PYTHON) -m pytest -n 2 --dist loadgroup -m "not long"

test-long:
	env/create.sh dev
	$(PYTHON) -m pytest -n 2 --dist loadgroup --timeout 3600

check:
	env/create.sh dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	git ls-files -z '*.sh' '*.sbatch' .ci/run 'env/slurm/*' ':!*.md' | xargs -0 shellcheck -x

format:
	env/create.sh dev
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# Install a real Slurm for this machine alone (env/slurm/README.md); with VERSION=24.11 also that one.
slurm:
	env/slurm/install
	$(if $(VERSION),env/slurm/unpack $(VERSION))

# The tests on Slurm, or TESTS among them, with 22.05, 24.11 and 26.05, or with VERSION.
test-slurm:
	env/create.sh dev
	env/slurm/install
	for version in $(or $(VERSION),22.05 24.11 26.05); do \
	  env/slurm/unpack $$version || { [[ $$? == 3 ]] && continue || exit 1; }; \
	  DITBENCH_SLURM=$$version $(PYTHON) -m pytest $(or $(TESTS),tests/slurm) || exit 1; \
	done

# Run a study from plan to report: on the cluster if Slurm answers, else on this machine.
study:
	env/create.sh
	jobs/study.sh '$(NAME)'

# Measure the GPU of this machine for 9 minutes, into docs/measurements/gpu-NAME; again, what is left.
gpu:
	$(or $(wildcard $(PYTHON)),python3) -m benchmarks.gpu
