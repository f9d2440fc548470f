# `make` alone lists all targets.
python := .venv/bin/python
unexport PYTHONDONTWRITEBYTECODE  # tests start some thousand Pythons: not one of them should compile all that it imports

help:  ## this list
	@sed -nE 's/^([a-z]+):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 8

demo:  ## set up, record a real workload into demo-trace/, and report it (needs root, or the rights that lo2io doctor names)
	@scripts/setup.sh demo
	@scripts/demo.sh

test:  ## set up, lint, run all tests; LO2IO_RUN_KERNEL_TESTS=1 turns skips for lack of rights into failures
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory --keep-going --jobs=3 run-lint run-unit run-kernel

run-unit:  # beside the tests of the kernel, which leave the CPUs idle a third of the time; it is told at its end
	@told=$$(mktemp); \
	nice -n 19 scripts/run-pytest.sh -n auto --dist worksteal -o cache_dir=.pytest_cache/unit --ignore=tests/kernel >$$told 2>&1; \
	status=$$?; cat $$told; rm $$told; exit $$status

run-kernel:  # a recording of the whole machine runs alone; of recordings of a command, two run at a time
	@failed=0; run() { echo "» pytest $$*"; scripts/run-pytest.sh "$$@" || failed=$$?; }; \
	run -m alone tests/kernel; \
	run -n 2 --dist loadfile -m "not alone" tests/kernel; \
	exit $$failed

search:  ## made-up histories that make test does not try; LO2IO_EXAMPLES=N of each kind for the engine (500)
	@scripts/setup.sh test
	LO2IO_EXAMPLES=$${LO2IO_EXAMPLES:-500} $(python) -m pytest -n auto -m hypothesis --ignore=tests/kernel

fuzz:  ## damaged recordings, traces and texts that make test does not try, with sanitizers; LO2IO_FUZZ=N of each kind (500)
	@scripts/setup.sh test
	LO2IO_FUZZ=$${LO2IO_FUZZ:-500} LO2IO_FUZZ_UNDER=$(CURDIR)/scripts/sanitized.sh $(python) -m pytest \
	tests/unit/test_damaged_texts.py tests/unit/test_damaged_recordings.py

faults:  ## kill -9, full disks, refused calls, crowds: what remains after each; 40 minutes, as root; FAULTS="kill quota": those
	@scripts/setup.sh test
	$(python) scripts/faults.py $(FAULTS)

attack:  ## another user exchanges files under lo2io's hands; 1,000 commands take 15 to 30 minutes, as root
	@scripts/setup.sh test
	LO2IO_ATTACK_ROUNDS=$${LO2IO_ATTACK_ROUNDS:-125} $(python) -m pytest tests/kernel/test_harm.py -k nobody_has -o timeout=3600

mutants:  ## changes of one place each that no unit test notices; MUTANTS=N of them (300): an hour
	@scripts/setup.sh test
	nice -n 19 $(python) scripts/mutate.py --count $${MUTANTS:-300}

lint:  ## ruff, mypy, import layers, rooms of the C files, spelling
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory run-lint

run-lint:
	$(python) -m ruff check --quiet
	$(python) -m ruff format --check --quiet
	$(python) -m mypy --no-error-summary
	.venv/bin/lint-imports
	$(python) scripts/check_c_rooms.py
	.venv/bin/codespell

bench:  ## the measurements of benchmarks/README.md: 90 minutes, as root, on a quiet machine; BENCH=ad: those two; BENCH=quick: 5 minutes
	@scripts/setup.sh bench >&2
	@$(python) benchmarks/run.py $(BENCH)

docs:  ## regenerate docs/reference from the command line and tracepoints/*.toml
	@scripts/setup.sh demo
	$(python) scripts/reference_tracepoints.py
	$(python) scripts/reference_cli.py

site:  ## build the documentation as a site into site/: a warning, or a link that leads nowhere, is an error
	@scripts/setup.sh demo
	@$(python) -m pip --disable-pip-version-check install -q --group site
	$(python) scripts/site.py

wheel:  ## build wheels and source distribution into dist/, and check them under each Python at hand: 15 minutes
	@scripts/setup.sh test
	@$(python) -m pip --disable-pip-version-check install -q --group wheel
	$(python) scripts/wheels.py build
	if command -v aarch64-linux-gnu-gcc >/dev/null; then $(python) scripts/wheels.py cross; fi
	$(python) scripts/wheels.py check

deb:  ## build a Debian package into dist/, for the distribution that this machine has
	@scripts/setup.sh test
	@$(python) -m pip --disable-pip-version-check install -q --group wheel
	$(python) scripts/wheels.py build
	scripts/deb.sh

sdist:  ## build the source distribution into dist/
	@scripts/setup.sh test
	@$(python) -m pip --disable-pip-version-check install -q --group wheel
	$(python) scripts/wheels.py sdist

clean:  ## remove all built files, and .venv
	rm -rf .venv build dist site demo-trace demo-trace.html demo-before demo-after .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf *.egg-info lo2io/native/_lib.c lo2io/native/_lib.abi3.so lo2io/bpf/programs/*.o
	find . -name __pycache__ -type d -prune -exec rm -r {} +

.PHONY: help demo test site wheel deb sdist search fuzz faults attack mutants lint run-lint run-unit run-kernel bench docs clean
