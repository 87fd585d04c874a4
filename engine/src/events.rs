//! What happens to jobs and lanes, declared once: metrics, traces and timelines come from these.
//!
//! Raised by [`compute`](crate::compute), outside its lock.

use std::sync::Arc;
use std::time::Duration;

use media::{Mono, StreamId};
use metrics::{
    SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::Class;
use crate::scheduler::{DispatchId, End, Why};

const JOBS: &str = "pipeline_jobs_total";
const QUEUE: &str = "pipeline_job_queue_seconds";
const COMPUTE: &str = "pipeline_job_compute_seconds";
const BATCH: &str = "pipeline_batch_size";
const STARTS: &str = "pipeline_batches_total";
const ERROR: &str = "pipeline_cost_error_ratio";
const PREEMPTED: &str = "pipeline_preempted_seconds";
/// Counted by the language engine's watcher.
pub(crate) const RECYCLED: &str = "pipeline_language_recycled_total";
pub(crate) const ANSWER_CACHE: &str = "pipeline_answer_cache_total";
pub(crate) const ROUTES: &str = "pipeline_language_routes_total";
pub(crate) const MODELS_LOADED: &str = "pipeline_language_models_loaded_total";
pub(crate) const MODELS_LET_GO: &str = "pipeline_language_models_let_go_total";
pub(crate) const MODELS_MB: &str = "pipeline_language_models_mb";
const STUCK: &str = "pipeline_lanes_stuck";
const STUCK_TOTAL: &str = "pipeline_lane_stuck_total";

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A batch got its lanes.
    Started {
        /// When.
        at: Mono,
        /// Which batch.
        dispatch: DispatchId,
        /// Its rank.
        class: Class,
        /// Its model.
        model: Arc<str>,
        /// The lanes it holds.
        lanes: Vec<usize>,
        /// Its members' streams.
        streams: Vec<StreamId>,
        /// Why now.
        why: Why,
    },
    /// A batch gave its lanes back.
    Finished {
        /// When.
        at: Mono,
        /// Which batch.
        dispatch: DispatchId,
        /// Its rank.
        class: Class,
        /// Its model.
        model: Arc<str>,
        /// The lanes that are free again.
        lanes: Vec<usize>,
        /// Start to end.
        compute: Duration,
        /// p90 believed at its start.
        estimate: Option<Duration>,
    },
    /// A batch was ended half-way for text and gave its lanes back; its jobs wait again.
    Preempted {
        /// When.
        at: Mono,
        /// Which batch.
        dispatch: DispatchId,
        /// Its rank.
        class: Class,
        /// Its model.
        model: Arc<str>,
        /// The lanes that are free again.
        lanes: Vec<usize>,
        /// Computed for nothing.
        lost: Duration,
    },
    /// A job ended.
    Ended {
        /// When.
        at: Mono,
        /// Its rank.
        class: Class,
        /// Its model.
        model: Arc<str>,
        /// Its stream.
        stream: StreamId,
        /// How.
        end: End,
        /// Submission to start, or to its end if it never started.
        queue: Duration,
        /// Start to end of its batch.
        compute: Duration,
    },
    /// The number of quarantined lanes changed.
    Stuck {
        /// When.
        at: Mono,
        /// Quarantined now.
        lanes: Vec<usize>,
        /// Quarantined before.
        before: usize,
    },
}

/// The label of a class, as in configurations.
pub fn class_label(class: Class) -> &'static str {
    match class {
        Class::Text => "text",
        Class::TextInput => "textinput",
        Class::Vision => "vision",
        Class::Audio => "audio",
    }
}

/// The label of an end, as in the ledger.
pub fn end_label(end: End) -> &'static str {
    match end {
        End::Done => "done",
        End::Late => "late",
        End::Shed => "shed",
        End::Expired => "expired",
        End::Cancelled => "cancelled",
        End::Failed => "failed",
    }
}

/// Tells the installed recorder what the metrics mean. Once, after installing it.
pub fn describe() {
    describe_counter!(JOBS, Unit::Count, "Jobs by how they ended.");
    describe_histogram!(QUEUE, Unit::Seconds, "Submission to start, of jobs that started.");
    describe_histogram!(COMPUTE, Unit::Seconds, "Start to end of a job's batch.");
    describe_histogram!(BATCH, Unit::Count, "Members of a batch.");
    describe_counter!(STARTS, Unit::Count, "Batches by why they were started.");
    describe_histogram!(ERROR, "Actual over estimated (p90) cost of a batch.");
    describe_histogram!(
        PREEMPTED,
        Unit::Seconds,
        "Computed for nothing by batches that were ended half-way for text."
    );
    describe_counter!(RECYCLED, Unit::Count, "Language engines replaced by a fresh process.");
    describe_counter!(ANSWER_CACHE, Unit::Count, "Looks into the answer cache by what they found.");
    describe_counter!(ROUTES, Unit::Count, "Requests by the route they took.");
    describe_counter!(
        MODELS_LOADED,
        Unit::Count,
        "Language models loaded on demand or ahead of it."
    );
    describe_counter!(MODELS_LET_GO, Unit::Count, "Language models let go to make room.");
    describe_gauge!(MODELS_MB, "Memory of the language models of a pool, in MB.");
    describe_gauge!(STUCK, Unit::Count, "Lanes quarantined because their call has not returned.");
    describe_counter!(STUCK_TOTAL, Unit::Count, "Times a lane was quarantined.");
}

/// Counts an event.
pub(crate) fn record(event: &Event) {
    let labels = |class: &Class, model: &Arc<str>| {
        [("class", SharedString::const_str(class_label(*class))), ("model", model.clone().into())]
    };
    match event {
        Event::Started { class, model, streams, why, .. } => {
            histogram!(BATCH, &labels(class, model)).record(streams.len() as f64);
            let why = match why {
                Why::Order => "order",
                Why::Share => "share",
                Why::Aged => "aged",
            };
            counter!(STARTS, "class" => class_label(*class), "why" => why).increment(1);
        }
        Event::Finished { class, model, compute, estimate, .. } => {
            if let Some(estimate) = estimate.filter(|e| !e.is_zero()) {
                let ratio = compute.as_secs_f64() / estimate.as_secs_f64();
                histogram!(ERROR, &labels(class, model)).record(ratio);
            }
        }
        Event::Preempted { class, model, lost, .. } => {
            histogram!(PREEMPTED, &labels(class, model)).record(lost.as_secs_f64());
        }
        Event::Ended { class, model, end, queue, compute, .. } => {
            let [class, model] = labels(class, model);
            let by_end = [class.clone(), model.clone(), ("end", end_label(*end).into())];
            counter!(JOBS, &by_end).increment(1);
            if !compute.is_zero() {
                histogram!(QUEUE, &[class.clone(), model.clone()]).record(queue.as_secs_f64());
                histogram!(COMPUTE, &[class, model]).record(compute.as_secs_f64());
            }
        }
        Event::Stuck { lanes, before, .. } => {
            gauge!(STUCK).set(lanes.len() as f64);
            if lanes.len() > *before {
                counter!(STUCK_TOTAL).increment((lanes.len() - before) as u64);
                tracing::error!(?lanes, "a model call has not returned; its lane is quarantined");
            } else {
                tracing::info!(?lanes, "a stuck model call returned; its lane is back");
            }
        }
    }
}
