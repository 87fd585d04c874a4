# Sourced by the other scripts: where things live, how a step runs, and how its failure is told in one sentence.
# Callers have set `set -euo pipefail` and stand in the checkout's root.

# Where weights, media, the compiler cache and logs live; the binary looks in the same place.
export PIPELINE_CACHE="${PIPELINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pipeline}"
export CCACHE_DIR="${CCACHE_DIR:-$PIPELINE_CACHE/ccache}"
LOGS="$PIPELINE_CACHE/logs"

say() { printf '%s\n' "$*" >&2; }

# Ends the script with one sentence: what went wrong and what to do.
fail() {
    say "error: $*"
    exit 1
}

mkdir -p "$LOGS" 2>/dev/null ||
    fail "the cache folder $PIPELINE_CACHE can't be made: free some space there, or set PIPELINE_CACHE to a folder you may write to"

# Turns what a failed command printed (file $2) into one sentence about the step named $1.
explain() {
    local step=$1 log=$2 last
    last=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | sed 's/^[[:space:]]*//; s/^error: //')
    if grep -qiE 'no space left on device|disk quota exceeded|not enough free space' "$log"; then
        fail "$step: the disk is full: free some space (the build needs about 4 GB in the target folder, weights and media about 1 GB in $PIPELINE_CACHE) and run it again"
    elif grep -qiE 'could not get lock|unable to acquire the dpkg frontend lock' "$log"; then
        fail "$step: another program is installing packages: wait until it is done and run it again"
    elif grep -qiE 'THESE PACKAGES DO NOT MATCH THE HASHES|hash sum mismatch|checksum .*(changed|mismatch)|sha256.*(differ|mismatch|expected)|hash.*(differs|mismatch)|EINTEGRITY' "$log"; then
        fail "$step: a download is not the file that was expected ($last): run it again, and if it stays so, the package has changed and must not be used (log: $log)"
    elif grep -qiE 'temporary failure (in name )?resol|could not resolve|name or service not known|network is unreachable|no route to host|connection (refused|timed out|reset)|could not connect|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ETIMEDOUT|NewConnectionError|failed to lookup address|timed out reading|spurious network error' "$log"; then
        fail "$step: the package registry can't be reached: check the network and the proxy settings and run it again (log: $log)"
    elif grep -qiE 'unable to locate package|has no installation candidate|no matching distribution|404 +not found|E404|403 +forbidden|E403|no matching package' "$log"; then
        fail "$step: the registry does not hand out what was asked for ($last): look whether a mirror or a company proxy lacks it (log: $log)"
    fi
    fail "$step failed: ${last:-no message} (log: $log)"
}

# step "what is done" COMMAND...: runs it quietly, says how long it took, explains a failure.
step() {
    local name=$1 log start=$SECONDS
    shift
    log="$LOGS/$(printf '%s' "$name" | tr -cs 'A-Za-z0-9' '-').log"
    if ! "$@" >"$log" 2>&1; then explain "$name" "$log"; fi
    say "$name: ok ($((SECONDS - start)) s)"
}

# Like step, for commands whose progress a person wants to see.
step_shown() {
    local name=$1 log start=$SECONDS
    shift
    log="$LOGS/$(printf '%s' "$name" | tr -cs 'A-Za-z0-9' '-').log"
    say "$name ..."
    if [ -t 2 ]; then export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-always}"; fi
    if ! "$@" 2>&1 | tee "$log" >&2; then explain "$name" "$log"; fi
    say "$name: ok ($((SECONDS - start)) s)"
}

# The folder that cargo builds into, whatever decides it (environment, configuration file, default).
target_dir() {
    cargo metadata --format-version 1 --no-deps --offline 2>/dev/null |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# The built binary.
pipeline_bin() { printf '%s/release/pipeline' "$(target_dir)"; }
