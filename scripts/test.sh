#!/usr/bin/env bash
# Sets up what is missing, then formatting, lints and every test: scripts/test.sh [--long]
# All in the release profile, so that the language engine and the runtime crates are compiled once.
#   --long  also the tests that take minutes (.config/nextest.toml names them)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

long=
case "${1-}" in
    --long) long=1 ;;
    "") ;;
    *) fail "test.sh knows --long, not $1" ;;
esac

TIMES=()
# timed "name" COMMAND...: output as it is (what fails has said why), time kept for the table at the end.
timed() {
    local name=$1 start=$SECONDS
    shift
    say "== $name"
    "$@" || exit 1
    TIMES+=("$(printf '%-12s %5d s' "$name" $((SECONDS - start)))")
}

# A toolchain without rustfmt or clippy still runs the tests; in CI that would be a gap.
lint() {
    local name=$1 component=$2
    shift 2
    if cargo "$name" --version >/dev/null 2>&1; then
        timed "$name" cargo "$name" "$@"
    elif [ -n "${CI-}" ]; then
        fail "this toolchain has no $component: rustup component add $component"
    else
        say "== $name skipped: this toolchain has no $component (rustup component add $component)"
    fi
}

run_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --release --workspace --locked ${long:+--ignore-default-filter}
    else
        # Without nextest's filters: the slow tests by their names.
        cargo test --release --workspace --locked --lib --bins --tests -- \
            $([ -n "$long" ] || echo --skip speech_in_another_language_is_never_published_as_english \
                --skip churn_for_ten_minutes)
    fi
}

lint fmt rustfmt --all --check
timed setup scripts/setup.sh --tests
timed media scripts/demo_clip.sh
lint clippy clippy --release --workspace --all-targets --locked -- -D warnings
# Doc tests first: the test runner's own summary is to be the last word.
timed doctests cargo test --release --workspace --locked --doc
timed tests run_tests
say "== times"
printf '%s\n' "${TIMES[@]}" >&2
