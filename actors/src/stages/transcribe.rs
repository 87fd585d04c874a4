//! `transcribe`: what is said

use std::sync::Arc;

use ::models::speech::{
    ActivityInput, CHUNK_US, Chunk, Chunker, LanguageTracker, Segmenter, SegmenterSettings,
    SpeechEvent, SpeechInput, TOKENS_PER_S_MAX, Utterance, VoiceState,
};
use engine::{Class, JobEnd};
use media::result::MissingReason;
use media::{Mono, Observation, Pts, Samples, SpeechSegment};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::models::{AskActivity, AskTranscriber};
use crate::port::{Mark, Packet, Payload};
use crate::stage::{Next, StageIo, StageLogic, Tally, upstream};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "transcribe",
    about: "what is said",
    inputs: &[PortType::Audio],
    many: false,
    output: PortType::Speech,
    class: Class::TextInput,
    schema: schema_of::<TranscribeSettings>,
    parse: |value| parse(value, Settings::Transcribe),
};

/// Settings of `transcribe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TranscribeSettings {
    /// Catalogue name.
    pub model: String,
    /// An utterance is cut at the next pause after this long, and at one and a half times it without one.
    #[schemars(range(min = 1_000, max = 20_000))]
    pub utterance_ms_max: u64,
    /// Silence that ends an utterance.
    #[schemars(range(min = 100, max = 3_000))]
    pub pause_ms: u64,
    /// Whether a running utterance is reported at each window's end with `final: false`.
    pub partials: bool,
}

impl Default for TranscribeSettings {
    fn default() -> Self {
        TranscribeSettings {
            model: "moonshine-tiny".into(),
            utterance_ms_max: 7_000,
            pause_ms: 400,
            partials: true,
        }
    }
}

/// What the catalogue's speech models know.
const LANGUAGE: &str = "en";
/// Chunks gathered before voice activity is asked, unless a window ends: 128 ms of sound for one lease.
const GATHERED: usize = 4;
/// Seconds of sound of one ask for voice activity.
pub(super) const GATHERED_S: f64 = GATHERED as f64 * CHUNK_US as f64 / 1e6;

/// Listening: finds utterances and writes down what is said in them.
pub(crate) struct TranscribeLogic {
    partials: bool,
    activity: AskActivity,
    transcriber: AskTranscriber,
    chunker: Chunker,
    gathered: Vec<(Pts, Chunk)>,
    /// Window and deadline of the newest samples.
    at: (u64, Option<Mono>),
    voice: VoiceState,
    segmenter: Segmenter,
    language: LanguageTracker,
    tally: Tally,
}

impl TranscribeLogic {
    pub(crate) fn new(
        settings: &TranscribeSettings,
        language: Option<String>,
        activity: AskActivity,
        transcriber: AskTranscriber,
    ) -> Self {
        TranscribeLogic {
            partials: settings.partials,
            activity,
            transcriber,
            chunker: Chunker::new(),
            gathered: Vec::new(),
            at: (0, None),
            voice: VoiceState::default(),
            segmenter: Segmenter::new(SegmenterSettings {
                utterance_ms_max: settings.utterance_ms_max,
                pause_ms: settings.pause_ms,
            }),
            language: LanguageTracker::new(LANGUAGE, language.as_deref()),
            tally: Tally::default(),
        }
    }

    fn gather(&mut self, packet: Packet) {
        let Payload::Samples(Samples { pts, pcm, .. }) = packet.payload else { return };
        self.at = (packet.window, packet.deadline);
        self.gathered.extend(self.chunker.push(pts, &pcm));
    }

