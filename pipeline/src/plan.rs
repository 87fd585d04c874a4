//! What a configuration becomes: everything resolved, nothing left to check. A plan can be printed; secrets in
//! it can't.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use actors::plan::{GraphPlan, StreamPlan};
use engine::Class;

/// A compiled configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// None: no server.
    pub server: Option<ServerPlan>,
    /// Who computes how much.
    pub compute: ComputePlan,
    /// Language models by the name that stages use.
    pub models: BTreeMap<String, ModelPlan>,
    /// The stage graph.
    pub graph: GraphPlan,
    /// Sources of the configuration.
    pub streams: Vec<StreamPlan>,
}

/// The HTTP and WebSocket server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerPlan {
    /// Where; port 0 takes a free one. Loopback when there is no token.
    pub listen: SocketAddr,
    /// What clients must send.
    pub token: Option<Secret>,
    /// Whether other programs may use the language models.
    pub language: bool,
}

/// Who computes how much.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputePlan {
    /// How many cores.
    pub lanes: Lanes,
    /// Guaranteed fraction of lane time, beside text.
    pub shares: BTreeMap<Class, f64>,
    /// Every class once, the first first served.
    pub order: Vec<Class>,
    /// Longest wait of a class's oldest job without deadline.
    pub wait_max: Duration,
    /// Whether one lane's worth is kept free of long pieces.
    pub text_lane: bool,
    /// Longest piece that another class may run on the lane that is kept for text.
    pub foreign_piece_max: Duration,
    /// Whether text that is due ends other work half-way.
    pub preempt: bool,
    /// Whether an idle language engine lets go of what it keeps for later.
    pub saves_power: bool,
}

impl ComputePlan {
    /// Lanes on this machine.
    pub fn lanes_here(&self) -> usize {
        match self.lanes {
            Lanes::Auto => std::thread::available_parallelism().map_or(2, usize::from),
            Lanes::Count(lanes) => lanes,
        }
    }
}

/// Cores to compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// One per core of the machine.
    Auto,
    /// This many.
    Count(usize),
}

/// A language model: who answers for it, first that works.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPlan {
    /// In order of preference, at least one.
    pub backends: Vec<BackendPlan>,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq)]
pub enum BackendPlan {
    /// The engine inside this program.
    Embedded {
        /// Catalogue name, or path of a GGUF file.
        model: String,
    },
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Whether `offered` is it. Takes equally long wherever they differ.
    pub fn is(&self, offered: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let mut differs = u8::from(own.len() != offered.len());
        for (i, byte) in offered.iter().enumerate() {
            differs |= std::hint::black_box(byte ^ own.get(i).copied().unwrap_or(!byte));
        }
        std::hint::black_box(differs) == 0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_whole_and_never_printed() {
        let secret = Secret::from("opensesame".to_owned());
        assert!(secret.is(b"opensesame"));
        for other in ["opensesam", "opensesame!", "", "Opensesame", "opensesame\0"] {
            assert!(!secret.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{secret:?}"), "***");
    }
}
