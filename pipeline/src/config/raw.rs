//! A configuration as written: the types behind `docs/config.schema.json`. Stage settings belong to their
//! kinds in `actors::stages`; this file never names one.

use std::collections::BTreeMap;
use std::time::Duration;

use actors::stages::KINDS;
use engine::Class;
use engine::scheduler::SchedulerConfig;
use media::Transport;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// The pattern of a duration; what it means is decided by `actors::duration`.
pub(crate) const DURATION_PATTERN: &str = "^[0-9]+(ms|s|m)$";

/// What to watch, which models look at it, and how their answers become one.
///
/// In text values `${NAME}` stands for an environment variable and `${NAME:-default}` for one with a default.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "pipeline configuration")]
pub struct RawConfig {
    /// Version of this format.
    #[schemars(extend("const" = 1))]
    pub version: u32,
    /// The HTTP and WebSocket server; none without it.
    #[serde(default)]
    pub server: Option<RawServer>,
    /// What to process; `--input` on the command line takes their place.
    #[serde(default)]
    pub streams: Vec<RawStream>,
    /// Language models by the name that stages use.
    #[serde(default)]
    pub models: BTreeMap<String, RawModel>,
    /// The stage graph: name and stage. Exactly one is a `fuse`, and every other reaches it.
    #[schemars(with = "Stages")]
    pub stages: serde_json::Map<String, Value>,
    /// Who computes how much.
    #[serde(default)]
    pub compute: RawCompute,
}

/// The HTTP and WebSocket server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawServer {
    /// Address and port; port 0 takes a free one. Without a token only loopback addresses are allowed.
    pub listen: String,
    /// Bearer token that clients must send. Best written as `${NAME}`.
    #[schemars(length(min = 8), extend("writeOnly" = true))]
    pub token: Option<String>,
    /// Whether other programs may use the stages' language models, as they would OpenAI's (docs/HTTP.md).
    pub language: bool,
}

impl Default for RawServer {
    fn default() -> Self {
        RawServer { listen: "127.0.0.1:8080".into(), token: None, language: true }
    }
}

/// A source and what is known of it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawStream {
    /// Its name in results.
    #[schemars(length(min = 1, max = 200))]
    pub id: String,
    /// Path (relative to this file's folder), `rtsp://` URL, or `-` for standard input.
    #[schemars(length(min = 1))]
    pub uri: String,
    /// Whether a file is played at its own pace, with deadlines, as if it were live.
    #[serde(default)]
    pub realtime: bool,
    /// Given to the text model as data.
    #[serde(default)]
    pub title: Option<String>,
    /// Ditto.
    #[serde(default)]
    pub description: Option<String>,
    /// ISO 639-1 code of what is spoken, when it is known.
    #[serde(default)]
    #[schemars(length(min = 2, max = 3))]
    pub language: Option<String>,
    /// Lower goes first. 0 for live and realtime sources, 10 for other files by default.
    #[serde(default)]
    pub priority: Option<i32>,
    /// How RTSP media is carried; `tcp` by default.
    #[serde(default)]
    pub transport: Option<Transport>,
    /// Limit on opening; 10s by default.
    #[serde(default)]
    pub open_timeout: Option<Time>,
    /// Limit on the wait for one packet; 10s by default.
    #[serde(default)]
    pub read_timeout: Option<Time>,
    /// Time from admission within which a clip wants its answer.
    #[serde(default)]
    pub clip_budget: Option<Time>,
}

/// A language model: who answers for it, first that works.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawModel {
    /// In order of preference.
    #[schemars(length(min = 1))]
    pub backends: Vec<RawBackend>,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RawBackend {
    /// The engine inside this program, on the CPU.
    Embedded {
        /// Catalogue name, or path of a GGUF file.
        model: String,
    },
}

