//! The `stages:` section to a `GraphPlan`: every edge resolved, of the right type, acyclic, and ending in the
//! one `fuse`. Stages are known by a string here for the last time.

use std::collections::{BTreeSet, VecDeque};

use actors::plan::{GraphPlan, Input, StageIndex, StagePlan};
use actors::stages::{KINDS, Kind, PortType, Settings};
use media::StageId;

use super::Context;
use super::check::join;
use super::problem::{At, Problem, alternatives, nearest, quoted};
use super::settings;
use super::tree::{Node, Value};

/// Inputs that every source has by name.
const SOURCE: [(&str, PortType, Input); 3] = [
    ("source.video", PortType::Video, Input::SourceVideo),
    ("source.audio", PortType::Audio, Input::SourceAudio),
    ("source.subtitles", PortType::Subtitles, Input::SourceSubtitles),
];

/// A stage as far as it is understood.
pub(super) struct Draft<'a> {
    pub(super) name: &'a str,
    pub(super) name_at: &'a At,
    pub(super) node: &'a Node,
    pub(super) kind: Option<&'static Kind>,
    from: Vec<(&'a str, &'a Node)>,
}

/// What an input's name stands for.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    Source(PortType, Input),
    Stage(usize),
    /// Names nothing; perhaps this one is meant.
    Unknown(Option<usize>),
}

/// Compiles `stages`. `faulty` holds the paths that have been reported already; `models` the names under
/// `models:`.
pub(super) fn compile(
    stages: &Node,
    models: &[&str],
    faulty: &BTreeSet<String>,
    context: &Context<'_>,
    problems: &mut Vec<Problem>,
) -> Option<GraphPlan> {
    let before = problems.len();
    let drafts = drafts(stages);
    let graph = Graph::new(&drafts);
    graph.report(problems);
    let read: Vec<Option<Settings>> =
        drafts.iter().map(|d| settings::read(d, faulty, problems)).collect();
    for (draft, values) in drafts.iter().zip(&read) {
        settings::check_model(draft, models, context, problems);
        if let Some(values) = values {
            settings::check_values(draft, values, context, problems);
        }
    }
    if problems.len() > before || !faulty.is_empty() {
        return None;
    }
    graph.plan(read)
}

fn drafts(stages: &Node) -> Vec<Draft<'_>> {
    stages
        .entries()
        .iter()
        .map(|entry| {
            let from = match entry.node.get("from") {
                Some(list @ Node { value: Value::List(_), .. }) => list.items(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            let kind = entry.node.get("kind").and_then(Node::text);
            Draft {
                name: &entry.key,
                name_at: &entry.key_at,
                node: &entry.node,
                kind: KINDS.iter().copied().find(|k| Some(k.name) == kind),
                from: from.iter().filter_map(|n| Some((n.text()?, n))).collect(),
            }
        })
        .collect()
}

struct Graph<'a> {
    drafts: &'a [Draft<'a>],
    /// Per stage, what each of its inputs stands for.
    targets: Vec<Vec<Target>>,
    /// `reaches[a][b]`: data flows from stage a to stage b over at least one edge.
    reaches: Vec<Vec<bool>>,
}

