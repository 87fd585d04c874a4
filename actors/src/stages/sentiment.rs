//! `sentiment`: sentiment of what is said

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use ::models::words;
use media::{Observation, Pts};

use crate::port::{Packet, Payload};
use crate::stage::{Next, StageIo, StageLogic, upstream};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "sentiment",
    about: "sentiment of what is said",
    inputs: &[PortType::Speech],
    many: false,
    output: PortType::Tone,
    class: Class::Audio,
    schema: schema_of::<SentimentSettings>,
    parse: |value| parse(value, Settings::Sentiment),
};

/// Settings of `sentiment`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SentimentSettings {
    /// Catalogue name.
    pub model: String,
}

impl Default for SentimentSettings {
    fn default() -> Self {
        SentimentSettings { model: "vader".into() }
    }
}

/// Sentiment of final utterances. A lexicon look-up of a fifth of a millisecond: done in place, without a lease.
pub(crate) struct SentimentLogic;

impl SentimentLogic {
    fn take(&self, io: &StageIo, packet: Packet) {
        let Payload::Observation(Observation::Speech(said)) = packet.payload else { return };
        if !said.is_final {
            return;
        }
        if let Some(tone) = words::sentiment(&said.text) {
            let pts = Pts::from_ms(said.end_ms);
            io.emit(packet.window, packet.deadline, Observation::Tone { pts, tone });
        }
    }
}

impl StageLogic for SentimentLogic {
    async fn run(&mut self, io: &StageIo) {
        loop {
            io.room().await;
            match io.next() {
                Some(Next::Packet(packet)) => self.take(io, packet),
                Some(Next::Mark(mark)) => io.answer(&mark, upstream(&mark), None),
                Some(Next::End) => {}
                None => return,
            }
        }
    }
}
