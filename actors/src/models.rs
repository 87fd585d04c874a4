//! The models that a graph needs, loaded once and shared by all streams.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ::models::speech::{
    ActivityInput, ActivityOutput, SpeechDecoder, SpeechEncoder, SpeechInput, Spoken, Transcript,
    VoiceActivity,
};
use ::models::vision::{
    Detector, ReadText, Safety, SceneClassifier, TextArea, TextCrop, TextDetector, TextRecognizer,
    TrackerSettings,
};
use ::models::{Model, ModelError, Runtime};
use engine::compute::{Compute, ModelHandle};
use engine::{Class, JobEnd, Ticket};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use media::{Detection, Frame, Scored};

use crate::ask::{Ask, Asked};
use crate::plan::GraphPlan;
use crate::stages::Settings;
use crate::text::AskedText;

/// From a catalogue name to a verified folder.
pub type FindWeights = dyn Fn(&str) -> Result<PathBuf, ModelError> + Send + Sync;

/// Where weights are found and what runs them.
pub struct Library {
    /// The loaded ONNX Runtime.
    pub runtime: Runtime,
    /// Finds the folder of a model.
    pub dir: Box<FindWeights>,
}

/// Finds where text is.
pub type AskRegions = Asked<Frame, Vec<TextArea>>;
/// Reads one line.
pub type AskReading = Asked<TextCrop, ReadText>;
/// Hears whether somebody speaks.
pub type AskActivity = Asked<ActivityInput, ActivityOutput>;
/// Writes down what is said.
pub type AskTranscriber = Asked<SpeechInput, Transcript>;

/// Loaded models by catalogue name.
#[derive(Default)]
pub struct ModelSet {
    detectors: BTreeMap<String, Asked<Frame, Vec<Detection>>>,
    classifiers: BTreeMap<String, Asked<Frame, Vec<Scored>>>,
    safety: BTreeMap<String, Asked<Frame, f32>>,
    readers: BTreeMap<String, (AskRegions, AskReading)>,
    listeners: BTreeMap<String, (AskActivity, AskTranscriber)>,
    texts: BTreeMap<String, AskedText>,
}

/// Scene groups answered; each stage reports as many of them as it was told to.
const SCENES_TOP: usize = 20;
/// Instances of a model that are loaded before the first job; more, up to one a lane, when lanes first run it side
/// by side, which then waits for the load.
pub const INSTANCES_READY: usize = 4;
pub(crate) const VOICE_ACTIVITY: &str = "silero-vad-v6";

