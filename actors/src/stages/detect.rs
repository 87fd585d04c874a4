//! `detect`: objects with boxes, tracked over time

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use ::models::vision::{Tracker, TrackerSettings};
use engine::{Class, JobEnd, Ticket};
use futures_util::future::BoxFuture;
use media::{Detection, Frame, Observation, Pts};

use super::ordered::FrameStage;
use super::thin::Thinner;
use super::{Kind, PortType, Settings, parse, schema_of};
use crate::ask::Asked;

pub(super) static KIND: Kind = Kind {
    name: "detect",
    about: "objects with boxes, tracked over time",
    inputs: &[PortType::Frames],
    many: false,
    output: PortType::Objects,
    class: Class::Vision,
    schema: schema_of::<DetectSettings>,
    parse: |value| parse(value, Settings::Detect),
};

/// Settings of `detect`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DetectSettings {
    /// Catalogue name, or path of an ONNX file of the same shape.
    pub model: String,
    /// At most this many frames per second of media time; all by default.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: Option<f64>,
    /// Detections below this score are left out.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub score_min: f32,
    /// Whether objects get a track id that stays the same over windows.
    pub track: bool,
}

impl Default for DetectSettings {
    fn default() -> Self {
        DetectSettings { model: "ssdlite-300".into(), fps: None, score_min: 0.4, track: true }
    }
}

/// Detection and tracking.
pub(crate) struct Detecting {
    model: Asked<Frame, Vec<Detection>>,
    thin: Thinner,
    score_min: f32,
    tracker: Option<Tracker>,
}

impl Detecting {
    pub(crate) fn new(settings: &DetectSettings, model: Asked<Frame, Vec<Detection>>) -> Self {
        Detecting {
            model,
            thin: Thinner::new(settings.fps),
            score_min: settings.score_min,
            tracker: settings.track.then(|| {
                let defaults = TrackerSettings::default();
                Tracker::new(TrackerSettings { score_min: settings.score_min, ..defaults })
            }),
        }
    }
}

impl FrameStage for Detecting {
    type Answer = Vec<Detection>;

    fn wants(&mut self, frame: &Frame) -> bool {
        self.thin.wants(frame)
    }

    fn ask(&mut self, ticket: Ticket, frame: Frame) -> BoxFuture<'static, JobEnd<Self::Answer>> {
        self.model.ask(ticket, frame)
    }

    fn settle(&mut self, pts: Pts, found: Vec<Detection>) -> Observation {
        // The tracker also uses weak detections, to carry a track through an occlusion.
        let objects = match &mut self.tracker {
            Some(tracker) => tracker.update(pts, found),
            None => found.into_iter().filter(|object| object.score >= self.score_min).collect(),
        };
        Observation::Objects { pts, objects }
    }
}
