//! What the scheduler's own decisions cost.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Class;
use engine::scheduler::{JobSpec, ModelKey, ModelSpec, Outcome, Scheduler, SchedulerConfig};
use media::{Mono, StreamId};

use super::machine;
use super::report::{Aim, Report};

/// Jobs that wait while others are decided about.
const QUEUED: usize = 1_000;
const DECIDED: usize = 100_000;

pub(super) fn measure(report: &mut Report) {
    report.hold("decision_us_at_1000_queued", decision_us(), Aim::AtMost(10.0));
}

/// Processor time of a job taken in, started and completed.
fn decision_us() -> Option<f64> {
    let config = SchedulerConfig { queue_max: usize::MAX, ..SchedulerConfig::for_lanes(2) };
    let mut scheduler = Scheduler::new(config).ok()?;
    let classes = [Class::Text, Class::TextInput, Class::Vision, Class::Vision, Class::Audio];
    let models: Vec<ModelKey> = classes
        .iter()
        .enumerate()
        .map(|(n, class)| {
            scheduler.add_model(ModelSpec {
                name: format!("m{n}").into(),
                class: *class,
                batch_max: 1,
                width: 1,
                batch_wait_max: Duration::ZERO,
                interruptible: false,
            })
        })
        .collect();
    let streams: Vec<StreamId> = (0..64).map(|n| StreamId::from(format!("s{n}"))).collect();
    let mut submitted = 0_usize;
    let mut submit = |scheduler: &mut Scheduler, now: Mono| {
        submitted += 1;
        let deadline = (!submitted.is_multiple_of(3)).then(|| now + Duration::from_secs(60));
        let spec = JobSpec {
            model: models[submitted % models.len()],
            stream: streams[submitted * 7 % streams.len()].clone(),
            priority: 0,
            deadline,
            predicted: None,
        };
        scheduler.submit(now, spec);
    };
    let mut now = Mono(0);
    (0..QUEUED).for_each(|_| submit(&mut scheduler, now));
    let mut running = VecDeque::from(scheduler.schedule(now));
    let began = machine::processor_time();
    let mut decided = 0;
    while decided < DECIDED {
        let dispatch = running.pop_front()?;
        now = now + Duration::from_micros(50);
        dispatch.jobs.iter().for_each(|_| submit(&mut scheduler, now));
        decided += dispatch.jobs.len();
        scheduler.complete(now, dispatch.id, Outcome::Done);
        running.extend(scheduler.schedule(now));
        scheduler.take_ended();
        std::hint::black_box(scheduler.next_wakeup(now));
    }
    Some((machine::processor_time() - began).as_secs_f64() * 1e6 / decided as f64)
}
