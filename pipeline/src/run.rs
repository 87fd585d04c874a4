//! Starts what a plan describes, carries results to the output, and ends when its inputs or the user do.
//!
//! One rule: everything that was started here is stopped here, in the opposite order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use actors::fusion::{Alerts, Taxonomy};
use actors::hub::Hub;
use actors::plan::GraphPlan;
use actors::stages::Settings;
use actors::{
    AskedText, Board, Deps, INSTANCES_READY, Library, ModelSet, ResultSink, System, TextModel,
    TextSpec,
};
use bytes::Bytes;
use engine::compute::{Compute, ComputeConfig};
use engine::language::{
    ChildArgs, EmbeddedBackend, EmbeddedConfig, Health, LanguageBackend, LeasedBackend, TextLane,
    Understander,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use media::result::{FusedResult, StreamMessage, StreamState};
use media::{Clock, FfmpegOpener, Opener, StreamId, SystemClock};
use metrics_exporter_prometheus::PrometheusHandle;
use models::words::Embedder;
use models::{Catalogue, Runtime};

use crate::cost::{self, Costs};
use crate::graph;
use crate::inputs::Clip;
use crate::launch::Launch;
use crate::output::{Output, OutputSender};
use crate::plan::{BackendPlan, ComputePlan, ModelPlan, Plan};
use crate::server::language::{self, LanguageApi, Served};
use crate::server::{Server, ServerState, StreamList, StreamView};
use crate::show;
use crate::summary::Summary;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All well.
    Well,
    /// At least one stream failed.
    StreamsFailed,
}

/// Time that a stop may take before what is left is cut off.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Idle time after which a language engine that saves power lets go of what it keeps.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Stream of requests that come over HTTP, for fairness among equals.
const OTHER_PROGRAMS: &str = "http";
const RUNTIME: &str = "onnxruntime";
pub(crate) const EMBEDDER: &str = "minilm-l6-v2";

/// The parts of a running pipeline that outlive its streams.
pub struct Rooms {
    /// Where time is read.
    pub clock: Arc<dyn Clock>,
    /// Lanes.
    pub compute: Compute,
    /// Loaded models.
    pub models: ModelSet,
    /// Opens sources.
    pub opener: Arc<dyn Opener>,
    /// Renders metrics.
    pub metrics: PrometheusHandle,
    /// Where weights are and what runs them; none when nothing was loaded.
    pub(crate) library: Option<Arc<Library>>,
    pub(crate) backends: Vec<Arc<dyn LanguageBackend>>,
    /// The same by the names that stages use.
    pub(crate) served: Vec<Served>,
    /// What each text model will be asked, to be prepared for.
    questions: Vec<(AskedText, Arc<TextSpec>)>,
}

impl Rooms {
    /// Loads everything the plan names. Blocks while weights are read.
    ///
    /// # Errors
    /// One sentence: what can't be had, and what to do.
    pub async fn open(plan: &Plan) -> Result<Self, String> {
        let catalogue = Arc::new(Catalogue::builtin());
        let all_there = {
            let (catalogue, names) = (catalogue.clone(), weights_of(plan));
            move || all_there(&catalogue, &names)
        };
        tokio::task::spawn_blocking(all_there).await.map_err(|e| e.to_string())??;
        let Rooms { clock, compute, opener, metrics, .. } = Self::unfurnished(&plan.compute)?;
        let library = {
            let catalogue = catalogue.clone();
            tokio::task::spawn_blocking(move || library(&catalogue))
                .await
                .map_err(|e| e.to_string())??
        };
        let mut backends: Vec<Arc<dyn LanguageBackend>> = Vec::new();
        let mut served = Vec::new();
        let mut texts: BTreeMap<String, AskedText> = BTreeMap::new();
        for (name, model) in text_models(plan) {
            let backend = backend(&catalogue, &model, plan.compute.saves_power)?;
            backends.push(backend.clone());
            let embedder = embedder(plan, &library, &compute)?;
            let lane = TextLane::new(compute.clone(), backend.clone(), clock.clone());
            // Other programs' requests take the lane that the streams' texts take, and wait for it.
            let leased = LeasedBackend::new(
                backend.clone(),
                lane.clone(),
                OTHER_PROGRAMS.into(),
                clock.clone(),
            );
            served.push(Served { name: name.clone(), backend: Arc::new(leased) });
            let understander = Understander::new(backend);
            let languages = vec!["en".to_owned()];
            let text = TextModel::new(understander, Some(lane), embedder, clock.clone(), languages);
            texts.insert(name, Arc::new(text));
        }
        let questions = plan
            .graph
            .stages
            .iter()
            .filter_map(|stage| match &stage.settings {
                Settings::Understand(s) => {
                    texts.get(&s.model).map(|text| (text.clone(), Arc::new(s.spec())))
                }
                _ => None,
            })
            .collect();
        let models = {
            let (graph, compute, library) = (plan.graph.clone(), compute.clone(), library.clone());
            tokio::task::spawn_blocking(move || ModelSet::load(&graph, &library, &compute, texts))
                .await
                .map_err(|e| e.to_string())?
                .map_err(|e| e.to_string())?
        };
        let library = Some(library);
        Ok(Rooms { clock, compute, models, opener, metrics, library, backends, served, questions })
    }

