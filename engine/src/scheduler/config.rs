//! The rules as data: ranks, shares, limits.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::Class;

/// All classes, in the default order.
pub const CLASSES: [Class; 4] = [Class::Text, Class::TextInput, Class::Vision, Class::Audio];

/// What one scheduler rules: the lanes of one device (the processor's cores, an accelerator's slots, the
/// requests a remote server takes at once) and in which order classes get them.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Lanes of the device.
    pub lanes: usize,
    /// Every class once, the first first served.
    pub order: Vec<Class>,
    /// Guaranteed fraction of lane time per class while that class has work, owed up to one second of it.
    /// Absent classes have none.
    pub shares: BTreeMap<Class, f64>,
    /// Whether one lane's worth is kept for text: of several healthy lanes, long pieces of other classes hold
    /// all but one at most, except work without deadline while no text is runnable. Which lane that is may
    /// change, since text keeps the lane it has.
    pub text_lane: bool,
    /// Whether text that is due takes the lane of a batch under way, where the model can be interrupted. The batch
    /// waits again, each of its jobs at most twice; batches started by a share or for their age are left alone.
    pub preempt: bool,
    /// Longest piece, by predicted cost, that another class may run on text's lane.
    pub foreign_piece_max: Duration,
    /// A batch grows no longer than this by predicted cost; a single job may be longer.
    pub batch_piece_max: Duration,
    /// Queued jobs per stream and model. A job with a deadline displaces the stream's oldest such job,
    /// which is shed; a job without one is refused until there is room.
    pub queue_max: usize,
    /// Longest wait of a class's oldest job without deadline: then it goes before everything else, one
    /// per class in that time.
    pub wait_max: Duration,
    /// While a model's work is refused, one job in this time runs nevertheless.
    pub probe_interval: Duration,
    /// A batch running longer than this fails, and its lane is quarantined until the call returns.
    pub stuck_after: Duration,
}

impl SchedulerConfig {
    /// Defaults for the processor with `lanes` cores.
    pub fn for_lanes(lanes: usize) -> Self {
        SchedulerConfig {
            lanes,
            order: CLASSES.to_vec(),
            shares: BTreeMap::from([(Class::Vision, 0.25), (Class::Audio, 0.15)]),
            text_lane: true,
            preempt: true,
            foreign_piece_max: Duration::from_millis(30),
            batch_piece_max: Duration::from_millis(60),
            queue_max: 64,
            wait_max: Duration::from_secs(5),
            probe_interval: Duration::from_secs(1),
            stuck_after: Duration::from_secs(10),
        }
    }

    pub(super) fn check(&self) -> Result<(), SchedulerError> {
        if self.lanes == 0 {
            return Err(SchedulerError::NoLanes);
        }
        for class in CLASSES {
            let found = self.order.iter().filter(|c| **c == class).count();
            if found != 1 {
                return Err(SchedulerError::Order { class, found });
            }
        }
        if let Some((class, share)) = self.shares.iter().find(|(_, s)| !(0.0..=1.0).contains(*s)) {
            return Err(SchedulerError::Share { class: *class, share: *share });
        }
        let sum: f64 = self.shares.values().sum();
        if sum > 1.0 {
            return Err(SchedulerError::ShareSum { sum });
        }
        if self.queue_max == 0 {
            return Err(SchedulerError::NoQueue);
        }
        Ok(())
    }
}

/// A rule that cannot hold.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SchedulerError {
    /// Nothing to compute on.
    #[error("0 lanes configured, expected at least 1")]
    NoLanes,
    /// Nothing could ever wait.
    #[error("a queue of 0 jobs configured, expected at least 1")]
    NoQueue,
    /// The order leaves a class out or names it twice.
    #[error("class order names {class:?} {found} times, expected each of {CLASSES:?} once")]
    Order {
        /// Which class.
        class: Class,
        /// How often it is named.
        found: usize,
    },
    /// Not a fraction.
    #[error("guaranteed share of {class:?} is {share}, expected 0 to 1")]
    Share {
        /// Whose share.
        class: Class,
        /// As configured.
        share: f64,
    },
    /// More promised than there is.
    #[error("guaranteed shares add up to {sum}, expected at most 1")]
    ShareSum {
        /// Their sum.
        sum: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_rules_are_refused_by_name() {
        let good = SchedulerConfig::for_lanes(2);
        assert_eq!(good.check(), Ok(()));
        let bad = |change: fn(&mut SchedulerConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(bad(|c| c.lanes = 0).contains("0 lanes"));
        assert!(bad(|c| c.queue_max = 0).contains("queue of 0"));
        assert!(bad(|c| c.order = vec![Class::Text]).contains("TextInput 0 times"));
        assert!(bad(|c| c.order.push(Class::Text)).contains("Text 2 times"));
        assert!(bad(|c| _ = c.shares.insert(Class::Audio, f64::NAN)).contains("NaN"));
        assert!(bad(|c| _ = c.shares.insert(Class::Text, 0.7)).contains("at most 1"));
    }
}
