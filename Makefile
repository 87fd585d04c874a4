# The commands of this project. Each sets up what it needs; a second run is quick.
.PHONY: help setup demo test test-long bench lint

help:
	@echo "make demo       install what is missing, build, analyse a real clip, show fused answers"
	@echo "make test       install what is missing, run formatting check, lints and all tests"
	@echo "make setup      what both share: system packages, release binary, weights"
	@echo "make test-long  also the tests that take minutes"
	@echo "make bench      measure (NAME=latency for one of them)"
	@echo "make lint       formatting check and lints only"

setup:
	@scripts/setup.sh

# ARGS go to pipeline run: make demo ARGS="--output -"
demo:
	@scripts/demo.sh $(ARGS)

test:
	@scripts/test.sh

test-long:
	@scripts/test.sh --long

bench:
	@scripts/bench.sh $(NAME)

lint:
	@cargo fmt --all --check
	@cargo clippy --release --workspace --all-targets -- -D warnings
