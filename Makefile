.PHONY: demo ui test soak install browser check clean

# Everything from a fresh clone to a first answer; repeat it at will. PYTHON=... picks the Python for .venv.
demo:
	@PYTHON="$(PYTHON)" scripts/setup demo $(ARGS)

# The chat page in a browser, with the demo's server beside it; make ui ARGS=./my-model for another
ui:
	@PYTHON="$(PYTHON)" scripts/setup ui $(ARGS)

# Sets up what is missing and runs the tests; make test ARGS="tests/engine -x"
test:
	@PYTHON="$(PYTHON)" scripts/setup test $(ARGS)

# Hours of bad luck in some minutes: random requests, clients that leave, floods, killed processes, other people's suites;
# make soak ARGS="--seed 7 --only aborts disasters"
soak:
	@PYTHON="$(PYTHON)" scripts/setup soak $(ARGS)

# The environment with the development tools, and nothing run
install:
	@PYTHON="$(PYTHON)" scripts/setup install

# Chromium and the chat page's environment: what its tests need and leave themselves out without
browser:
	@PYTHON="$(PYTHON)" scripts/setup browser

# Format, lint, types, import contracts and house rules: what CI checks besides the tests
check:
	@scripts/check

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
