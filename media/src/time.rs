//! Two times that must never be mixed: media time (`Pts`) and the machine's monotonic time (`Mono`).
//!
//! Deciding parts are handed a `Mono`; only acting parts ask a `Clock`.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Media time in microseconds since the stream's start. Never goes back within a track.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Pts(pub i64);

impl Pts {
    /// The stream's start.
    pub const ZERO: Pts = Pts(0);

    /// From milliseconds.
    pub const fn from_ms(ms: i64) -> Self {
        Pts(ms * 1_000)
    }

    /// Whole milliseconds, rounded down.
    pub const fn ms(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Seconds, for arithmetic with rates.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add<Duration> for Pts {
    type Output = Pts;
    fn add(self, rhs: Duration) -> Pts {
        Pts(self.0.saturating_add(rhs.as_micros() as i64))
    }
}

impl Sub for Pts {
    type Output = i64;
    /// Difference in microseconds.
    fn sub(self, rhs: Pts) -> i64 {
        self.0.saturating_sub(rhs.0)
    }
}

impl fmt::Display for Pts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.seconds())
    }
}

/// Half-open span of media time, `start <= t < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Span {
    /// First instant inside.
    pub start: Pts,
    /// First instant after.
    pub end: Pts,
}

impl Span {
    /// Whether `t` lies inside.
    pub fn contains(self, t: Pts) -> bool {
        self.start <= t && t < self.end
    }
}

/// Monotonic machine time in microseconds since the clock's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// From milliseconds since the origin.
    pub const fn from_ms(ms: u64) -> Self {
        Mono(ms * 1_000)
    }

    /// Time passed since `earlier`, zero when `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Signed milliseconds from `earlier` to `self`.
    pub fn ms_since(self, earlier: Mono) -> f64 {
        (self.0 as i64 - earlier.0 as i64) as f64 / 1e3
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, rhs: Duration) -> Mono {
        Mono(self.0.saturating_add(rhs.as_micros() as u64))
    }
}

impl Sub<Duration> for Mono {
    type Output = Mono;
    fn sub(self, rhs: Duration) -> Mono {
        Mono(self.0.saturating_sub(rhs.as_micros() as u64))
    }
}

/// Where acting parts read the time. Tests use one driven by tokio's paused time.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Mono;
}

/// The machine's monotonic clock, counted from its creation.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock whose origin is now.
    #[expect(clippy::new_without_default, reason = "its origin is an effect, not a default")]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn new() -> Self {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Mono {
        Mono(self.0.elapsed().as_micros() as u64)
    }
}
