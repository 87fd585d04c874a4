//! Real weights, real recordings, and what is needed to compare what was heard with what was said.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "a module of test binaries")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails where its material is missing")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use media::Pts;
use models::speech::{
    ActivityInput, Chunker, Decoding, LanguageTracker, LanguageVerdict, Progress, Segmenter,
    SegmenterSettings, SpeechEvent, TOKENS_PER_S_MAX, Transcriber, Transcript, Utterance,
    VoiceActivity, VoiceState,
};
use models::{Model, Runtime};

/// The cache folder of this user.
pub fn cache() -> PathBuf {
    let folder =
        |variable: &str| env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    folder("PIPELINE_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|d| d.join("pipeline")))
        .or_else(|| folder("HOME").map(|d| d.join(".cache/pipeline")))
        .expect("a home folder")
}

/// Folder of a model; the test fails when it was not pulled.
pub fn model(name: &str) -> PathBuf {
    let dir = cache().join("models").join(name);
    assert!(dir.is_dir(), "{} is not there; run `pipeline models pull {name}`", dir.display());
    dir
}

/// ONNX Runtime allows itself to be opened once per process.
pub fn runtime() -> Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let open = || Runtime::open(&model("onnxruntime").join("libonnxruntime.so"));
    RUNTIME.get_or_init(|| open().expect("ONNX Runtime")).clone()
}

/// Everything from samples to verdicts, for one stream at a time.
pub struct Ears {
    pub settings: SegmenterSettings,
    pub activity: VoiceActivity,
    pub transcriber: Transcriber,
    pub segmenter: Segmenter,
    pub told: Option<String>,
    chunker: Chunker,
    state: VoiceState,
    audio: Duration,
    in_activity: Duration,
    spoken: Duration,
    in_encoder: Duration,
    in_decoder: Duration,
}

impl Ears {
    pub fn open() -> Self {
        let runtime = runtime();
        let settings = SegmenterSettings::default();
        Ears {
            settings,
            activity: VoiceActivity::open(&runtime, &model("silero-vad-v6")).expect("weights"),
            transcriber: Transcriber::open(&runtime, &model("moonshine-tiny")).expect("weights"),
            segmenter: Segmenter::new(settings),
            told: None,
            chunker: Chunker::new(),
            state: VoiceState::default(),
            audio: Duration::ZERO,
            in_activity: Duration::ZERO,
            spoken: Duration::ZERO,
            in_encoder: Duration::ZERO,
            in_decoder: Duration::ZERO,
        }
    }

    /// A whole recording as a stream of its own, in pieces as a reader gives them.
    pub fn hear(&mut self, pcm: &[f32]) -> Vec<(Utterance, Transcript, LanguageVerdict)> {
        self.chunker = Chunker::new();
        self.state = VoiceState::default();
        self.segmenter = Segmenter::new(self.settings);
        let mut language = LanguageTracker::new("en", self.told.as_deref());
        let mut events = self.listen(Pts::ZERO, pcm);
        events.extend(self.segmenter.end());
        let mut heard = Vec::new();
        for event in events {
            if let SpeechEvent::Closed(utterance) = event {
                let transcript = self.transcribe(&utterance.pcm);
                let verdict = language.observe(&transcript);
                heard.push((utterance, transcript, verdict));
            }
        }
        heard
    }

    pub fn listen(&mut self, pts: Pts, pcm: &[f32]) -> Vec<SpeechEvent> {
        let mut events = Vec::new();
        let mut at = pts;
        // The codec's frames: no multiple of a chunk.
        for piece in pcm.chunks(1_000) {
            let chunks = self.chunker.push(at, piece);
            self.take(chunks, &mut events);
            at = at + Duration::from_micros(piece.len() as u64 * 1_000 / 16);
        }
        let last = self.chunker.flush();
        self.take(last.into_iter().collect(), &mut events);
        events
    }