    /// Runs voice activity over what was gathered, and transcribes what ended in it.
    async fn listen(&mut self, io: &StageIo) {
        if self.gathered.is_empty() {
            return;
        }
        let gathered = std::mem::take(&mut self.gathered);
        let input = ActivityInput {
            state: self.voice.clone(),
            chunks: gathered.iter().map(|(_, chunk)| *chunk).collect(),
        };
        // Voice activity is a fraction of a millisecond, and without it the next answer is worth nothing:
        // it is not shed.
        let end = self.activity.ask(io.ticket(None), input).await;
        let speech = match end {
            JobEnd::Done { output, .. } => {
                self.voice = output.state;
                output.speech
            }
            other => {
                self.tally.take(other);
                vec![0.0; gathered.len()]
            }
        };
        for ((pts, chunk), probability) in gathered.into_iter().zip(speech) {
            for event in self.segmenter.push(pts, &chunk, probability) {
                if let SpeechEvent::Closed(utterance) = event {
                    self.write_down(io, utterance).await;
                }
            }
        }
    }

    /// Nothing follows: what is still running is closed.
    async fn close(&mut self, io: &StageIo) {
        if let Some(SpeechEvent::Closed(utterance)) = self.segmenter.end() {
            self.write_down(io, utterance).await;
        }
    }

    /// Transcribes a closed utterance; it belongs to the window in which it was closed.
    async fn write_down(&mut self, io: &StageIo, utterance: Utterance) {
        let (window, deadline) = self.at;
        let Utterance { number, start, end, pcm, .. } = utterance;
        if let Some(segment) = self.ask(io, deadline, number, start, end, pcm, true).await {
            io.emit(window, deadline, Observation::Speech(segment));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one utterance, closed or running")]
    async fn ask(
        &mut self,
        io: &StageIo,
        deadline: Option<Mono>,
        number: u64,
        start: Pts,
        end: Pts,
        pcm: Arc<[f32]>,
        is_final: bool,
    ) -> Option<SpeechSegment> {
        let asked = self
            .transcriber
            .ask(io.ticket(deadline), SpeechInput { pcm, tokens_per_s_max: TOKENS_PER_S_MAX })
            .await;
        let transcript = self.tally.take(asked)?;
        let verdict = if is_final {
            self.language.observe(&transcript)
        } else {
            self.language.judge(&transcript)
        };
        if !verdict.supported {
            // The beginning of an utterance tells too little to be held against it.
            if is_final {
                self.tally.miss_always(MissingReason::UnsupportedLanguage);
            }
            return None;
        }
        if transcript.text.is_empty() {
            return None;
        }
        Some(SpeechSegment {
            utterance: number,
            text: transcript.text,
            start_ms: start.ms(),
            end_ms: end.ms(),
            is_final,
            language: verdict.language.unwrap_or_else(|| "und".to_owned()),
            confidence: transcript.confidence,
        })
    }

    async fn mark(&mut self, io: &StageIo, mark: Mark) {
        self.listen(io).await;
        self.at = (mark.window, mark.deadline);
        if mark.last {
            self.close(io).await;
        } else if self.partials
            && mark.deadline.is_some()
            && let Some(running) = self.segmenter.running()
        {
            let (number, start, end) = (running.number, running.start, running.end);
            let pcm: Arc<[f32]> = running.pcm.into();
            if let Some(segment) = self.ask(io, mark.deadline, number, start, end, pcm, false).await
            {
                io.emit(mark.window, mark.deadline, Observation::Speech(segment));
            }
        }
        let mut tally = std::mem::take(&mut self.tally);
        if io.take_dropped(mark.window) > 0 {
            tally.miss_always(MissingReason::Dropped);
        }
        let outcome = upstream(&mark).and(tally.outcome());
        io.answer(&mark, outcome, tally.timing(&io.seat.stage));
    }
}

impl StageLogic for TranscribeLogic {
    async fn run(&mut self, io: &StageIo) {
        loop {
            io.room().await;
            match io.next() {
                Some(Next::Packet(packet)) => {
                    self.gather(packet);
                    if self.gathered.len() >= GATHERED {
                        self.listen(io).await;
                    }
                }
                Some(Next::Mark(mark)) => self.mark(io, mark).await,
                Some(Next::End) => {
                    self.listen(io).await;
                    self.close(io).await;
                }
                None => return,
            }
        }
    }
}
