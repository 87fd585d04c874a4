//! `frames`: frames of the source's video, sampled by time

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::thin::Thinner;
use super::{Kind, PortType, Settings, parse, schema_of};
use crate::port::{Packet, Payload};
use crate::stage::{Next, StageIo, StageLogic};

pub(super) static KIND: Kind = Kind {
    name: "frames",
    about: "frames of the source's video, sampled by time",
    inputs: &[PortType::Video],
    many: false,
    output: PortType::Frames,
    class: Class::Vision,
    schema: schema_of::<FramesSettings>,
    parse: |value| parse(value, Settings::Frames),
};

/// Settings of `frames`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FramesSettings {
    /// Frames per second of media time.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: f64,
    /// Also the first frame after each scene cut.
    pub cuts: bool,
    /// Longest side handed to models, in pixels; larger pictures are scaled down.
    #[schemars(range(min = 32, max = 4096))]
    pub side_max: u32,
}

impl Default for FramesSettings {
    fn default() -> Self {
        FramesSettings { fps: 5.0, cuts: false, side_max: 960 }
    }
}

/// Frame extraction: hands on the frames that its rate asks for.
pub(crate) struct FramesLogic {
    thin: Thinner,
}

impl FramesLogic {
    pub(crate) fn new(settings: &FramesSettings) -> Self {
        FramesLogic { thin: Thinner::new(Some(settings.fps)) }
    }

    fn wants(&mut self, packet: &Packet) -> bool {
        match &packet.payload {
            Payload::Frame(frame) => self.thin.wants(frame),
            _ => false,
        }
    }
}

impl StageLogic for FramesLogic {
    async fn run(&mut self, io: &StageIo) {
        loop {
            io.room().await;
            match io.next() {
                Some(Next::Packet(packet)) => {
                    if self.wants(&packet) {
                        io.forward(&packet);
                    }
                }
                Some(Next::Mark(mark)) => io.answer(&mark, mark.outcome, None),
                Some(Next::End) => {}
                None => return,
            }
        }
    }
}