    fn take(&mut self, chunks: Vec<(Pts, models::speech::Chunk)>, events: &mut Vec<SpeechEvent>) {
        let input = ActivityInput {
            state: self.state.clone(),
            chunks: chunks.iter().map(|(_, chunk)| *chunk).collect(),
        };
        self.audio += Duration::from_millis(32) * chunks.len() as u32;
        let before = computed();
        let output = self.activity.run(&[input]).expect("voice activity").remove(0);
        self.in_activity += computed().saturating_sub(before);
        self.state = output.state;
        assert_eq!(output.speech.len(), chunks.len());
        for ((pts, chunk), speech) in chunks.iter().zip(output.speech) {
            events.extend(self.segmenter.push(*pts, chunk, speech));
        }
    }

    pub fn transcribe(&mut self, pcm: &[f32]) -> Transcript {
        let before = computed();
        let encoded = self.transcriber.encode(pcm).expect("encodes");
        let between = computed();
        let mut decoding = Decoding::new(encoded, TOKENS_PER_S_MAX);
        while decoding.step(&mut self.transcriber).expect("steps") == Progress::More {}
        let transcript = decoding.finish(&self.transcriber).expect("finishes");
        self.in_encoder += between.saturating_sub(before);
        self.in_decoder += computed().saturating_sub(between);
        self.spoken += Duration::from_micros(pcm.len() as u64 * 1_000 / 16);
        transcript
    }

    /// For people; never asserted.
    pub fn costs(&self) -> String {
        let per_s = |cost: Duration, of: Duration| cost.as_secs_f64() * 1e3 / of.as_secs_f64();
        format!(
            "ms of one thread: voice activity {:.1} per second of audio; encoder {:.1} and decoder {:.1} per second of speech",
            per_s(self.in_activity, self.audio),
            per_s(self.in_encoder, self.spoken),
            per_s(self.in_decoder, self.spoken),
        )
    }
}

/// Time this thread has computed so far; the machine may be busy with other things.
pub fn computed() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(first.unwrap_or(0))
}

/// 16-bit mono PCM at 16 kHz.
pub fn wav(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    pcm_of(&bytes).unwrap_or_else(|| panic!("{}: no 16 kHz mono 16-bit WAV", path.display()))
}

fn pcm_of(bytes: &[u8]) -> Option<Vec<f32>> {
    let mut at = 12;
    let mut format = false;
    while let (Some(id), Some(size)) = (bytes.get(at..at + 4), bytes.get(at + 4..at + 8)) {
        let size = u32::from_le_bytes(size.try_into().ok()?) as usize;
        // Written to a pipe, the size is unknown: up to the end then.
        let body = bytes.get(at + 8..(at + 8 + size).min(bytes.len()))?;
        match id {
            b"fmt " => format = body.get(2..8) == Some(&[1, 0, 0x80, 0x3e, 0, 0]),
            b"data" if format => {
                let sample = |b: &[u8]| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32_768.0;
                return Some(body.chunks_exact(2).map(sample).collect());
            }
            _ => {}
        }
        at += 8 + size + size % 2;
    }
    None
}

/// Any audio file as 16 kHz mono, through ffmpeg's command.
pub fn decoded(path: &Path) -> Vec<f32> {
    let output = Command::new("ffmpeg")
        .stdin(Stdio::null())
        .args(["-nostdin", "-v", "error", "-i"])
        .arg(path)
        .args(["-ac", "1", "-ar", "16000", "-c:a", "pcm_s16le", "-f", "wav", "-"])
        .output()
        .expect("ffmpeg is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    pcm_of(&output.stdout).expect("a WAV file")
}

/// A sentence spoken by espeak-ng.
pub fn spoken(voice: &str, words_per_minute: u32, text: &str) -> Vec<f32> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("spoken.wav");
    let status = Command::new("espeak-ng")
        .stdin(Stdio::null())
        .args(["-v", voice, "-s", &words_per_minute.to_string(), "-w"])
        .arg(&file)
        .arg(text)
        .status()
        .expect("espeak-ng is installed");
    assert!(status.success(), "espeak-ng has no voice `{voice}`");
    decoded(&file)
}

pub fn jfk() -> Vec<f32> {
    wav(&cache().join("media/jfk/jfk.wav"))
}

