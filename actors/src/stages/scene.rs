//! `scene`: what kind of place or thing the picture shows

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use engine::{Class, JobEnd, Ticket};
use futures_util::future::BoxFuture;
use media::{Frame, Observation, Pts, Scored};

use super::ordered::FrameStage;
use super::thin::Thinner;
use super::{Kind, PortType, Settings, parse, schema_of};
use crate::ask::Asked;

pub(super) static KIND: Kind = Kind {
    name: "scene",
    about: "what kind of place or thing the picture shows",
    inputs: &[PortType::Frames],
    many: false,
    output: PortType::Scenes,
    class: Class::Vision,
    schema: schema_of::<SceneSettings>,
    parse: |value| parse(value, Settings::Scene),
};

/// Settings of `scene`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SceneSettings {
    /// Catalogue name, or path of an ONNX file of the same shape.
    pub model: String,
    /// At most this many frames per second of media time.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: Option<f64>,
    /// How many groups to report.
    #[schemars(range(min = 1, max = 20))]
    pub top: usize,
}

impl Default for SceneSettings {
    fn default() -> Self {
        SceneSettings { model: "efficientnet-lite0".into(), fps: Some(1.0), top: 3 }
    }
}

/// Scene classification.
pub(crate) struct Classifying {
    model: Asked<Frame, Vec<Scored>>,
    thin: Thinner,
    top: usize,
}

impl Classifying {
    pub(crate) fn new(settings: &SceneSettings, model: Asked<Frame, Vec<Scored>>) -> Self {
        Classifying { model, thin: Thinner::new(settings.fps), top: settings.top }
    }
}

impl FrameStage for Classifying {
    type Answer = Vec<Scored>;

    fn wants(&mut self, frame: &Frame) -> bool {
        self.thin.wants(frame)
    }

    fn ask(&mut self, ticket: Ticket, frame: Frame) -> BoxFuture<'static, JobEnd<Self::Answer>> {
        self.model.ask(ticket, frame)
    }

    fn settle(&mut self, pts: Pts, mut scenes: Vec<Scored>) -> Observation {
        scenes.truncate(self.top);
        Observation::Scenes { pts, scenes }
    }
}
