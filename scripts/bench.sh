#!/usr/bin/env bash
# Sets up what is missing and runs benches: scripts/bench.sh [NAME]...   (none: all that the binary knows)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

scripts/setup.sh
scripts/demo_clip.sh >/dev/null
pipeline=$(pipeline_bin)
[ $# -gt 0 ] || set -- latency clips freshness overhead priority memory
for name in "$@"; do
    "$pipeline" bench "$name"
done