impl ModelSet {
    /// Catalogue names of the weights that [`ModelSet::load`] will want.
    pub fn weights(graph: &GraphPlan) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for stage in &graph.stages {
            let name = match &stage.settings {
                Settings::Detect(s) => &s.model,
                Settings::Scene(s) => &s.model,
                Settings::Safety(s) => &s.model,
                Settings::Ocr(s) => &s.model,
                Settings::Transcribe(s) => {
                    names.insert(VOICE_ACTIVITY.to_owned());
                    &s.model
                }
                _ => continue,
            };
            names.insert(name.clone());
        }
        names
    }

    /// Loads what `graph` names. `texts` are the language models by the name its stages use.
    ///
    /// # Errors
    /// The first model that can't be loaded.
    pub fn load(
        graph: &GraphPlan,
        library: &Arc<Library>,
        compute: &Compute,
        texts: BTreeMap<String, AskedText>,
    ) -> Result<ModelSet, ModelError> {
        let mut set = ModelSet { texts, ..ModelSet::default() };
        for stage in &graph.stages {
            let class = stage.class;
            let loader = Loader { library, compute, class };
            match &stage.settings {
                Settings::Detect(s) if !set.detectors.contains_key(&s.model) => {
                    // Weak detections carry a track through an occlusion; the stage leaves them out of its answer.
                    let score_min = if s.track {
                        s.score_min.min(TrackerSettings::default().score_low)
                    } else {
                        s.score_min
                    };
                    let model = loader.load(&s.model, move |runtime, dir| {
                        Detector::open(runtime, dir, score_min)
                    })?;
                    set.detectors.insert(s.model.clone(), Arc::new(model));
                }
                Settings::Scene(s) if !set.classifiers.contains_key(&s.model) => {
                    let model = loader.load(&s.model, |runtime, dir| {
                        SceneClassifier::open(runtime, dir, SCENES_TOP)
                    })?;
                    set.classifiers.insert(s.model.clone(), Arc::new(model));
                }
                Settings::Safety(s) if !set.safety.contains_key(&s.model) => {
                    let model = loader.load(&s.model, Safety::open)?;
                    set.safety.insert(s.model.clone(), Arc::new(model));
                }
                Settings::Ocr(s) if !set.readers.contains_key(&s.model) => {
                    let side_max = s.side_max;
                    let regions = loader.load_as(&s.model, "detect", move |runtime, dir| {
                        TextDetector::open(runtime, dir, side_max)
                    })?;
                    let reading = loader.load_as(&s.model, "recognise", TextRecognizer::open)?;
                    set.readers.insert(s.model.clone(), (Arc::new(regions), Arc::new(reading)));
                }
                Settings::Transcribe(s) if !set.listeners.contains_key(&s.model) => {
                    let audio = Loader { class: Class::Audio, ..loader };
                    let activity = audio.load(VOICE_ACTIVITY, VoiceActivity::open)?;
                    let transcriber = PieceByPiece {
                        encoder: loader.load_as(&s.model, "encode", SpeechEncoder::open)?,
                        decoder: loader.load_as(&s.model, "decode", SpeechDecoder::open)?,
                    };
                    set.listeners
                        .insert(s.model.clone(), (Arc::new(activity), Arc::new(transcriber)));
                }
                _ => {}
            }
        }
        Ok(set)
    }

    /// The model that `detect` stages ask under this name.
    ///
    /// # Errors
    /// `Unknown`, as with all of these.
    pub fn detector(&self, name: &str) -> Result<Asked<Frame, Vec<Detection>>, ModelError> {
        get(&self.detectors, name)
    }

    /// The model that `scene` stages ask.
    ///
    /// # Errors
    /// `Unknown`
    pub fn classifier(&self, name: &str) -> Result<Asked<Frame, Vec<Scored>>, ModelError> {
        get(&self.classifiers, name)
    }

    /// The model that `safety` stages ask.
    ///
    /// # Errors
    /// `Unknown`
    pub fn safety(&self, name: &str) -> Result<Asked<Frame, f32>, ModelError> {
        get(&self.safety, name)
    }

    /// The models that `ocr` stages ask.
    ///
    /// # Errors
    /// `Unknown`
    pub fn reader(&self, name: &str) -> Result<(AskRegions, AskReading), ModelError> {
        get(&self.readers, name)
    }

    /// The models that `transcribe` stages ask.
    ///
    /// # Errors
    /// `Unknown`
    pub fn listener(&self, name: &str) -> Result<(AskActivity, AskTranscriber), ModelError> {
        get(&self.listeners, name)
    }

    /// The model that `understand` stages ask.
    ///
    /// # Errors
    /// `Unknown`
    pub fn text(&self, name: &str) -> Result<AskedText, ModelError> {
        get(&self.texts, name)
    }
}

/// For embedding programs: a model of one's own (or a wrapper around a loaded one) under the name that stages
/// use. It takes the place of one that has the name already.
impl ModelSet {
    /// What `detect` stages ask.
    pub fn insert_detector(&mut self, name: &str, model: Asked<Frame, Vec<Detection>>) {
        self.detectors.insert(name.to_owned(), model);
    }

    /// What `scene` stages ask.
    pub fn insert_classifier(&mut self, name: &str, model: Asked<Frame, Vec<Scored>>) {
        self.classifiers.insert(name.to_owned(), model);
    }