    /// Lanes, and no models: for programs that bring their own.
    ///
    /// # Errors
    /// When lanes or metrics can't be had.
    pub fn unfurnished(plan: &ComputePlan) -> Result<Self, String> {
        let metrics = recorder()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let compute = Compute::start(compute_config(plan), clock.clone())
            .map_err(|e| format!("compute: {e}"))?;
        Ok(Rooms {
            clock,
            compute,
            models: ModelSet::default(),
            opener: Arc::new(FfmpegOpener),
            metrics,
            library: None,
            backends: Vec::new(),
            served: Vec::new(),
            questions: Vec::new(),
        })
    }

    /// Waits until every language backend can take work, at most `limit`.
    pub async fn ready(&self, limit: Duration) {
        let all = async {
            while self.backends.iter().any(|b| b.health() == Health::Loading) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // One that never comes up is no reason to answer nothing: its windows go out without text.
        let prepared = async {
            all.await;
            for (text, spec) in &self.questions {
                text.prepare(spec.clone()).await;
            }
        };
        let _ = tokio::time::timeout(limit, prepared).await;
    }
}

/// Metrics are the process's, however many rooms are opened one after the other.
pub(crate) fn recorder() -> Result<PrometheusHandle, String> {
    static RECORDER: OnceLock<Result<PrometheusHandle, String>> = OnceLock::new();
    let install = || {
        let builder = metrics_exporter_prometheus::PrometheusBuilder::new();
        let recorder = language::buckets(builder)
            .and_then(metrics_exporter_prometheus::PrometheusBuilder::install_recorder)
            .map_err(|e| format!("metrics: {e}"))?;
        engine::events::describe();
        language::describe();
        Ok(recorder)
    };
    RECORDER.get_or_init(install).clone()
}

fn compute_config(plan: &ComputePlan) -> ComputeConfig {
    let mut config = ComputeConfig::for_lanes(plan.lanes_here());
    let scheduler = &mut config.scheduler;
    scheduler.shares = plan.shares.clone();
    scheduler.order = plan.order.clone();
    scheduler.wait_max = plan.wait_max;
    scheduler.text_lane = plan.text_lane;
    scheduler.foreign_piece_max = plan.foreign_piece_max;
    scheduler.preempt = plan.preempt;
    config
}

/// Catalogue names of all that the plan will load.
fn weights_of(plan: &Plan) -> BTreeSet<String> {
    let mut names = ModelSet::weights(&plan.graph);
    names.insert(RUNTIME.to_owned());
    names.extend(wants_embedder(plan).then(|| EMBEDDER.to_owned()));
    for model in text_models(plan).into_values() {
        for BackendPlan::Embedded { model } in model.backends {
            names.extend((!model.ends_with(".gguf")).then_some(model));
        }
    }
    names
}

/// Everything that is not in the cache, or not as it should be, is named at once.
pub(crate) fn all_there(catalogue: &Catalogue, names: &BTreeSet<String>) -> Result<(), String> {
    let errors: Vec<(&str, String)> = names
        .iter()
        .filter_map(|name| Some((name.as_str(), catalogue.dir(name).err()?.to_string())))
        .collect();
    match &errors[..] {
        [] => Ok(()),
        [(_, error)] => Err(error.clone()),
        many => {
            let names: Vec<&str> = many.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            Err(format!(
                "weights are missing or damaged ({names}): run `pipeline models pull`, and `pipeline models \
                 verify` for details"
            ))
        }
    }
}

pub(crate) fn library(catalogue: &Arc<Catalogue>) -> Result<Arc<Library>, String> {
    let runtime = catalogue.dir(RUNTIME).map_err(|e| e.to_string())?;
    let runtime = Runtime::open(&runtime.join("libonnxruntime.so")).map_err(|e| e.to_string())?;
    let catalogue = catalogue.clone();
    Ok(Arc::new(Library { runtime, dir: Box::new(move |name| catalogue.dir(name)) }))
}

/// Language models that the graph's stages use, by the name they use.
fn text_models(plan: &Plan) -> BTreeMap<String, ModelPlan> {
    let mut models = BTreeMap::new();
    for stage in &plan.graph.stages {
        if let Settings::Understand(settings) = &stage.settings {
            let model = plan.models.get(&settings.model).cloned().unwrap_or_else(|| ModelPlan {
                backends: vec![BackendPlan::Embedded { model: settings.model.clone() }],
            });
            models.insert(settings.model.clone(), model);
        }
    }
    models
}

fn backend(
    catalogue: &Catalogue,
    plan: &ModelPlan,
    saves_power: bool,
) -> Result<Arc<dyn LanguageBackend>, String> {
    let Some(BackendPlan::Embedded { model }) = plan.backends.first() else {
        return Err("a language model without a backend".into());
    };
    let (name, file) = weights(catalogue, model)?;
    let config = embedded(ChildArgs::new(file), name)?;
    let idle_max = saves_power.then_some(IDLE_MAX);
    Ok(Arc::new(EmbeddedBackend::start(EmbeddedConfig { idle_max, ..config })))
}

/// How this program runs a language engine beside itself.
pub(crate) fn embedded(child: ChildArgs, model: String) -> Result<EmbeddedConfig, String> {
    let program = std::env::current_exe().map_err(|e| format!("this program's file: {e}"))?;
    Ok(EmbeddedConfig::new(program, vec!["language-engine".into()], child, model))
}

/// A catalogue name, or the path of a GGUF file of the user's own.
pub(crate) fn weights(catalogue: &Catalogue, model: &str) -> Result<(String, PathBuf), String> {
    if model.ends_with(".gguf") {
        let path = PathBuf::from(model);
        let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        return Ok((name, path));
    }
    let dir = catalogue.dir(model).map_err(|e| e.to_string())?;
    let entry = catalogue.entry(model).map_err(|e| e.to_string())?;
    let file = entry
        .files
        .iter()
        .find(|file| file.name.ends_with(".gguf"))
        .ok_or_else(|| format!("model `{model}` is no language model"))?;
    Ok((model.to_owned(), dir.join(&file.name)))
}

/// What others see of a run; there before anything is loaded.
#[derive(Clone)]
pub struct Front {
    /// Where results are published.
    pub hub: Hub,
    /// What is known of every stream.
    pub board: Arc<Board>,
}

impl Default for Front {
    fn default() -> Self {
        let run: Arc<str> = Arc::from(uuid::Uuid::now_v7().to_string());
        Front { hub: Hub::new(run), board: Arc::default() }
    }
}

/// Starts the actors over `rooms`; streams are added afterwards.
///
/// # Errors
/// A rule that does not compile, or no root.
pub async fn start(
    graph: GraphPlan,
    rooms: Rooms,
    sink: Option<Arc<dyn ResultSink>>,
    front: &Front,
) -> Result<System, String> {
    let rules = graph.fuse_settings().map(|fuse| fuse.alerts.clone()).unwrap_or_default();
    let alerts = Alerts::compile(&rules)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let taxonomy = Taxonomy::builtin().map_err(|e| e.to_string())?;
    let files_at_once = rooms.compute.stats().lanes + 1;
    let deps = Deps {
        clock: rooms.clock,
        opener: rooms.opener,
        compute: rooms.compute,
        models: rooms.models,
        hub: front.hub.clone(),
        sink,
        board: front.board.clone(),
        taxonomy: Arc::new(taxonomy),
        alerts: Arc::new(alerts),
        files_at_once,
    };
    System::start(graph, deps).await.map_err(|e| e.to_string())
}

/// Runs until the inputs end or a signal comes.
///
/// # Errors
/// One sentence: what can't be had, and what to do.
pub async fn run(launch: Launch) -> Result<RunEnd, String> {
    let Launch { plan, clips, output, print, finite, notes, .. } = launch;
    for note in &notes {
        tracing::info!("{note}");
    }
    let front = Front::default();
    let is_ready = Arc::new(AtomicBool::new(false));
    let wants_language = plan.server.as_ref().is_some_and(|server| server.language);
    let language = (wants_language && !text_models(&plan).is_empty()).then(LanguageApi::default);
    // Before the models, which take seconds: a port that is taken is told at once.
    let server = match &plan.server {
        None => None,
        Some(server_plan) => {
            let graph = graph::to_json(&plan.graph);
            let ready = is_ready.clone();
            let state = server_state(graph, &front, recorder()?, ready, language.clone());
            let server = Server::start(server_plan, state).await.map_err(|e| e.to_string())?;
            tracing::info!("results on ws://{}/v1/results", server.address());
            Some(server)
        }
    };
    let loaded = async {
        let rooms = Rooms::open(&plan).await?;
        cost::prime(&rooms.compute, &Costs::here(&Catalogue::builtin()));
        rooms.ready(Duration::from_secs(60)).await;
        Ok::<Rooms, String>(rooms)
    };
    let rooms = tokio::select! {
        rooms = loaded => rooms?,
        () = signal() => {
            tracing::info!("stopped while loading");
            return Ok(RunEnd::Well);
        }
    };
    let compute = rooms.compute.clone();
    if let Some(language) = &language {
        language.open(rooms.served.clone());
    }
    let sink = Arc::new(RunSink::new(&plan, clips, output.as_ref().map(Output::sender), print));
    let system = start(plan.graph.clone(), rooms, Some(sink.clone()), &front).await?;
    is_ready.store(true, Ordering::Relaxed);
    for stream in plan.streams {
        system.add(stream).await.map_err(|e| e.to_string())?;
    }
    let interrupted = tokio::select! {
        _ = system.all_ended(), if finite => false,
        () = signal() => true,
        () = sink.closed() => true,
    };
    if interrupted {
        // A second signal ends at once.
        tokio::spawn(async {
            signal().await;
            std::process::exit(130);
        });
    }
    let progress = system.drain(DRAIN_LIMIT).await;
    if let Some(server) = server {
        server.shutdown(Duration::from_secs(1)).await;
    }
    if let Err(error) = cost::keep(&Catalogue::builtin(), &plan.graph, &compute.stats()) {
        tracing::warn!(error, "what models cost here could not be kept");
    }
    compute.shutdown(Duration::from_secs(1)).await;
    let summary = sink.finish();
    drop(sink);
    if let Some(output) = output {
        output.close().await.map_err(|e| e.to_string())?;
    }
    eprint!("{summary}");
    Ok(if progress.failed.is_empty() { RunEnd::Well } else { RunEnd::StreamsFailed })
}

/// Returns when the user or the system wants an end.
pub(crate) async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let interrupt = tokio::signal::ctrl_c();
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            let _ = interrupt.await;
        }
    }
}

