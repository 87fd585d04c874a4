//! What each model costs on this machine: its real type on real pictures, sound and text, alone on one thread.
//!
//! Written to the cache folder, where `validate` and `run` find it. Only models whose weights are there are measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actors::Library;
use actors::stages::OCR_SIDE_MEASURED;
use media::{
    Cancel, Clock, FfmpegOpener, Frame, Opener, SAMPLE_RATE_HZ, Sampling, SourceSpec, SystemClock,
    Transport, Unit,
};
use models::cost::{ModelCost, Quantiles, SizeCost, WorkUnit};
use models::llama::{BatchToken, ContextSettings, Decoded, LlamaContext, LlamaModel};
use models::speech::{
    ActivityInput, CHUNK_SAMPLES, Chunk, SpeechDecoder, SpeechEncoder, SpeechInput, Spoken,
    TOKENS_PER_S_MAX, VoiceActivity, VoiceState,
};
use models::vision::{
    Detector, Safety, SceneClassifier, TextCrop, TextDetector, TextRecognizer, TrackerSettings,
};
use models::words::Embedder;
use models::{Catalogue, Interrupt, Model, ModelError};
use serde_json::json;

use super::costs::{Stopwatch, quantiles};
use super::machine::thread_time;
use super::report::Report;
use super::stats::Times;
use super::{BenchArgs, clips_made, synthetic};
use crate::cost::{By, MachineId, Measured, Profile};
use crate::run;

/// Clips whose pictures are looked at.
const CLIPS: usize = 4;
/// Chunks of sound in one ask for voice activity.
const HEARD_CHUNKS: usize = 4;
/// Lengths of utterances, in seconds.
const UTTERANCES_S: [u32; 4] = [1, 2, 4, 8];
/// Utterances of one length that are written down, at least and at most.
const SPOKEN_RUNS: (usize, usize) = (12, 60);
/// Prompt lengths, in tokens.
const PROMPTS: [u32; 3] = [32, 64, 128];
/// Answers that are written side by side.
const ANSWERS: [u32; 3] = [1, 2, 4];
/// As the language engine's process has it.
const UBATCH_TOKENS: u32 = 64;

const TEXTS: [&str; 4] = [
    "The train to Berlin is late because of snow on the line, and passengers are asked to wait in the hall",
    "The striker scored twice in the second half and the crowd went wild",
    "Stir the onions in butter until they are golden, add the stock and let it simmer for twenty minutes",
    "Heavy rain is expected along the coast this evening and tomorrow",
];

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let span = args.seconds.map_or(Duration::from_secs(1), Duration::from_secs);
    tokio::task::spawn_blocking(move || measure(span)).await.map_err(|e| e.to_string())?
}

fn measure(span: Duration) -> Result<Report, String> {
    let catalogue = Arc::new(Catalogue::builtin());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let bench = Bench {
        library: run::library(&catalogue)?,
        clips: clips_made::clips(&catalogue.cache().join("media"))?,
        speech: catalogue.cache().join("media/jfk/jfk.wav"),
        watch: Stopwatch { clock: clock.clone(), span },
        clock,
    };
    let pictures = bench.pictures()?;
    let sound = bench.sound()?;
    let mut measured: Vec<(String, ModelCost)> = Vec::new();
    let names: Vec<String> = catalogue.entries().iter().map(|e| e.name.clone()).collect();
    for name in names {
        let Ok(dir) = catalogue.dir(&name) else { continue };
        tracing::info!(model = name, "measuring");
        let found = bench.model(&name, &dir, &pictures, &sound).map_err(|e| e.to_string())?;
        measured.extend(found);
    }
    let path = crate::cost::profile_path(&catalogue);
    let date = crate::cost::today(&path)?;
    let (mut profile, _) = Profile::read(&path, &MachineId::here());
    profile.keep_known(&catalogue);
    let mut report = Report::new("models");
    for (name, cost) in measured {
        report.tell(&name, figures(&cost));
        let Some(entry) = catalogue.entry_of(&name) else { continue };
        let measured =
            Measured { weights: entry.version(), date: date.clone(), by: By::Bench, cost };
        profile.models.insert(name, measured);
    }
    profile.write(&path)?;
    report.tell("written", path.display().to_string());
    Ok(report)
}

fn figures(cost: &ModelCost) -> serde_json::Value {
    let of = |ms: &Quantiles| json!({ "p50_ms": ms.p50, "p90_ms": ms.p90, "p99_ms": ms.p99 });
    let sizes = cost.sizes.iter().map(|size| (size.size.to_string(), of(&size.ms)));
    json!({
        "unit": cost.unit.one(),
        "size": sizes.collect::<serde_json::Map<_, _>>(),
        "piece": of(&cost.piece_ms),
        "can_be_ended": cost.interruptible,
    })
}

struct Bench {
    library: Arc<Library>,
    clips: Vec<String>,
    speech: PathBuf,
    watch: Stopwatch,
    clock: Arc<dyn Clock>,
}