/// Who computes how much.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawCompute {
    /// Cores to compute on: `auto` takes all.
    pub lanes: RawLanes,
    /// Guaranteed shares of lane time, beside the text model.
    pub shares: RawShares,
    /// Every class once, the first first served: `text` is the language model, `textinput` what text waits for
    /// (speech, on-screen text), `vision` detection, scenes and safety, `audio` voice activity.
    pub order: Vec<Class>,
    /// Longest wait of a class's oldest job without deadline: then it goes before everything else.
    pub wait_max: Time,
    /// Whether one lane's worth is kept free of long pieces, so that text waits for a short one at most.
    pub text_lane: bool,
    /// Longest piece that another class may run on the lane that is kept for text.
    pub foreign_piece_max: Time,
    /// Whether text that is due ends other work half-way and takes its lane. That work is asked again later.
    pub preempt: bool,
    /// `save`: an idle language engine lets go of what it keeps for later.
    pub power: Power,
}

/// What is done while nothing is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// Everything stays ready.
    #[default]
    Normal,
    /// Computed beginnings are forgotten after a while, for others to have the memory.
    Save,
}

impl Default for RawCompute {
    fn default() -> Self {
        let SchedulerConfig { order, wait_max, text_lane, foreign_piece_max, preempt, .. } =
            SchedulerConfig::for_lanes(1);
        RawCompute {
            lanes: RawLanes::default(),
            shares: RawShares::default(),
            order,
            wait_max: Time(wait_max),
            text_lane,
            foreign_piece_max: Time(foreign_piece_max),
            preempt,
            power: Power::default(),
        }
    }
}

/// `auto` or a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RawLanes {
    /// One per core.
    #[default]
    Auto,
    /// This many.
    Count(u32),
}

/// Fractions of lane time over the last second in which the class had runnable work.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawShares {
    /// Detection, scenes, safety.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub vision: f64,
    /// Voice activity, sentiment.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub audio: f64,
    /// Speech, on-screen text.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub textinput: f64,
}

impl RawShares {
    /// By class.
    pub fn by_class(&self) -> BTreeMap<Class, f64> {
        let all = [
            (Class::TextInput, self.textinput),
            (Class::Vision, self.vision),
            (Class::Audio, self.audio),
        ];
        all.into_iter().filter(|(_, share)| *share > 0.0).collect()
    }
}

impl Default for RawShares {
    fn default() -> Self {
        let of = |class| SchedulerConfig::for_lanes(1).shares.get(&class).copied().unwrap_or(0.0);
        RawShares {
            vision: of(Class::Vision),
            audio: of(Class::Audio),
            textinput: of(Class::TextInput),
        }
    }
}

/// A duration as written: `500ms`, `1s`, `2m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Time(#[serde(serialize_with = "actors::duration::serialize")] pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        actors::duration::deserialize(deserializer).map(Time)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": DURATION_PATTERN })
    }
}

impl<'de> Deserialize<'de> for RawLanes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text == "auto" => Ok(RawLanes::Auto),
            value => value
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .map(RawLanes::Count)
                .ok_or_else(|| serde::de::Error::custom("expected `auto` or a number of lanes")),
        }
    }
}

impl JsonSchema for RawLanes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Lanes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "const": "auto" },
            { "type": "integer", "minimum": 1, "maximum": 256 },
        ] })
    }
}

/// The stage graph's schema, put together from the kinds that there are.
struct Stages;

impl JsonSchema for Stages {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Stages".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds: Vec<Value> = KINDS
            .iter()
            .map(|kind| {
                let mut schema = (kind.schema)(generator).to_value();
                let mut properties = serde_json::Map::new();
                properties.insert("kind".into(), json!({ "const": kind.name }));
                properties.insert("from".into(), from_schema());
                if let Some(Value::Object(own)) = schema.get_mut("properties").map(Value::take) {
                    properties.extend(own);
                }
                schema["title"] = kind.name.into();
                schema["description"] = kind.about.into();
                schema["properties"] = properties.into();
                schema["required"] = json!(["kind", "from"]);
                schema
            })
            .collect();
        json_schema!({
            "type": "object",
            "minProperties": 1,
            "additionalProperties": { "oneOf": kinds },
        })
    }
}

fn from_schema() -> Value {
    json!({
        "description": "Where it reads from: `source.video`, `source.audio`, `source.subtitles`, or stages.",
        "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
        ],
    })
}
