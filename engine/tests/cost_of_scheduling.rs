//! What scheduling itself costs. Ignored, since figures depend on the machine:
//! `cargo nextest run --release -p engine --run-ignored only --no-capture cost_of_scheduling`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use engine::compute::{Compute, ComputeConfig};
use engine::scheduler::{JobSpec, ModelSpec, Outcome, Scheduler, SchedulerConfig, SubmitOutcome};
use engine::{Class, JobEnd, Ticket};
use media::{Clock, Mono, StreamId, SystemClock};
use models::{Model, ModelError};

/// One decision: a job taken in, started and completed, with `queued` others waiting.
fn decisions_per_second(queued: usize, batch_max: usize) -> f64 {
    let mut config = SchedulerConfig::for_lanes(2);
    config.queue_max = usize::MAX;
    let mut scheduler = Scheduler::new(config).unwrap();
    let classes = [Class::Text, Class::TextInput, Class::Vision, Class::Vision, Class::Audio];
    let models: Vec<_> = classes
        .into_iter()
        .enumerate()
        .map(|(n, class)| {
            scheduler.add_model(ModelSpec {
                name: format!("m{n}").into(),
                class,
                batch_max,
                width: 1,
                batch_wait_max: Duration::ZERO,
                interruptible: false,
            })
        })
        .collect();
    let streams: Vec<StreamId> = (0..64).map(|n| StreamId::from(format!("s{n}"))).collect();
    let mut now = Mono(0);
    let mut submitted = 0usize;
    let mut submit = |scheduler: &mut Scheduler, now: Mono| {
        submitted += 1;
        let spec = JobSpec {
            model: models[submitted % models.len()],
            stream: streams[submitted * 7 % streams.len()].clone(),
            priority: 0,
            deadline: (!submitted.is_multiple_of(3)).then(|| now + Duration::from_secs(60)),
            predicted: None,
        };
        assert!(matches!(scheduler.submit(now, spec), SubmitOutcome::Queued(_)));
    };
    for _ in 0..queued {
        submit(&mut scheduler, now);
    }
    let mut running = std::collections::VecDeque::from(scheduler.schedule(now));
    let began = cpu_time();
    let mut decided = 0;
    while decided < 200_000 {
        let dispatch = running.pop_front().unwrap();
        now = now + Duration::from_micros(50);
        for _ in 0..dispatch.jobs.len() {
            submit(&mut scheduler, now);
        }
        decided += dispatch.jobs.len();
        scheduler.complete(now, dispatch.id, Outcome::Done);
        running.extend(scheduler.schedule(now));
        scheduler.take_ended();
        std::hint::black_box(scheduler.next_wakeup(now));
    }
    decided as f64 / (cpu_time() - began).as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn decisions() {
    for queued in [10, 1_000, 10_000] {
        for batch_max in [1, 8] {
            let rate = decisions_per_second(queued, batch_max);
            println!(
                "{queued:>6} queued, batches of up to {batch_max}: {rate:>9.0} decisions per CPU second"
            );
        }
    }
}

struct Null;

impl Model for Null {
    type Input = u64;
    type Output = u64;

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[u64]) -> Result<Vec<u64>, ModelError> {
        Ok(batch.to_vec())
    }
}

fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn submit_to_answer_with_a_null_model() {
    let clock = Arc::new(SystemClock::new());
    let compute = Compute::start(ComputeConfig::for_lanes(2), clock.clone()).unwrap();
    let model = compute.register("null", Class::Vision, || Ok(Null)).unwrap();
    let ticket = |n: u64| Ticket { stream: format!("s{n}").into(), priority: 0, deadline: None };
    const JOBS: u64 = 50_000;
    for askers in [1u64, 16] {
        let (began, cpu) = (clock.now(), cpu_time());
        let asks = (0..askers).map(|asker| {
            let (model, clock) = (model.clone(), clock.clone());
            tokio::spawn(async move {
                let mut waits = Vec::new();
                for n in 0..JOBS / askers {
                    let asked = clock.now();
                    let end = model.run(ticket(asker), n).await;
                    assert!(matches!(end, JobEnd::Done { .. }));
                    waits.push(clock.now().since(asked));
                }
                waits
            })
        });
        let mut waits = Vec::new();
        for ask in asks.collect::<Vec<_>>() {
            waits.extend(ask.await.unwrap());
        }
        waits.sort_unstable();
        let wall = clock.now().since(began).as_secs_f64();
        let cpu = (cpu_time() - cpu).as_secs_f64();
        println!(
            "{askers:>2} askers: {:>6.1} us CPU a job, {:>8.0} jobs/s, wait p50 {:?} p99 {:?}",
            cpu * 1e6 / JOBS as f64,
            JOBS as f64 / wall,
            waits[waits.len() / 2],
            waits[waits.len() * 99 / 100],
        );
    }
    let idle = cpu_time();
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("idle: {:?} CPU in 2 s", cpu_time() - idle);
    let mut wakes = Vec::new();
    for n in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let JobEnd::Done { compute, .. } = model.run(ticket(0), n).await {
            wakes.push(compute);
        }
    }
    wakes.sort_unstable();
    println!(
        "wake from idle to answer: p50 {:?}, worst {:?}",
        wakes[wakes.len() / 2],
        wakes[wakes.len() - 1]
    );
}