impl Bench {
    /// Frames of several clips as a live stream's stages are given them.
    fn pictures(&self) -> Result<Vec<Frame>, String> {
        let mut frames = Vec::new();
        for clip in self.clips.iter().take(CLIPS) {
            let sampling = Sampling { fps: 2.0, side_max: 960, ..Sampling::NONE };
            let clip =
                synthetic::frames_of(&spec(Path::new(clip), sampling), self.clock.clone(), 10)?;
            frames.extend(clip.iter().cloned());
        }
        Ok(frames)
    }

    /// Speech, 16 kHz mono.
    fn sound(&self) -> Result<Vec<f32>, String> {
        let sampling = Sampling { audio: true, ..Sampling::NONE };
        let opened =
            FfmpegOpener.open(&spec(&self.speech, sampling), self.clock.clone(), Cancel::new());
        let mut reader = opened.map_err(|e| e.to_string())?;
        let mut pcm = Vec::new();
        while let Some(unit) = reader.next().map_err(|e| e.to_string())? {
            if let Unit::Samples(samples) = unit {
                pcm.extend_from_slice(&samples.pcm);
            }
        }
        let longest = UTTERANCES_S.iter().max().copied().unwrap_or_default() * SAMPLE_RATE_HZ;
        if pcm.len() <= longest as usize {
            return Err(format!("{}: too short; run `make setup`", self.speech.display()));
        }
        Ok(pcm)
    }

    /// A catalogue entry's parts; none of what is no model that a stage asks.
    fn model(
        &self,
        name: &str,
        dir: &Path,
        pictures: &[Frame],
        sound: &[f32],
    ) -> Result<Vec<(String, ModelCost)>, ModelError> {
        let (runtime, watch) = (&self.library.runtime, &self.watch);
        let part = |part: &str| format!("{name}/{part}");
        Ok(match name {
            "ssdlite-300" | "nanodet-416" => {
                let model = Detector::open(runtime, dir, TrackerSettings::default().score_low)?;
                vec![(name.into(), watch.batches(WorkUnit::Frame, model, pictures)?)]
            }
            "efficientnet-lite0" => {
                let model = SceneClassifier::open(runtime, dir, 20)?;
                vec![(name.into(), watch.batches(WorkUnit::Frame, model, pictures)?)]
            }
            "open-nsfw" => {
                let model = Safety::open(runtime, dir)?;
                vec![(name.into(), watch.batches(WorkUnit::Frame, model, pictures)?)]
            }
            "ppocr-v5" => {
                let mut areas = TextDetector::open(runtime, dir, OCR_SIDE_MEASURED)?;
                let mut lines = Vec::new();
                for frame in pictures {
                    for area in areas.run(std::slice::from_ref(frame))?.remove(0) {
                        lines.push(TextCrop { frame: frame.clone(), rect: area.rect });
                    }
                }
                let mut all =
                    vec![(part("detect"), watch.batches(WorkUnit::Frame, areas, pictures)?)];
                if !lines.is_empty() {
                    let reader = TextRecognizer::open(runtime, dir)?;
                    let cost = watch.batches(WorkUnit::Line, reader, &lines)?;
                    all.push((part("recognise"), cost));
                }
                all
            }
            "silero-vad-v6" => {
                let model = VoiceActivity::open(runtime, dir)?;
                vec![(name.into(), watch.batches(WorkUnit::Sound128Ms, model, &heard(sound))?)]
            }
            "moonshine-tiny" => {
                let (encode, decode) = self.speech(dir, sound)?;
                vec![(part("encode"), encode), (part("decode"), decode)]
            }
            "minilm-l6-v2" => {
                let texts = TEXTS.map(str::to_owned);
                let model = Embedder::open(runtime, dir)?;
                vec![(name.into(), watch.batches(WorkUnit::Text, model, &texts)?)]
            }
            "smollm2-135m" => {
                let (prefill, decode) = self.language(&dir.join("smollm2-135m-q8_0.gguf"))?;
                vec![(part("prefill"), prefill), (part("decode"), decode)]
            }
            _ => Vec::new(),
        })
    }

