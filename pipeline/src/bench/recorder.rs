//! Notes what a graph asks its models, clip by clip, so that the very same work can be done without the graph.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use actors::{Ask, AskText, Asked, AskedText, Meaning, ModelSet, TextSpec};
use engine::language::{Parts, SummaryAnswer, TextInputs};
use engine::{JobEnd, Ticket};
use futures_util::future::BoxFuture;
use media::result::MissingReason;
use media::{Frame, StreamId, Understanding};
use models::ModelError;
use models::speech::{ActivityInput, SpeechInput};
use models::vision::TextCrop;

/// All that the models were asked about one clip.
#[derive(Clone, Default)]
pub(super) struct Work {
    pub(super) objects: Vec<Frame>,
    pub(super) scenes: Vec<Frame>,
    pub(super) safety: Vec<Frame>,
    pub(super) areas: Vec<Frame>,
    pub(super) lines: Vec<TextCrop>,
    pub(super) activity: Vec<ActivityInput>,
    pub(super) speech: Vec<SpeechInput>,
    pub(super) meanings: Vec<(TextInputs, Arc<TextSpec>)>,
    pub(super) summaries: Vec<(TextInputs, Arc<TextSpec>)>,
}

/// Per clip; none when nothing is noted any more.
#[derive(Clone)]
pub(super) struct Log(Arc<Mutex<Option<BTreeMap<StreamId, Work>>>>);

/// Names under which the graph asks.
pub(super) struct Names {
    pub(super) objects: String,
    pub(super) scenes: String,
    pub(super) safety: String,
    pub(super) screen: String,
    pub(super) speech: String,
    pub(super) text: String,
}

impl Log {
    /// Puts a recorder before each of the models.
    ///
    /// # Errors
    /// When one of the names has no model.
    pub(super) fn wrap(models: &mut ModelSet, names: &Names) -> Result<Log, ModelError> {
        let log = Log(Arc::new(Mutex::new(Some(BTreeMap::new()))));
        let objects = log.before(models.detector(&names.objects)?, |work| &mut work.objects);
        models.insert_detector(&names.objects, objects);
        let scenes = log.before(models.classifier(&names.scenes)?, |work| &mut work.scenes);
        models.insert_classifier(&names.scenes, scenes);
        let safety = log.before(models.safety(&names.safety)?, |work| &mut work.safety);
        models.insert_safety(&names.safety, safety);
        let (areas, lines) = models.reader(&names.screen)?;
        let areas = log.before(areas, |work| &mut work.areas);
        models.insert_reader(&names.screen, areas, log.before(lines, |work| &mut work.lines));
        let (activity, speech) = models.listener(&names.speech)?;
        let activity = log.before(activity, |work| &mut work.activity);
        let speech = log.before(speech, |work| &mut work.speech);
        models.insert_listener(&names.speech, activity, speech);
        let text = TextRecorder { inner: models.text(&names.text)?, log: log.clone() };
        models.insert_text(&names.text, Arc::new(text));
        Ok(log)
    }

    /// What was noted; from now on nothing is.
    pub(super) fn take(&self) -> BTreeMap<StreamId, Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    fn before<I: Clone + Send + 'static, O: 'static>(
        &self,
        inner: Asked<I, O>,
        place: fn(&mut Work) -> &mut Vec<I>,
    ) -> Asked<I, O> {
        Arc::new(Recorder { inner, log: self.clone(), place })
    }

    fn note<I>(&self, stream: &StreamId, place: fn(&mut Work) -> &mut Vec<I>, input: I) {
        if let Some(works) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            place(works.entry(stream.clone()).or_default()).push(input);
        }
    }
}

struct Recorder<I, O> {
    inner: Asked<I, O>,
    log: Log,
    place: fn(&mut Work) -> &mut Vec<I>,
}

impl<I: Clone + Send + 'static, O: 'static> Ask<I, O> for Recorder<I, O> {
    fn ask(&self, ticket: Ticket, input: I) -> BoxFuture<'static, JobEnd<O>> {
        self.log.note(&ticket.stream, self.place, input.clone());
        self.inner.ask(ticket, input)
    }
}

struct TextRecorder {
    inner: AskedText,
    log: Log,
}

impl AskText for TextRecorder {
    fn meaning(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<TextSpec>,
    ) -> BoxFuture<'static, Result<Meaning, MissingReason>> {
        let asked = (inputs.clone(), spec.clone());
        self.log.note(&ticket.stream, |work| &mut work.meanings, asked);
        self.inner.meaning(ticket, inputs, spec)
    }

    fn summary(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<TextSpec>,
    ) -> BoxFuture<'static, Result<Option<SummaryAnswer>, MissingReason>> {
        let asked = (inputs.clone(), spec.clone());
        self.log.note(&ticket.stream, |work| &mut work.summaries, asked);
        self.inner.summary(ticket, inputs, spec)
    }

    fn prepare(&self, spec: Arc<TextSpec>) -> BoxFuture<'static, ()> {
        self.inner.prepare(spec)
    }

    fn assemble(&self, inputs: &TextInputs, spec: &TextSpec, parts: Parts) -> Understanding {
        self.inner.assemble(inputs, spec, parts)
    }

    fn knows(&self, language: &str) -> bool {
        self.inner.knows(language)
    }
}
