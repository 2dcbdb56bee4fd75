# Every target sets up what it needs first; see tools/bootstrap.py.
PYTHON ?= python3
BIN := .venv/bin
RECORDS ?=
EXIT ?=
UPGRADE ?=
PROPERTIES ?= sqlite=2000,postgresql=200,mariadb=200,mysql=200
SECONDS ?= 3600
# On two cores: half of what a test takes it waits, for a broker, a lock or a lease.
WORKERS ?= 6
MUTANTS ?=
ONLY ?=
RUNS ?=
KILLS ?=
# A folder with the files of a public JSON test suite, for the decoder on a cluster.
JSON_SUITE ?=
# Where this is set, each of hundreds of processes compiles all that it imports, and pytest rewrites every test anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast properties mutants versions memory campaign soak-sessions soak-up soak-mixed screenshots lint setup lock jars-lock clean

demo: setup ## land a sample topic; EXIT=1 ends it when verified, RECORDS=n says how many
	$(BIN)/kafka-assets demo $(if $(RECORDS),--records $(RECORDS)) $(if $(EXIT),--exit)

test: setup ## every test but those of `make campaign`, with real services that all workers share
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-fast: setup ## what needs no service
	$(BIN)/pytest -n 2 --dist worksteal kafka_assets_tests/unit -m "not slow"

properties: setup ## many random programs on every database; PROPERTIES=sqlite=50 says which, SECONDS=n ends each
	KAFKA_ASSETS_TESTS_PROPERTIES=$(PROPERTIES) KAFKA_ASSETS_TESTS_PROPERTIES_SECONDS=$(SECONDS) \
	  $(BIN)/pytest -s kafka_assets_tests -k "test_properties and model_says"

mutants: setup ## breaks the code in a copy, one line at a time, and sees that tests notice; MUTANTS=word chooses
	$(BIN)/python -m kafka_assets_tests.mutants $(MUTANTS)

versions: setup ## the oldest and the newest libraries that pyproject.toml allows, tested; ONLY=oldest; goes on if interrupted
	$(BIN)/python -m kafka_assets_tests.ranges $(ONLY)

memory: setup ## the publisher's peak with 4,000,000 records and with 500,000, on every database
	$(BIN)/pytest kafka_assets_tests/memory/check_memory.py

campaign: setup ## daemons killed, doubled and robbed while 300,000 records land; the lab, the benches, a Spark cluster, three brokers
	KAFKA_ASSETS_TESTS_CAMPAIGN_RECORDS=300000 KAFKA_ASSETS_TESTS_CAMPAIGN_KILLS=10 \
	  $(BIN)/pytest kafka_assets_tests/acceptance/test_daemon_killed.py -k killed_again
	$(if $(JSON_SUITE),KAFKA_ASSETS_TESTS_JSON_SUITE=$(abspath $(JSON_SUITE))) $(BIN)/pytest -m campaign

soak-sessions: setup ## 400 runs through one Spark server, 40 killed: what stays in its heap; RUNS, KILLS; goes on if interrupted
	$(BIN)/python -m kafka_assets_tests.soak $(if $(RUNS),--runs $(RUNS)) $(if $(KILLS),--kills $(KILLS))

soak-up: setup ## `up --with dagster` under load and kills for half an hour, its memory and lag each minute; MINUTES
	$(BIN)/python -m kafka_assets_tests.soak.standing $(if $(MINUTES),--minutes $(MINUTES))

soak-mixed: setup ## an hour of slices of all kinds and sizes through one Spark server of 2 GB, its memory each minute; MINUTES; goes on if interrupted
	$(BIN)/python -m kafka_assets_tests.soak.mixed $(if $(MINUTES),--minutes $(MINUTES))

screenshots: setup ## docs/pictures anew: Dagster's pages of the demo, by a Chromium from Debian
	$(BIN)/python tools/screenshots.py

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

setup:
	@$(PYTHON) tools/bootstrap.py

lock: ## requirements.lock anew (needs uv): what still fits stays; UPGRADE=1 takes the newest that pyproject.toml allows
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	  $(if $(UPGRADE),--upgrade) --no-emit-index-url --no-annotate --custom-compile-command "make lock" --output-file requirements.lock --quiet

jars-lock: setup ## jars.lock anew, the versions that tools/lock_jars.py names
	$(BIN)/python tools/lock_jars.py

clean: ## stop the services, remove what was made here; the cache per user stays
	[ ! -x $(BIN)/kafka-assets ] || $(BIN)/kafka-assets down --delete --yes
	rm -rf .venv .kafka_assets .dagster build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis .mutants.json
