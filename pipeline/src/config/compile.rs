//! A configuration's text to a [`Plan`], or everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use actors::plan::{GraphPlan, StreamPlan};
use actors::stages::{Settings, WindowLength};
use engine::Class;
use engine::events::class_label;
use engine::scheduler::CLASSES;
use media::{Sampling, SourceSpec, StreamId};
use serde::de::DeserializeOwned;

use super::check::{Checker, join};
use super::mask::mask;
use super::problem::{At, Problem, Problems, alternatives, quoted};
use super::raw::{Power, RawBackend, RawCompute, RawLanes, RawModel, RawServer, RawStream};
use super::schema::config_schema;
use super::settings::is_path;
use super::tree::{self, Node};
use super::{Context, env, graph, set};
use crate::inputs::{self, Clip};
use crate::plan::{BackendPlan, ComputePlan, Lanes, ModelPlan, Plan, Secret, ServerPlan};

/// Below this, aging would be the order.
const WAIT_MAX_LEAST: Duration = Duration::from_millis(100);
/// Limits on opening a source and on the wait for one packet.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// What the command line says beside the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides<'a> {
    /// Values of `--set`.
    pub set: &'a [String],
    /// `--realtime`: every stream is.
    pub realtime: bool,
}

/// Reads and compiles a file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(
    file: &Path,
    overrides: Overrides<'_>,
    context: &Context<'_>,
) -> Result<Plan, Problems> {
    match tree::read(file) {
        Ok(text) => compile(&text, file, overrides, context),
        Err(problem) => Err(Problems::one(problem)),
    }
}

/// Compiles `text`; `file` gives it its name and the folder that relative paths start from.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(
    text: &str,
    file: &Path,
    overrides: Overrides<'_>,
    context: &Context<'_>,
) -> Result<Plan, Problems> {
    let mut problems = Vec::new();
    let origin = file.display().to_string();
    let plan = tree::parse(text, &origin, &mut problems).and_then(|mut root| {
        for option in overrides.set {
            set::apply(&mut root, option, &mut problems);
        }
        env::fill(&mut root, context.env, "", &mut problems);
        let plan = sections(&root, file, overrides.realtime, context, &mut problems);
        mask(&root, &mut problems);
        plan
    });
    match (Problems::of(problems), plan) {
        (None, Some(plan)) => Ok(plan),
        (Some(problems), _) => Err(problems),
        (None, None) => Err(Problems::one(Problem {
            at: At::whole(&origin),
            path: String::new(),
            message: "can't be used".into(),
        })),
    }
}