pub(crate) fn server_state(
    graph: serde_json::Value,
    front: &Front,
    metrics: PrometheusHandle,
    is_ready: Arc<AtomicBool>,
    language: Option<LanguageApi>,
) -> ServerState {
    ServerState {
        hub: front.hub.clone(),
        streams: Arc::new(Streams { board: front.board.clone() }),
        graph: Arc::new(graph),
        metrics: Arc::new(move || metrics.render()),
        ready: Arc::new(move || match is_ready.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("models are loading".to_owned()),
        }),
        language,
    }
}

struct Streams {
    board: Arc<Board>,
}

impl StreamList for Streams {
    fn list(&self) -> Vec<StreamView> {
        self.board
            .streams()
            .into_iter()
            .map(|status| StreamView {
                id: status.id,
                uri: status.uri,
                title: status.title,
                paced: status.paced,
                state: status.state,
                reason: status.reason,
                window_next: status.window_next,
            })
            .collect()
    }
}

/// Takes every result to the output, the summary and the screen.
struct RunSink {
    clips: HashMap<StreamId, Clip>,
    output: Option<OutputSender>,
    print: bool,
    summary: Mutex<Summary>,
    progress: Option<show::Progress>,
}

impl RunSink {
    fn new(plan: &Plan, clips: Vec<Clip>, output: Option<OutputSender>, print: bool) -> Self {
        let count = clips.len() as u64;
        let ids = plan.streams.iter().map(|stream| stream.id.clone());
        RunSink {
            clips: ids.zip(clips).collect(),
            output,
            print,
            summary: Mutex::default(),
            // A bar over lines that scroll is noise.
            progress: (!print).then(|| show::Progress::new(count)),
        }
    }

