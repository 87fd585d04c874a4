//! A compiled graph for people and programs: mermaid, dot, JSON. Pure text.

use actors::plan::{GraphPlan, Input, StagePlan};
use serde_json::{Value, json};

/// How `pipeline graph` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphFormat {
    /// For Markdown.
    Mermaid,
    /// For Graphviz.
    Dot,
}

/// The graph as text.
pub fn render(graph: &GraphPlan, format: GraphFormat) -> String {
    match format {
        GraphFormat::Mermaid => mermaid(graph),
        GraphFormat::Dot => dot(graph),
    }
}

/// The graph for `/v1/graph`.
pub fn to_json(graph: &GraphPlan) -> Value {
    let stages: Vec<Value> = graph
        .stages
        .iter()
        .map(|stage| {
            let kind = stage.settings.kind();
            json!({
                "id": stage.id,
                "kind": kind.name,
                "about": kind.about,
                "class": stage.class,
                "from": names(graph, stage),
                "gives": kind.output.name(),
            })
        })
        .collect();
    json!({ "stages": stages })
}

fn names(graph: &GraphPlan, stage: &StagePlan) -> Vec<String> {
    stage.inputs.iter().map(|input| name(graph, *input)).collect()
}

fn name(graph: &GraphPlan, input: Input) -> String {
    match input {
        Input::SourceVideo => "source.video".into(),
        Input::SourceAudio => "source.audio".into(),
        Input::SourceSubtitles => "source.subtitles".into(),
        Input::Stage(index) => {
            graph.stages.get(index.0).map_or_else(String::new, |s| s.id.to_string())
        }
    }
}

/// What flows over an edge.
fn flow(graph: &GraphPlan, input: Input) -> &'static str {
    match input {
        Input::SourceVideo => "video",
        Input::SourceAudio => "audio",
        Input::SourceSubtitles => "subtitles",
        Input::Stage(index) => {
            graph.stages.get(index.0).map_or("", |s| s.settings.kind().output.name())
        }
    }
}

fn sources(graph: &GraphPlan) -> impl Iterator<Item = String> {
    let used = |input| graph.stages.iter().any(|s| s.inputs.contains(&input));
    [Input::SourceVideo, Input::SourceAudio, Input::SourceSubtitles]
        .into_iter()
        .filter(move |input| used(*input))
        .map(|input| name(graph, input))
}

fn mermaid(graph: &GraphPlan) -> String {
    // Ids are prefixed: mermaid takes some words (`end`) for its own.
    let id = |name: &str| format!("n_{}", name.replace(['.', '-'], "_"));
    let mut text = String::from("flowchart LR\n");
    for source in sources(graph) {
        text.push_str(&format!("  {}([{source}])\n", id(&source)));
    }
    for stage in &graph.stages {
        let kind = stage.settings.kind().name;
        text.push_str(&format!("  {}[\"{}<br>{kind}\"]\n", id(stage.id.as_str()), stage.id));
    }
    for stage in &graph.stages {
        for input in &stage.inputs {
            let (from, to) = (id(&name(graph, *input)), id(stage.id.as_str()));
            text.push_str(&format!("  {from} -->|{}| {to}\n", flow(graph, *input)));
        }
    }
    text
}

fn dot(graph: &GraphPlan) -> String {
    let mut text = String::from("digraph pipeline {\n  rankdir=LR;\n  node [shape=box];\n");
    for source in sources(graph) {
        text.push_str(&format!("  \"{source}\" [shape=ellipse];\n"));
    }
    for stage in &graph.stages {
        let kind = stage.settings.kind().name;
        text.push_str(&format!("  \"{0}\" [label=\"{0}\\n{kind}\"];\n", stage.id));
    }
    for stage in &graph.stages {
        for input in &stage.inputs {
            let (from, flow) = (name(graph, *input), flow(graph, *input));
            text.push_str(&format!("  \"{from}\" -> \"{}\" [label=\"{flow}\"];\n", stage.id));
        }
    }
    text.push_str("}\n");
    text
}