fn sections(
    root: &Node,
    file: &Path,
    realtime: bool,
    context: &Context<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Plan> {
    let schema = config_schema();
    let mut checker = Checker { root: &schema, problems: Vec::new() };
    checker.check(root, &schema, "");
    let faulty: BTreeSet<String> = checker.problems.iter().map(|p| p.path.clone()).collect();
    problems.append(&mut checker.problems);
    let mut reader = Reader { faulty: &faulty, problems };

    let models = reader.models(root.get("models"), context);
    let server = root.get("server").and_then(|node| reader.server(node));
    let compute = reader.compute(root.get("compute"));
    let names: Vec<&str> = root
        .get("models")
        .map(Node::entries)
        .unwrap_or_default()
        .iter()
        .map(|e| e.key.as_str())
        .collect();
    let in_stages: BTreeSet<String> =
        faulty.iter().filter(|p| p.starts_with("stages")).cloned().collect();
    let graph = root
        .get("stages")
        .and_then(|stages| graph::compile(stages, &names, &in_stages, context, reader.problems));
    let streams = reader.streams(root, file, realtime, graph.as_ref());
    Some(Plan { server, compute: compute?, models, graph: graph?, streams })
}

/// Reads the sections that the schema has nothing against.
struct Reader<'a> {
    faulty: &'a BTreeSet<String>,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn section<T: DeserializeOwned>(&mut self, node: &Node, path: &str) -> Option<T> {
        let below = |p: &String| {
            p.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if self.faulty.iter().any(below) {
            return None;
        }
        serde_json::from_value(node.to_json())
            .map_err(|e| self.say(&node.at, path, e.to_string()))
            .ok()
    }

    fn say(&mut self, at: &At, path: &str, message: String) {
        self.problems.push(Problem { at: at.clone(), path: path.to_owned(), message });
    }

    fn server(&mut self, node: &Node) -> Option<ServerPlan> {
        let raw: RawServer = self.section(node, "server")?;
        let at = node.get("listen").map_or(&node.at, |n| &n.at);
        match listen(&raw.listen, raw.token.is_some()) {
            Ok(listen) => Some(ServerPlan {
                listen,
                token: raw.token.map(Secret::from),
                language: raw.language,
            }),
            Err(message) => {
                self.say(at, "server.listen", message);
                None
            }
        }
    }

    fn compute(&mut self, node: Option<&Node>) -> Option<ComputePlan> {
        let raw: RawCompute = match node {
            Some(node) => self.section(node, "compute")?,
            None => RawCompute::default(),
        };
        let shares = raw.shares.by_class();
        let sum: f64 = shares.values().sum();
        let at = |key: &str| node.map(|node| node.get(key).unwrap_or(node).at.clone());
        if sum > 0.9
            && let Some(at) = at("shares")
        {
            let message = format!(
                "the shares add up to {sum}; expected at most 0.9, the text model's is the rest"
            );
            self.say(&at, "compute.shares", message);
        }
        let times = |class: &Class| raw.order.iter().filter(|other| *other == class).count();
        let label = |class: &Class| format!("`{}` {} times", class_label(*class), times(class));
        let wrong: Vec<String> = CLASSES.iter().filter(|c| times(c) != 1).map(label).collect();
        if !wrong.is_empty()
            && let Some(at) = at("order")
        {
            let classes = quoted(CLASSES.map(class_label));
            let message = format!("found {}, expected each of {classes} once", wrong.join(", "));
            self.say(&at, "compute.order", message);
        }
        if raw.wait_max.0 < WAIT_MAX_LEAST
            && let Some(at) = at("wait_max")
        {
            let message =
                "expected at least `100ms`: what has waited so long goes before the text model";
            self.say(&at, "compute.wait_max", message.into());
        }
        let RawCompute { lanes, order, wait_max, text_lane, foreign_piece_max, preempt, .. } = raw;
        let saves_power = raw.power == Power::Save;
        Some(ComputePlan {
            lanes: match lanes {
                RawLanes::Auto => Lanes::Auto,
                RawLanes::Count(lanes) => Lanes::Count(lanes as usize),
            },
            shares,
            order,
            wait_max: wait_max.0,
            text_lane,
            foreign_piece_max: foreign_piece_max.0,
            preempt,
            saves_power,
        })
    }

    fn models(
        &mut self,
        node: Option<&Node>,
        context: &Context<'_>,
    ) -> BTreeMap<String, ModelPlan> {
        let mut models = BTreeMap::new();
        for entry in node.map(Node::entries).unwrap_or_default() {
            let path = join("models", &entry.key);
            let Some(raw) = self.section::<RawModel>(&entry.node, &path) else { continue };
            let nodes = entry.node.get("backends").map(Node::items).unwrap_or_default();
            let mut backends = Vec::new();
            for (i, (backend, node)) in raw.backends.into_iter().zip(nodes).enumerate() {
                let RawBackend::Embedded { model } = backend;
                if !is_path(&model) && !context.catalogue.contains(&model.as_str()) {
                    let known = alternatives(&model, context.catalogue.iter().copied());
                    let at = &node.get("model").unwrap_or(node).at;
                    let path = format!("{path}.backends[{i}].model");
                    self.say(at, &path, format!("model `{model}` is not known {known}"));
                }
                backends.push(BackendPlan::Embedded { model });
            }
            models.insert(entry.key.clone(), ModelPlan { backends });
        }
        models
    }

    fn streams(
        &mut self,
        root: &Node,
        file: &Path,
        realtime: bool,
        graph: Option<&GraphPlan>,
    ) -> Vec<StreamPlan> {
        let folder = file.parent().unwrap_or(Path::new(""));
        // The window is wanted even where the graph has problems of its own.
        let clip = root.get("stages").map(Node::entries).unwrap_or_default().iter().any(|stage| {
            stage.node.get("kind").and_then(Node::text) == Some("fuse")
                && stage.node.get("window").and_then(Node::text) == Some("clip")
        });
        let streams = root.get("streams").map(Node::items).unwrap_or_default();
        let mut plans: Vec<StreamPlan> = Vec::new();
        let mut first_at: BTreeMap<String, At> = BTreeMap::new();
        for (i, node) in streams.iter().enumerate() {
            let path = format!("streams[{i}]");
            let Some(mut raw) = self.section::<RawStream>(node, &path) else { continue };
            raw.realtime |= realtime;
            let at = |key: &str| node.get(key).map_or(&node.at, |n| &n.at).clone();
            if let Some(first) = first_at.get(&raw.id) {
                let message =
                    format!("stream `{}` is already given in line {}", raw.id, first.line);
                self.say(&at("id"), &join(&path, "id"), message);
            }
            first_at.entry(raw.id.clone()).or_insert_with(|| at("id"));
            let plan = stream_plan(raw, folder, graph);
            if clip && plan.source.is_live() {
                self.say(&at("uri"), &join(&path, "uri"), clip_on_live(&plan));
            }
            if node.get("transport").is_some() && !plan.source.is_live() {
                let message = "applies to `rtsp://` sources only".into();
                self.say(&at("transport"), &join(&path, "transport"), message);
            }
            plans.push(plan);
        }
        plans
    }
}

