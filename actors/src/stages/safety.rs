//! `safety`: how unsafe a picture is to show

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use engine::{Class, JobEnd, Ticket};
use futures_util::future::BoxFuture;
use media::{Frame, Observation, Pts};

use super::ordered::FrameStage;
use super::thin::Thinner;
use super::{Kind, PortType, Settings, parse, schema_of};
use crate::ask::Asked;

pub(super) static KIND: Kind = Kind {
    name: "safety",
    about: "how unsafe a picture is to show",
    inputs: &[PortType::Frames],
    many: false,
    output: PortType::Safety,
    class: Class::Vision,
    schema: schema_of::<SafetySettings>,
    parse: |value| parse(value, Settings::Safety),
};

/// Settings of `safety`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SafetySettings {
    /// Catalogue name.
    pub model: String,
    /// At most this many frames per second of media time.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: Option<f64>,
}

impl Default for SafetySettings {
    fn default() -> Self {
        SafetySettings { model: "open-nsfw".into(), fps: Some(1.0) }
    }
}

/// Unsafe-picture scoring.
pub(crate) struct Guarding {
    model: Asked<Frame, f32>,
    thin: Thinner,
}

impl Guarding {
    pub(crate) fn new(settings: &SafetySettings, model: Asked<Frame, f32>) -> Self {
        Guarding { model, thin: Thinner::new(settings.fps) }
    }
}

impl FrameStage for Guarding {
    type Answer = f32;

    fn wants(&mut self, frame: &Frame) -> bool {
        self.thin.wants(frame)
    }

    fn ask(&mut self, ticket: Ticket, frame: Frame) -> BoxFuture<'static, JobEnd<f32>> {
        self.model.ask(ticket, frame)
    }

    fn settle(&mut self, pts: Pts, score: f32) -> Observation {
        Observation::Safety { pts, score }
    }
}