    /// Utterances of several lengths, each from another place; the pieces are what a scheduler sees.
    fn speech(&self, dir: &Path, sound: &[f32]) -> Result<(ModelCost, ModelCost), ModelError> {
        let runtime = &self.library.runtime;
        let mut encoder = SpeechEncoder::open(runtime, dir)?;
        let mut decoder = SpeechDecoder::open(runtime, dir)?;
        let mut encoded = Vec::new();
        let mut decoded = Vec::new();
        let (mut encodings, mut pieces) = (Times::default(), Times::default());
        for seconds in UTTERANCES_S {
            let samples = (seconds * SAMPLE_RATE_HZ) as usize;
            let input = |number: usize| {
                let from = (number * 4_637) % (sound.len() - samples);
                let pcm = sound[from..from + samples].into();
                SpeechInput { pcm, tokens_per_s_max: TOKENS_PER_S_MAX }
            };
            let times = self.watch.times(|number| encoder.run(&[input(number)]).map(drop))?;
            encodings.extend(&times);
            encoded.push(SizeCost { size: seconds, ms: quantiles(&times) });
            let mut whole = Times::default();
            let began = thread_time();
            for number in 0..SPOKEN_RUNS.1 {
                let spent = thread_time().saturating_sub(began);
                if number >= SPOKEN_RUNS.0 && spent > self.watch.span * 2 {
                    break;
                }
                let Some(mut unfinished) = encoder.run(&[input(number)])?.pop() else { continue };
                let mut took = 0.0;
                loop {
                    let from = thread_time();
                    let piece = decoder.run(std::slice::from_ref(&unfinished))?.pop();
                    let ms = thread_time().saturating_sub(from).as_secs_f64() * 1e3;
                    pieces.add(ms);
                    took += ms;
                    match piece {
                        Some(Spoken::More(more)) => unfinished = more,
                        _ => break,
                    }
                }
                whole.add(took);
            }
            decoded.push(SizeCost { size: seconds, ms: quantiles(&whole) });
        }
        let cost = |sizes, pieces: &Times| ModelCost {
            unit: WorkUnit::SoundS,
            interruptible: false,
            piece_ms: quantiles(pieces),
            sizes,
        };
        Ok((cost(encoded, &encodings), cost(decoded, &pieces)))
    }

    /// Prompts of several lengths, and steps of one or more answers; the engine looks at its flag between operators.
    fn language(&self, file: &Path) -> Result<(ModelCost, ModelCost), ModelError> {
        let model = LlamaModel::load(file)?;
        let settings = ContextSettings {
            n_ctx: 2_048,
            n_seq: 8,
            n_batch: 512,
            n_ubatch: UBATCH_TOKENS,
            threads: 1,
            kv_unified: true,
        };
        let mut context = LlamaContext::new(model.clone(), settings)?;
        let words = model.tokenise(&TEXTS.join(". ").repeat(8), false)?;
        let batch = |count: u32, from: u32, seq: u32| -> Vec<BatchToken> {
            let token = |i: u32| BatchToken {
                token: words[(from + i) as usize % words.len()],
                pos: from + i,
                seq,
                logits: i + 1 == count,
            };
            (0..count).map(token).collect()
        };
        let mut prefill = Vec::new();
        for tokens in PROMPTS {
            let times = self.watch.times(|_| {
                context.seq_cut(0, 0);
                done(context.decode(&batch(tokens, 0, 0))?)
            })?;
            prefill.push(SizeCost { size: tokens, ms: quantiles(&times) });
        }
        let mut decode = Vec::new();
        for answers in ANSWERS {
            for seq in 0..answers {
                context.seq_cut(seq, 0);
                context.decode(&batch(96, 0, seq))?;
            }
            let times = self.watch.times(|number| {
                // Answers of 64 tokens: then back to their prompts.
                let at = 96 + number as u32 % 64;
                let step = (0..answers).flat_map(|seq| {
                    context.seq_cut(seq, at);
                    batch(1, at, seq)
                });
                let step: Vec<BatchToken> = step.collect();
                done(context.decode(&step)?)
            })?;
            decode.push(SizeCost { size: answers, ms: quantiles(&times) });
        }
        let flag = Flag(context.abort_flag());
        let whole = prefill.first().map(|size| size.ms.p50).unwrap_or_default();
        let piece_ms = self.watch.ending(whole, &flag, |_| {
            context.seq_cut(0, 0);
            match context.decode(&batch(PROMPTS[0], 0, 0))? {
                Decoded::Aborted => Err(ModelError::Interrupted { name: model.name().to_owned() }),
                other => done(other),
            }
        })?;
        let cost = |unit, sizes| ModelCost { unit, interruptible: true, piece_ms, sizes };
        Ok((cost(WorkUnit::PromptToken, prefill), cost(WorkUnit::GeneratedToken, decode)))
    }
}

struct Flag(Arc<AtomicBool>);

impl Interrupt for Flag {
    fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn done(decoded: Decoded) -> Result<(), ModelError> {
    match decoded {
        Decoded::Done => Ok(()),
        other => Err(ModelError::Run {
            name: "the language model".into(),
            detail: format!("a step was {other:?}"),
        }),
    }
}

/// What voice activity is asked, one ask after the other.
fn heard(sound: &[f32]) -> Vec<ActivityInput> {
    let chunks: Vec<Chunk> =
        sound.chunks_exact(CHUNK_SAMPLES).filter_map(|chunk| chunk.try_into().ok()).collect();
    chunks
        .chunks_exact(HEARD_CHUNKS)
        .map(|chunks| ActivityInput { state: VoiceState::default(), chunks: chunks.to_vec() })
        .collect()
}

fn spec(file: &Path, sampling: Sampling) -> SourceSpec {
    SourceSpec {
        uri: file.display().to_string(),
        transport: Transport::Tcp,
        open_timeout: Duration::from_secs(10),
        read_timeout: Duration::from_secs(10),
        sampling,
    }
}
