//! The arithmetic of `models`: processor time of work of several sizes, and how long a run under way takes to end.
//!
//! Processor time of the one thread that works, so that whoever else computes on the machine moves it little; the
//! time to end is wall time, since somebody waits for it.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use media::Clock;
use models::cost::{ModelCost, Quantiles, SizeCost, WorkUnit};
use models::{Interrupt, Model, ModelError};

use super::machine::thread_time;
use super::stats::Times;
use crate::cost::rounded;

/// Runs of a size before any is counted: caches are filled, buffers grown.
const WARM_RUNS: usize = 3;
/// Runs of a size at least, and at most.
const RUNS: (usize, usize) = (12, 200);
/// Runs that are ended half-way.
const ENDED_RUNS: usize = 40;

/// Measures one model after the other.
pub(super) struct Stopwatch {
    pub(super) clock: Arc<dyn Clock>,
    /// Processor time for one size, once it ran often enough.
    pub(super) span: Duration,
}

impl Stopwatch {
    /// Processor time of each call of `run`, which is told its number.
    pub(super) fn times<E>(&self, mut run: impl FnMut(usize) -> Result<(), E>) -> Result<Times, E> {
        for number in 0..WARM_RUNS {
            run(number)?;
        }
        let mut times = Times::default();
        let began = thread_time();
        for number in 0..RUNS.1 {
            let from = thread_time();
            if number >= RUNS.0 && from.saturating_sub(began) > self.span {
                break;
            }
            run(number)?;
            times.add(thread_time().saturating_sub(from).as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    /// A model that takes batches of `inputs`: sizes 1, 2, 4 … up to its largest.
    pub(super) fn batches<M: Model>(
        &self,
        unit: WorkUnit,
        mut model: M,
        inputs: &[M::Input],
    ) -> Result<ModelCost, ModelError>
    where
        M::Input: Clone,
    {
        let batch_max = model.batch_max().max(1);
        let doubled = std::iter::successors(Some(1), |size| Some(size * 2));
        let mut batches: Vec<usize> = doubled.take_while(|size| *size < batch_max).collect();
        batches.push(batch_max);
        let mut sizes = Vec::new();
        for batch in batches {
            let times = self.times(|number| {
                let members =
                    (0..batch).map(|i| inputs[(number * batch + i) % inputs.len()].clone());
                model.run(&members.collect::<Vec<_>>()).map(drop)
            })?;
            sizes.push(SizeCost { size: batch as u32, ms: quantiles(&times) });
        }
        let interrupt = model.interrupt();
        let interruptible = interrupt.is_some();
        let piece_ms = match interrupt {
            Some(interrupt) => {
                let whole = sizes.first().map(|size| size.ms.p50).unwrap_or_default();
                self.ending(whole, &*interrupt, |number| {
                    model.run(&[inputs[number % inputs.len()].clone()]).map(drop)
                })?
            }
            // The longest run is the longest piece.
            None => sizes.iter().fold(Quantiles::default(), |longest, size| {
                if size.ms.p99 > longest.p99 { size.ms } else { longest }
            }),
        };
        Ok(ModelCost { unit, interruptible, piece_ms, sizes })
    }

    /// How long a run of about `whole_ms` takes to end once it is asked to, at different places in it.
    pub(super) fn ending(
        &self,
        whole_ms: f64,
        interrupt: &dyn Interrupt,
        mut run: impl FnMut(usize) -> Result<(), ModelError>,
    ) -> Result<Quantiles, ModelError> {
        let mut times = Times::default();
        let clock = &*self.clock;
        std::thread::scope(|scope| {
            let (ask, asked) = sync_channel::<Duration>(1);
            let (tell, told) = sync_channel(1);
            scope.spawn(move || {
                while let Ok(after) = asked.recv() {
                    let from = clock.now();
                    while let Some(left) = after.checked_sub(clock.now().since(from)) {
                        std::thread::park_timeout(left.max(Duration::from_micros(20)));
                    }
                    let at = clock.now();
                    interrupt.stop();
                    if tell.send(at).is_err() {
                        return;
                    }
                }
            });
            for number in 0..ENDED_RUNS {
                // Places spread over the run by the golden ratio: evenly, in no order.
                let place = (number as f64 * 0.618_034).fract() * 0.9;
                let after = Duration::from_secs_f64(whole_ms * place / 1e3);
                if ask.send(after).is_err() {
                    break;
                }
                let ran = run(number);
                let ended = clock.now();
                let Ok(at) = told.recv() else { break };
                interrupt.reset();
                match ran {
                    Err(ModelError::Interrupted { .. }) => times.add(ended.ms_since(at)),
                    // It was through before it was asked.
                    Ok(()) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(quantiles(&times))
        })
    }
}

pub(super) fn quantiles(times: &Times) -> Quantiles {
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| rounded(times.at(q).unwrap_or_default()));
    Quantiles { p50, p90, p99 }
}