    /// What `safety` stages ask.
    pub fn insert_safety(&mut self, name: &str, model: Asked<Frame, f32>) {
        self.safety.insert(name.to_owned(), model);
    }

    /// What `ocr` stages ask.
    pub fn insert_reader(&mut self, name: &str, regions: AskRegions, reading: AskReading) {
        self.readers.insert(name.to_owned(), (regions, reading));
    }

    /// What `transcribe` stages ask.
    pub fn insert_listener(&mut self, name: &str, activity: AskActivity, speech: AskTranscriber) {
        self.listeners.insert(name.to_owned(), (activity, speech));
    }

    /// What `understand` stages ask.
    pub fn insert_text(&mut self, name: &str, model: AskedText) {
        self.texts.insert(name.to_owned(), model);
    }
}

fn get<T: Clone>(models: &BTreeMap<String, T>, name: &str) -> Result<T, ModelError> {
    models.get(name).cloned().ok_or_else(|| ModelError::Unknown {
        name: name.to_owned(),
        known: models.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
    })
}

#[derive(Clone, Copy)]
struct Loader<'a> {
    library: &'a Arc<Library>,
    compute: &'a Compute,
    class: Class,
}

impl Loader<'_> {
    fn load<M: Model>(
        self,
        name: &str,
        open: impl Fn(&Runtime, &std::path::Path) -> Result<M, ModelError> + Send + Sync + 'static,
    ) -> Result<ModelHandle<M>, ModelError> {
        self.register(name, name.to_owned(), open)
    }

    fn load_as<M: Model>(
        self,
        name: &str,
        part: &str,
        open: impl Fn(&Runtime, &std::path::Path) -> Result<M, ModelError> + Send + Sync + 'static,
    ) -> Result<ModelHandle<M>, ModelError> {
        self.register(name, format!("{name}/{part}"), open)
    }

    fn register<M: Model>(
        self,
        name: &str,
        registered: String,
        open: impl Fn(&Runtime, &std::path::Path) -> Result<M, ModelError> + Send + Sync + 'static,
    ) -> Result<ModelHandle<M>, ModelError> {
        let dir = (self.library.dir)(name)?;
        let library = self.library.clone();
        let model =
            self.compute.register(&registered, self.class, move || open(&library.runtime, &dir))?;
        model.prepare(self.compute.stats().lanes.min(INSTANCES_READY))?;
        Ok(model)
    }
}

impl<M: Model> Ask<M::Input, M::Output> for ModelHandle<M> {
    fn ask(&self, ticket: Ticket, input: M::Input) -> BoxFuture<'static, JobEnd<M::Output>> {
        let model = self.clone();
        async move { model.run(ticket, input).await }.boxed()
    }
}

/// Transcription as a chain of short jobs: text and others get their turn between any two.
#[derive(Clone)]
struct PieceByPiece {
    encoder: ModelHandle<SpeechEncoder>,
    decoder: ModelHandle<SpeechDecoder>,
}

impl PieceByPiece {
    async fn transcribe(self, ticket: Ticket, input: SpeechInput) -> JobEnd<Transcript> {
        let first = match self.encoder.run(ticket.clone(), input).await.answered() {
            Ok(first) => first,
            Err(end) => return end,
        };
        let (mut queue, mut compute) = (first.queue, first.compute);
        let mut unfinished = first.output;
        loop {
            let piece = match self.decoder.run(ticket.clone(), unfinished).await.answered() {
                Ok(piece) => piece,
                Err(end) => return end,
            };
            queue += piece.queue;
            compute += piece.compute;
            match piece.output {
                Spoken::More(more) => unfinished = more,
                Spoken::Whole(output) => {
                    return JobEnd::Done { output, queue, compute, batch: piece.batch };
                }
            }
        }
    }
}

impl Ask<SpeechInput, Transcript> for PieceByPiece {
    fn ask(&self, ticket: Ticket, input: SpeechInput) -> BoxFuture<'static, JobEnd<Transcript>> {
        self.clone().transcribe(ticket, input).boxed()
    }
}