/// Name, audio and what is said.
pub fn librivox() -> Vec<(String, Vec<f32>, String)> {
    let dir = cache().join("media/librivox");
    let lines = fs::read_to_string(dir.join("transcription"))
        .unwrap_or_else(|e| panic!("{}: {e}; run `pipeline models pull librivox`", dir.display()));
    let clips: Vec<_> = lines
        .lines()
        .filter_map(|line| {
            let (text, name) = line.trim().trim_end_matches(')').rsplit_once('(')?;
            let text = text.replace("<s>", "").replace("</s>", "");
            Some((name.to_owned(), wav(&dir.join(format!("{name}.wav"))), text))
        })
        .collect();
    assert_eq!(clips.len(), 5);
    clips
}

/// Nobody speaks in these: silence, noise, tones, chords with a beat, clicks.
pub fn no_speech() -> Vec<(&'static str, Vec<f32>)> {
    let seconds = 6;
    let mut seed = 1u32;
    let mut noise = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / 8_388_608.0 - 1.0
    };
    let mut make = |f: &mut dyn FnMut(f32, f32) -> f32| -> Vec<f32> {
        (0..16_000 * seconds).map(|i| f(i as f32 / 16_000.0, noise())).collect()
    };
    let sine = |t: f32, hz: f32| (t * hz * std::f32::consts::TAU).sin();
    // A melody of plucked notes over a bass, with overtones and vibrato.
    let melody = [262.0, 330.0, 392.0, 523.0, 440.0, 349.0, 294.0, 392.0];
    let mut low = 0.0;
    vec![
        ("silence", make(&mut |_, _| 0.0)),
        ("hiss", make(&mut |_, n| n * 0.001)),
        ("white noise", make(&mut |_, n| n * 0.2)),
        (
            "rumble",
            make(&mut |_, n| {
                low = low * 0.98 + n * 0.02;
                low * 1.5
            }),
        ),
        ("hum", make(&mut |t, _| sine(t, 50.0) * 0.3 + sine(t, 150.0) * 0.1)),
        ("tone", make(&mut |t, _| sine(t, 440.0) * 0.4)),
        (
            "chords",
            make(&mut |t, _| {
                let root = [220.0, 174.6, 261.6, 196.0][(t as usize) % 4];
                let swell = 0.5 + 0.5 * sine(t, 2.0);
                (sine(t, root) + sine(t, root * 1.26) + sine(t, root * 1.5)) * 0.15 * swell
            }),
        ),
        (
            "melody",
            make(&mut |t, n| {
                let beat = t * 3.0;
                let hz = melody[beat as usize % melody.len()] * (1.0 + 0.004 * sine(t, 5.5));
                let decay = (-3.0 * beat.fract()).exp();
                let note = (1..6).map(|k| sine(t, hz * k as f32) / k as f32).sum::<f32>();
                note * 0.2 * decay + sine(t, 82.4) * 0.1 + n * 0.02 * decay
            }),
        ),
        ("clicks", make(&mut |t, n| if (t * 4.0).fract() < 0.004 { n * 0.8 } else { 0.0 })),
    ]
}

/// Word errors of a transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Substituted, left out and put in.
    pub wrong: usize,
    /// In truth.
    pub words: usize,
}

impl Errors {
    pub fn rate(self) -> f64 {
        self.wrong as f64 / self.words.max(1) as f64
    }
}

/// Levenshtein distance over words, without case, punctuation and the way small numbers are written.
pub fn word_errors(truth: &str, heard: &str) -> Errors {
    let (truth, heard) = (plain_words(truth), plain_words(heard));
    let mut row: Vec<usize> = (0..=heard.len()).collect();
    for (i, t) in truth.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, h) in heard.iter().enumerate() {
            let substituted = diagonal + usize::from(t != h);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    Errors { wrong: row[heard.len()], words: truth.len() }
}

fn plain_words(text: &str) -> Vec<String> {
    const NUMBERS: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    text.to_lowercase()
        .replace(['\'', '’'], "")
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(|w| match w {
            "mr" => "mister".to_owned(),
            "mrs" => "missus".to_owned(),
            _ => match w.parse::<usize>().ok().and_then(|n| NUMBERS.get(n)) {
                Some(word) => (*word).to_owned(),
                None => w.to_owned(),
            },
        })
        .collect()
}
