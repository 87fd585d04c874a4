#!/usr/bin/env bash
# The demo: a real clip at its own pace, real models, fused answers as they come, a summary at the end.
# Arguments go to `pipeline run`, after the demo's own (for example --output - or --listen 127.0.0.1:9090).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

scripts/setup.sh
clip=$(scripts/demo_clip.sh)
exec "$(pipeline_bin)" run configs/demo.yaml --input "$clip" --realtime "$@"
