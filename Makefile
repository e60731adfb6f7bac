# The commands of everyday use; each makes or completes the virtualenv first.
.PHONY: demo study test test-long check format slurm
SHELL := bash
PYTHON := .venv/bin/python

demo:
	env/create.sh
	jobs/demo.sh

demo-lora:
	env/create.sh
	jobs/demo-lora.sh

# Two workers: the tests are made for two cores.
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

# A real Slurm for this one machine, to try things on (env/slurm/README.md).
slurm:
	env/slurm/install

# A study from its plan to its report, on the cluster where there is a Slurm, else here.
study:
	env/create.sh
	jobs/study.sh '$(NAME)'