/// Parses an address and holds it against [`check_listen`].
pub(crate) fn listen(text: &str, token: bool) -> Result<SocketAddr, String> {
    let text = text
        .strip_prefix("localhost:")
        .map_or_else(|| text.to_owned(), |p| format!("127.0.0.1:{p}"));
    let address: SocketAddr = text.parse().map_err(|_| {
        "no address; expected IP and port, such as `127.0.0.1:8080` or `[::]:8080`".to_owned()
    })?;
    check_listen(address, token).map(|()| address)
}

/// Refuses an address that the outside could reach without a token.
pub(crate) fn check_listen(address: SocketAddr, token: bool) -> Result<(), String> {
    if address.ip().is_loopback() || token {
        return Ok(());
    }
    Err(format!(
        "`{address}` can be reached from outside, which needs `server.token`; without one listen on loopback, \
         such as `127.0.0.1:{}`",
        address.port()
    ))
}

fn clip_on_live(plan: &StreamPlan) -> String {
    format!(
        "stream `{}` is live and has no end: `window: clip` needs files; give a length such as `1s`",
        plan.id
    )
}

fn stream_plan(raw: RawStream, folder: &Path, graph: Option<&GraphPlan>) -> StreamPlan {
    let source = SourceSpec {
        uri: inputs::resolve(&raw.uri, folder),
        transport: raw.transport.unwrap_or_default(),
        open_timeout: raw.open_timeout.map_or(IO_TIMEOUT, |t| t.0),
        read_timeout: raw.read_timeout.map_or(IO_TIMEOUT, |t| t.0),
        sampling: graph.map_or(Sampling::NONE, GraphPlan::sampling),
    };
    let paced = raw.realtime || source.is_live();
    StreamPlan {
        id: StreamId::from(raw.id),
        paced,
        priority: raw.priority.unwrap_or(if paced { 0 } else { 10 }),
        source,
        title: raw.title,
        description: raw.description,
        language: raw.language,
        clip_budget: raw.clip_budget.map(|t| t.0),
    }
}

/// The streams of `--input`, for the graph of `plan`.
///
/// # Errors
/// Names every live source where the graph wants whole clips.
pub fn stream_plans(
    clips: &[Clip],
    graph: &GraphPlan,
    realtime: bool,
) -> Result<Vec<StreamPlan>, Problems> {
    let clip_window = graph
        .stages
        .iter()
        .any(|s| matches!(&s.settings, Settings::Fuse(f) if f.window == WindowLength::Clip));
    let plans: Vec<StreamPlan> = clips
        .iter()
        .map(|clip| {
            let raw = RawStream {
                id: clip.id.clone(),
                uri: clip.uri.clone(),
                realtime,
                title: clip.title.clone(),
                description: clip.description.clone(),
                language: clip.language.clone(),
                priority: clip.priority,
                transport: None,
                open_timeout: None,
                read_timeout: None,
                clip_budget: None,
            };
            stream_plan(raw, Path::new(""), Some(graph))
        })
        .collect();
    let live = plans.iter().filter(|p| clip_window && p.source.is_live());
    let problems = live.map(|plan| Problem {
        at: At::whole("--input"),
        path: media::mask_uri(&plan.source.uri),
        message: clip_on_live(plan),
    });
    match Problems::of(problems.collect()) {
        Some(problems) => Err(problems),
        None => Ok(plans),
    }
}