    fn summary(&self) -> std::sync::MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when nobody reads the output any more.
    async fn closed(&self) {
        match &self.output {
            Some(output) => output.closed().await,
            None => std::future::pending().await,
        }
    }

    fn finish(&self) -> String {
        if let Some(progress) = &self.progress {
            progress.finish();
        }
        self.summary().to_string()
    }

    #[expect(clippy::print_stdout, reason = "without --output, standard output is for people")]
    fn show(&self, result: &FusedResult) {
        println!("{}", show::line(result));
    }
}

impl ResultSink for RunSink {
    fn result<'a>(
        &'a self,
        result: &'a FusedResult,
        json: Bytes,
        paced: bool,
    ) -> BoxFuture<'a, ()> {
        async move {
            let windows = {
                let mut summary = self.summary();
                summary.add(result);
                summary.windows
            };
            if self.print {
                self.show(result);
            }
            if let Some(progress) = &self.progress {
                progress.window(windows);
            }
            if let Some(output) = &self.output {
                // A closed output ends the run by itself.
                let _ = if paced {
                    output.try_write(&result.stream, json).map(|_| ())
                } else {
                    output.write(&result.stream, json).await
                };
            }
        }
        .boxed()
    }

    fn ended<'a>(&'a self, message: &'a StreamMessage) -> BoxFuture<'a, ()> {
        async move {
            self.summary().add_state(message);
            if let Some(progress) = &self.progress {
                progress.clip();
            }
            if let (Some(output), Some(clip)) = (&self.output, self.clips.get(&message.stream))
                && message.state == StreamState::Ended
                // One that was stopped half-way has a reason, and must be done again.
                && message.reason.is_none()
            {
                let _ = output.finished(clip).await;
            }
        }
        .boxed()
    }
}

fn wants_embedder(plan: &Plan) -> bool {
    plan.graph.stages.iter().any(|stage| match &stage.settings {
        Settings::Understand(settings) => settings.wants_embedder(),
        _ => false,
    })
}

/// The sentence embedder, when a stage scores categories with it.
fn embedder(
    plan: &Plan,
    library: &Arc<Library>,
    compute: &Compute,
) -> Result<Option<engine::compute::ModelHandle<Embedder>>, String> {
    if !wants_embedder(plan) {
        return Ok(None);
    }
    let dir = (library.dir)(EMBEDDER).map_err(|e| e.to_string())?;
    let library = library.clone();
    let handle = compute
        .register(EMBEDDER, engine::Class::Text, move || Embedder::open(&library.runtime, &dir))
        .map_err(|e| e.to_string())?;
    handle.prepare(compute.stats().lanes.min(INSTANCES_READY)).map_err(|e| e.to_string())?;
    Ok(Some(handle))
}