impl<'a> Graph<'a> {
    fn new(drafts: &'a [Draft<'a>]) -> Self {
        let targets: Vec<Vec<Target>> = drafts
            .iter()
            .map(|d| d.from.iter().map(|(name, _)| target(name, drafts)).collect())
            .collect();
        let mut readers = vec![Vec::new(); drafts.len()];
        for (reader, inputs) in targets.iter().enumerate() {
            for input in inputs {
                if let Target::Stage(from) | Target::Unknown(Some(from)) = input {
                    readers[*from].push(reader);
                }
            }
        }
        let reaches = (0..drafts.len())
            .map(|from| {
                let mut seen = vec![false; drafts.len()];
                let mut todo: VecDeque<usize> = readers[from].iter().copied().collect();
                while let Some(stage) = todo.pop_front() {
                    if !std::mem::replace(&mut seen[stage], true) {
                        todo.extend(&readers[stage]);
                    }
                }
                seen
            })
            .collect();
        Graph { drafts, targets, reaches }
    }

    fn report(&self, problems: &mut Vec<Problem>) {
        for (index, draft) in self.drafts.iter().enumerate() {
            self.report_name(draft, problems);
            self.report_inputs(index, problems);
        }
        self.report_cycles(problems);
        self.report_fuse(problems);
    }

    fn report_name(&self, draft: &Draft<'_>, problems: &mut Vec<Problem>) {
        let valid = draft.name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && draft.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            && draft.name.len() <= 64
            && draft.name != "source";
        if !valid {
            problems.push(Problem {
                at: draft.name_at.clone(),
                path: join("stages", draft.name),
                message: "a stage's name starts with a letter and has letters, digits, `_` and `-`, at most \
                          64, and is not `source`"
                    .into(),
            });
        }
    }

    fn report_inputs(&self, index: usize, problems: &mut Vec<Problem>) {
        let draft = &self.drafts[index];
        let path = format!("stages.{}.from", draft.name);
        let mut say = |at: &Node, message: String| {
            problems.push(Problem { at: at.at.clone(), path: path.clone(), message });
        };
        for (position, (target, (name, node))) in
            self.targets[index].iter().zip(&draft.from).enumerate()
        {
            if draft.from[..position].iter().any(|(earlier, _)| earlier == name) {
                say(node, format!("input `{name}` is given twice"));
                continue;
            }
            let (output, cyclic) = match target {
                Target::Unknown(_) => {
                    let known = alternatives(name, self.names(draft.name));
                    say(node, format!("input `{name}` is not a stage {known}"));
                    continue;
                }
                Target::Source(output, _) => (Some(*output), false),
                Target::Stage(from) => {
                    (self.drafts[*from].kind.map(|k| k.output), self.reaches[index][*from])
                }
            };
            if let (Some(kind), Some(output), false) = (draft.kind, output, cyclic)
                && !kind.inputs.contains(&output)
            {
                say(node, self.wrong_type(draft, kind, name, output));
            }
        }
        if let Some(kind) = draft.kind
            && let [_, (_, second), ..] = draft.from.as_slice()
            && !kind.many
        {
            let found = draft.from.len();
            say(second, format!("kind `{}` reads one input, found {found}", kind.name));
        }
    }

    fn wrong_type(&self, draft: &Draft<'_>, kind: &Kind, name: &str, output: PortType) -> String {
        let expected: Vec<&str> = kind.inputs.iter().map(|t| t.name()).collect();
        let sources = SOURCE.iter().filter(|(_, t, _)| kind.inputs.contains(t)).map(|s| s.0);
        let stages = self.drafts.iter().filter(|d| d.name != draft.name);
        let stages = stages.filter(|d| d.kind.is_some_and(|k| kind.inputs.contains(&k.output)));
        let fits: Vec<&str> = sources.chain(stages.map(|d| d.name)).collect();
        let fits = if fits.is_empty() { "nothing here".into() } else { quoted(fits) };
        format!(
            "input `{name}` gives {}, but kind `{}` reads {} (fits: {fits})",
            output.name(),
            kind.name,
            expected.join(" or "),
        )
    }

    fn report_cycles(&self, problems: &mut Vec<Problem>) {
        let mut told = vec![false; self.drafts.len()];
        for start in 0..self.drafts.len() {
            if !self.reaches[start][start] || told[start] {
                continue;
            }
            let Some(cycle) = self.cycle(start) else { continue };
            for (stage, told) in told.iter_mut().enumerate() {
                *told |= self.reaches[start][stage] && self.reaches[stage][start];
            }
            let draft = &self.drafts[start];
            let last = self.drafts[cycle[cycle.len() - 1]].name;
            let at = draft.from.iter().find(|(name, _)| *name == last).map(|(_, node)| &node.at);
            let message = if cycle.len() == 1 {
                format!("stage `{}` reads its own output", draft.name)
            } else {
                let names =
                    cycle.iter().chain([&start]).map(|i| format!("`{}`", self.drafts[*i].name));
                format!("a cycle of stages: {}", names.collect::<Vec<_>>().join(" → "))
            };
            problems.push(Problem {
                at: at.unwrap_or(draft.name_at).clone(),
                path: format!("stages.{}.from", draft.name),
                message,
            });
        }
    }

    /// The shortest way of the data from `start` back to it, `start` first; none when a misspelt name is on it.
    fn cycle(&self, start: usize) -> Option<Vec<usize>> {
        let mut came_from = vec![None; self.drafts.len()];
        let mut todo = VecDeque::from([start]);
        while let Some(stage) = todo.pop_front() {
            for reader in 0..self.drafts.len() {
                if !self.targets[reader].contains(&Target::Stage(stage)) {
                    continue;
                }
                if reader == start {
                    let mut way = vec![stage];
                    while let Some(before) = came_from[way[way.len() - 1]] {
                        way.push(before);
                    }
                    way.reverse();
                    return Some(way);
                }
                if came_from[reader].is_none() {
                    came_from[reader] = Some(stage);
                    todo.push_back(reader);
                }
            }
        }
        None
    }

    fn report_fuse(&self, problems: &mut Vec<Problem>) {
        let is_fuse = |d: &&Draft<'_>| d.kind.is_some_and(|k| k.output == PortType::Fused);
        let fuses: Vec<&Draft<'_>> = self.drafts.iter().filter(is_fuse).collect();
        let Some(fuse) = fuses.first() else {
            // A stage whose kind is not known may be meant to be it; that is reported already.
            if self.drafts.iter().all(|d| d.kind.is_some())
                && let Some(last) = self.drafts.last()
            {
                problems.push(Problem {
                    at: last.name_at.clone(),
                    path: "stages".into(),
                    message: "no stage of kind `fuse`; expected exactly one, as the last".into(),
                });
            }
            return;
        };
        for other in &fuses[1..] {
            problems.push(Problem {
                at: other.name_at.clone(),
                path: join("stages", other.name),
                message: format!("a second stage of kind `fuse`; `{}` is one already", fuse.name),
            });
        }
        let fuse_index = self.drafts.iter().position(|d| d.name == fuse.name).unwrap_or(0);
        for (index, draft) in self.drafts.iter().enumerate() {
            if !is_fuse(&draft) && !self.reaches[index][fuse_index] {
                let message = format!("nothing of stage `{}` reaches `{}`", draft.name, fuse.name);
                let path = join("stages", draft.name);
                problems.push(Problem { at: draft.name_at.clone(), path, message });
            }
        }
    }

    /// Everything that a stage may read from.
    fn names(&self, own: &'a str) -> impl Iterator<Item = &'a str> {
        let stages = self.drafts.iter().map(|d| d.name).filter(move |name| *name != own);
        SOURCE.iter().map(|s| s.0).chain(stages)
    }

    /// Only for a graph without problems.
    fn plan(&self, mut settings: Vec<Option<Settings>>) -> Option<GraphPlan> {
        let mut position = vec![None; self.drafts.len()];
        let mut stages = Vec::with_capacity(self.drafts.len());
        while stages.len() < self.drafts.len() {
            let next = (0..self.drafts.len()).find(|i| {
                position[*i].is_none()
                    && self.targets[*i].iter().all(|t| match t {
                        Target::Stage(from) => position[*from].is_some(),
                        _ => true,
                    })
            })?;
            let inputs = self.targets[next].iter().map(|target| match target {
                Target::Source(_, input) => Some(*input),
                Target::Stage(from) => position[*from].map(Input::Stage),
                Target::Unknown(_) => None,
            });
            let draft = &self.drafts[next];
            let stage = StagePlan {
                id: StageId::from(draft.name),
                settings: settings[next].take()?,
                inputs: inputs.collect::<Option<_>>()?,
                class: draft.kind?.class,
            };
            position[next] = Some(StageIndex(stages.len()));
            stages.push(stage);
        }
        Some(GraphPlan { stages })
    }
}

fn target(name: &str, drafts: &[Draft<'_>]) -> Target {
    if let Some((_, output, input)) = SOURCE.iter().find(|s| s.0 == name) {
        return Target::Source(*output, *input);
    }
    let find = |name: &str| drafts.iter().position(|d| d.name == name);
    match find(name) {
        Some(index) => Target::Stage(index),
        None => Target::Unknown(nearest(name, drafts.iter().map(|d| d.name)).and_then(find)),
    }
}
