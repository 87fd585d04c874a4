#!/usr/bin/env bash
# Makes the demo clip in the cache and prints its path: people walking (vtest), real speech (jfk, librivox),
# drawn text in Latin and Chinese. 40.5 s, 768x576, H.264 and AAC. The same inputs and the same ffmpeg give the
# same bytes; it is made anew only when this recipe, an input or ffmpeg changes.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

MEDIA="$PIPELINE_CACHE/media"
CLIP="$MEDIA/demo/demo.mp4"
LATIN=/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf
CHINESE=/usr/share/fonts/truetype/wqy/wqy-microhei.ttc
LENGTH_S=40.5

for name in vtest/vtest.avi jfk/jfk.wav librivox/transcription; do
    [ -f "$MEDIA/$name" ] || fail "$MEDIA/$name is missing: run 'make setup', which fetches it"
done

# Speech: file and the millisecond it starts at, with pauses of under a second between them.
SENSE="$MEDIA/librivox/sense_and_sensibility_01_austen_64kb"
SPEECH=(
    "$MEDIA/jfk/jfk.wav" 500
    "$SENSE-0870.wav" 12300
    "$SENSE-0880.wav" 20200
    "$SENSE-0890.wav" 24000
    "$SENSE-0920.wav" 30100
    "$SENSE-0930.wav" 36600
)

# Text: from second, to second, font, size, x, y, words. Two signs change, one line stays.
sign() {
    printf "drawtext=fontfile=%s:text='%s':fontsize=%s:x=%s:y=%s:fontcolor=white:box=1:boxcolor=black@0.85:boxborderw=10:enable='between(t,%s,%s)'" \
        "$3" "$7" "$4" "$5" "$6" "$1" "$2"
}
TEXT="$(sign 0 13.99 $LATIN 40 24 24 'GATE 7'),$(sign 14 27.99 $LATIN 40 24 24 'PLATFORM 2'),$(sign 28 99 $CHINESE 40 24 24 '请勿靠近站台')"
TEXT+=",$(sign 0 27.99 $LATIN 30 '(w-tw)/2' 'h-70' 'TRAIN TO BERLIN DELAYED'),$(sign 28 99 $LATIN 30 '(w-tw)/2' 'h-70' 'NOW BOARDING TO HAMBURG')"

recipe() {
    cat scripts/demo_clip.sh
    sha256sum "$MEDIA/vtest/vtest.avi" $LATIN $CHINESE | cut -d' ' -f1
    ffmpeg -version | head -n 1
}

make_clip() {
    local inputs=() mix="" labels="" n=0 i
    for ((i = 0; i < ${#SPEECH[@]}; i += 2)); do
        n=$((n + 1))
        inputs+=(-i "${SPEECH[i]}")
        mix+="[$n:a]adelay=${SPEECH[i + 1]}[s$n];"
        labels+="[s$n]"
    done
    # One thread and bitexact: the bytes depend on nothing but the inputs.
    ffmpeg -nostdin -v error -y -i "$MEDIA/vtest/vtest.avi" "${inputs[@]}" \
        -filter_complex "[0:v]fps=25,$TEXT[v];$mix${labels}amix=inputs=$n:normalize=0,apad,aresample=48000[a]" \
        -map '[v]' -map '[a]' -t $LENGTH_S \
        -c:v libx264 -preset medium -crf 20 -g 50 -pix_fmt yuv420p -threads 1 \
        -c:a aac -b:a 96k -ac 1 -fflags +bitexact -flags:v +bitexact -flags:a +bitexact -map_metadata -1 \
        -movflags +faststart -f mp4 "$CLIP.part" &&
        mv "$CLIP.part" "$CLIP"
}

key=$(recipe | sha256sum | cut -d' ' -f1)
if [ ! -f "$CLIP" ] || [ "$(cat "$CLIP.recipe" 2>/dev/null)" != "$key" ]; then
    mkdir -p "$MEDIA/demo"
    step "demo clip" make_clip
    printf '%s\n' "$key" >"$CLIP.recipe"
fi
printf '%s\n' "$CLIP"
