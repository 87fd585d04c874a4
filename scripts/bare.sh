#!/usr/bin/env bash
# For developers: proves that a bare Debian 12 with nothing but a Rust toolchain gets through a make target.
#   scripts/bare.sh FOLDER [--keep] [--cache DIR] [COMMAND...]      COMMAND: default `make test`
#     FOLDER      holds `base` (made once by debootstrap) and `root` (a fresh copy per run); needs about 8 GB
#     --keep      go on in the root of the last run instead of a fresh copy
#     --cache DIR use this cache folder (warm) instead of an empty one
# Needs root and debootstrap. The machine's network settings (hosts, resolver, certificates, apt, proxies, clients'
# environment) are carried over, its packages are not. Mounts live in a mount namespace of their own and end with it.
set -euo pipefail

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
folder=$1
shift
keep="" cache=""
while [ $# -gt 0 ]; do
    case $1 in
        --keep) keep=1 ;;
        --cache) cache=$(realpath "$2"); shift ;;
        --*) usage ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- make test
[ "$(id -u)" -eq 0 ] || { echo "error: bare.sh changes root and mounts: run it as root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "error: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

if [ -z "${BARE_INSIDE-}" ]; then
    exec env BARE_INSIDE=1 unshare --mount --pid --fork --kill-child --mount-proc \
        bash "$0" "$folder" ${keep:+--keep} ${cache:+--cache "$cache"} "$@"
fi

checkout=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
base=$(realpath "$folder")/base
root=$(realpath "$folder")/root

if [ ! -x "$base/bin/bash" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase --include=ca-certificates,make bookworm "$base"
fi
if [ -z "$keep" ] || [ ! -d "$root" ]; then
    rm -rf "$root"
    cp -a --reflink=auto "$base" "$root"
fi

# The network as this machine has it.
cp -L /etc/hosts /etc/resolv.conf "$root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
    [ -f "$file" ] && grep -qE '^ *Acquire' "$file" && cp "$file" "$root/etc/apt/apt.conf.d/90carried-$(basename "$file")"
done || true
home=/root
environment=(HOME=$home PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM="${TERM:-dumb}")
while IFS= read -r name; do
    environment+=("$name=${!name}")
done < <(compgen -e | grep -E '^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|CI|PIP_(CERT|INDEX_URL|DEFAULT_TIMEOUT|PROXY)|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS|CURL_CA_BUNDLE|(npm_config|NPM_CONFIG)_(registry|REGISTRY|cafile|CAFILE)|CARGO_(HTTP|NET|REGISTRIES)_[A-Z_]*)$' || true)

# Devices, the toolchain (read only), and a copy of what git would commit.
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || true
mkdir -p "$root/opt/rust" "$root/src" "$root$home/.cargo"
mount --bind -o ro "$(rustc --print sysroot)" "$root/opt/rust"
if [ -f "${CARGO_HOME:-$HOME/.cargo}/config.toml" ]; then
    cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$root$home/.cargo/"
fi
if [ -n "$cache" ]; then
    mkdir -p "$root$home/.cache/pipeline"
    mount --bind "$cache" "$root$home/.cache/pipeline"
fi
find "$root/src" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
git -C "$checkout" ls-files -z --cached --others --exclude-standard |
    tar -C "$checkout" --null --ignore-failed-read -T - -cf - | tar -C "$root/src" -xf -

exec chroot "$root" env -i "${environment[@]}" bash -c 'cd /src && exec "$@"' bare "$@"
