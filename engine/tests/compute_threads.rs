//! Lanes as real threads: instances, panics, withdrawal, stuck calls, leases, draining. No times are asserted.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use engine::compute::{Compute, ComputeConfig, ModelHandle, NoLane};
use engine::{Class, JobEnd, Ticket};
use media::{Clock, Mono, StreamId, SystemClock};
use models::{Interrupt, Model, ModelError};

fn ticket(stream: &str, deadline: Option<Mono>) -> Ticket {
    Ticket { stream: StreamId::from(stream), priority: 0, deadline }
}

fn done<T>(end: JobEnd<T>) -> T {
    match end {
        JobEnd::Done { output, .. } => output,
        JobEnd::Failed(error) => panic!("failed: {error}"),
        JobEnd::Shed | JobEnd::Expired | JobEnd::Cancelled => panic!("ended without an answer"),
    }
}

fn compute(lanes: usize, change: impl FnOnce(&mut ComputeConfig)) -> (Compute, Arc<SystemClock>) {
    let clock = Arc::new(SystemClock::new());
    let mut config = ComputeConfig::for_lanes(lanes);
    change(&mut config);
    (Compute::start(config, clock.clone()).unwrap(), clock)
}

/// Doubles; misbehaves on request.
struct Double {
    instance: usize,
}

const PANIC: u64 = u64::MAX;
const SILENCE: u64 = u64::MAX - 1;
const REFUSAL: u64 = u64::MAX - 2;

impl Model for Double {
    type Input = u64;
    type Output = (u64, usize);

    fn batch_max(&self) -> usize {
        4
    }

    fn run(&mut self, batch: &[u64]) -> Result<Vec<(u64, usize)>, ModelError> {
        match batch {
            [PANIC, ..] => panic!("cannot read {PANIC}"),
            [SILENCE, ..] => Ok(Vec::new()),
            [REFUSAL, ..] => Err(ModelError::Run { name: "double".into(), detail: "no".into() }),
            numbers => Ok(numbers.iter().map(|n| (n * 2, self.instance)).collect()),
        }
    }
}

fn doubles(compute: &Compute) -> (ModelHandle<Double>, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let make = move || Ok(Double { instance: counter.fetch_add(1, Ordering::SeqCst) });
    (compute.register("double", Class::Vision, make).unwrap(), made)
}

/// Runs until it is let go, so that a test decides how long a call takes.
struct Held {
    running: SyncSender<u32>,
    release: Arc<Mutex<Receiver<()>>>,
}

impl Model for Held {
    type Input = u32;
    type Output = u32;

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[u32]) -> Result<Vec<u32>, ModelError> {
        self.running.send(batch[0]).unwrap();
        self.release.lock().unwrap().recv().unwrap();
        Ok(batch.to_vec())
    }
}

fn held(compute: &Compute, class: Class) -> (ModelHandle<Held>, Receiver<u32>, SyncSender<()>) {
    let (running, started) = sync_channel(64);
    let (release, released) = sync_channel(64);
    let released = Arc::new(Mutex::new(released));
    let make = move || Ok(Held { running: running.clone(), release: released.clone() });
    (compute.register("held", class, make).unwrap(), started, release)
}

async fn many_jobs_of_many_streams(compute: Compute) {
    let (model, made) = doubles(&compute);
    let jobs = (0..2_000u64).map(|n| {
        let model = model.clone();
        tokio::spawn(async move {
            let stream = format!("s{}", n % 7);
            (n, done(model.run(ticket(&stream, None), n).await).0)
        })
    });
    for job in jobs.collect::<Vec<_>>() {
        let (n, answer) = job.await.unwrap();
        assert_eq!(answer, n * 2, "an answer went to another job");
    }
    assert!(made.load(Ordering::SeqCst) <= 2, "more instances than lanes");
    let stats = compute.stats();
    let counts = stats.models[0].counts;
    assert_eq!((counts.submitted, counts.done), (2_000, 2_000));
    assert!(counts.balanced() && stats.lanes_held == 0);
    assert!(stats.models[0].cost_p90_ms.is_some(), "no cost was learned");
    assert!(compute.shutdown(Duration::from_secs(5)).await);
    assert_eq!(model.run(ticket("s0", None), 1).await, JobEnd::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_reach_their_askers_on_many_threads() {
    many_jobs_of_many_streams(compute(2, |_| ()).0).await;
}

#[tokio::test(flavor = "current_thread")]
async fn answers_reach_their_askers_on_one_thread() {
    many_jobs_of_many_streams(compute(2, |_| ()).0).await;
}

#[test]
fn a_model_that_cannot_load_says_so_at_registration() {
    let (compute, _) = compute(1, |_| ());
    let absent = ModelError::Absent { name: "x".into(), path: "x.onnx".into() };
    let expected = absent.clone();
    let refused = compute.register("x", Class::Vision, move || Err::<Double, _>(absent.clone()));
    assert_eq!(refused.err(), Some(expected));
    let refused =
        compute.register("y", Class::Vision, || -> Result<Double, _> { panic!("weights") });
    assert!(refused.err().unwrap().to_string().contains("panicked: weights"));
}

#[tokio::test]
async fn a_panic_costs_its_batch_and_its_instance_only() {
    let (compute, _) = compute(1, |_| ());
    let (model, made) = doubles(&compute);
    assert_eq!(done(model.run(ticket("a", None), 4).await), (8, 0));
    match model.run(ticket("a", None), PANIC).await {
        JobEnd::Failed(error) => assert!(error.to_string().contains("cannot read"), "{error}"),
        end => panic!("{end:?}"),
    }
    assert_eq!(done(model.run(ticket("a", None), 5).await), (10, 1), "a new instance answers");
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_wrong_number_of_answers_fails_the_batch() {
    let (compute, _) = compute(1, |_| ());
    let (model, made) = doubles(&compute);
    match model.run(ticket("a", None), SILENCE).await {
        JobEnd::Failed(ModelError::Answer { found, expected, .. }) => {
            assert_eq!((found.as_str(), expected.as_str()), ("0 outputs", "1 outputs"));
        }
        end => panic!("{end:?}"),
    }
    assert!(matches!(
        model.run(ticket("a", None), REFUSAL).await,
        JobEnd::Failed(ModelError::Run { .. })
    ));
    assert_eq!(made.load(Ordering::SeqCst), 1, "the instance itself is sound");
    assert_eq!(compute.stats().models[0].counts.failed, 2);
}

#[tokio::test]
async fn a_dropped_future_withdraws_its_job_and_a_deadline_ends_a_waiting_one() {
    let (compute, clock) = compute(1, |_| ());
    let (model, started, release) = held(&compute, Class::Vision);
    let first = tokio::spawn({
        let model = model.clone();
        async move { model.run(ticket("a", None), 1).await }
    });
    let started = tokio::task::spawn_blocking(move || (started.recv().unwrap(), started));
    let (_, started) = started.await.unwrap();
    let second = tokio::spawn({
        let model = model.clone();
        async move { model.run(ticket("a", None), 2).await }
    });
    while compute.stats().models[0].counts.queued == 0 {
        tokio::task::yield_now().await;
    }
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    assert_eq!(compute.stats().models[0].counts.cancelled, 1);
    // Nothing else happens on this device: only its own timer can tell.
    let deadline = clock.now() + Duration::from_millis(20);
    assert_eq!(model.run(ticket("a", Some(deadline)), 3).await, JobEnd::Expired);
    release.send(()).unwrap();
    assert_eq!(done(first.await.unwrap()), 1);
    drop((model, compute));
    assert!(started.try_recv().is_err(), "a withdrawn job ran");
}

#[tokio::test]
async fn a_call_that_hangs_fails_its_job_and_its_lane_comes_back_with_it() {
    let (compute, _) = compute(2, |config| {
        config.scheduler.stuck_after = Duration::from_millis(30);
    });
    let (stuck, started, release) = held(&compute, Class::Vision);
    let (doubles, _) = doubles(&compute);
    match stuck.run(ticket("a", None), 1).await {
        JobEnd::Failed(error) => assert!(error.to_string().contains("quarantined"), "{error}"),
        end => panic!("{end:?}"),
    }
    let stats = compute.stats();
    assert_eq!((stats.lanes_stuck.len(), stats.lanes_held), (1, 1));
    assert_eq!(done(doubles.run(ticket("a", None), 3).await).0, 6, "the other lane goes on");
    started.recv().unwrap();
    release.send(()).unwrap();
    while compute.stats().lanes_held > 0 {
        tokio::task::yield_now().await;
    }
    let stats = compute.stats();
    assert!(stats.lanes_stuck.is_empty());
    let counts = stats.models[0].counts;
    assert_eq!((counts.failed, counts.done), (1, 0), "one end, though it answered after all");
    assert!(compute.shutdown(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_lease_holds_its_lane_until_dropped_and_renews_without_a_gap() {
    let (compute, _) = compute(1, |config| config.scheduler.shares.clear());
    let (doubles, _) = doubles(&compute);
    let step = Duration::from_millis(5);
    let guard = compute.lane(ticket("talk", None), Class::Text, "language", step).await.unwrap();
    assert_eq!(guard.lane(), 0);
    let waiting = tokio::spawn(async move { done(doubles.run(ticket("cam", None), 1).await).0 });
    while compute.stats().classes[&Class::Vision].counts.queued == 0 {
        tokio::task::yield_now().await;
    }
    let guard = guard.renew(0, None, step).await.unwrap();
    let stats = compute.stats();
    assert_eq!(stats.classes[&Class::Text].counts.done, 1);
    assert_eq!(
        stats.classes[&Class::Vision].counts.queued,
        1,
        "vision slipped in between two steps"
    );
    drop(guard);
    assert_eq!(waiting.await.unwrap(), 2);
    let stats = compute.stats();
    assert_eq!(stats.classes[&Class::Text].counts.done, 2);
    assert!(stats.models.iter().all(|m| m.counts.balanced()));
    compute.shutdown(Duration::from_secs(5)).await;
    let refused = compute.lane(ticket("talk", None), Class::Text, "language", step).await;
    assert_eq!(refused.err(), Some(NoLane::Closing));
}

#[tokio::test]
async fn a_file_waits_for_room_instead_of_losing_jobs() {
    let (compute, _) = compute(1, |config| config.scheduler.queue_max = 2);
    let (model, _) = doubles(&compute);
    let jobs = (0..200).map(|n| {
        let model = model.clone();
        tokio::spawn(async move { done(model.run(ticket("clip", None), n).await).0 })
    });
    for (n, job) in jobs.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(job.await.unwrap(), n as u64 * 2);
    }
    let counts = compute.stats().models[0].counts;
    assert_eq!(counts.done, 200);
    assert!(counts.balanced());
}

#[tokio::test]
async fn shutdown_waits_for_what_runs_up_to_its_limit_and_cancels_what_waits() {
    let (compute, _) = compute(1, |_| ());
    let (model, started, release) = held(&compute, Class::Vision);
    let ask = |n| {
        let model = model.clone();
        tokio::spawn(async move { model.run(ticket("a", None), n).await })
    };
    let first = ask(1);
    let started = tokio::task::spawn_blocking(move || (started.recv().unwrap(), started));
    let (_, _started) = started.await.unwrap();
    let second = ask(2);
    while compute.stats().models[0].counts.queued == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!compute.shutdown(Duration::from_millis(20)).await, "something was left");
    assert_eq!(second.await.unwrap(), JobEnd::Cancelled);
    release.send(()).unwrap();
    assert_eq!(done(first.await.unwrap()), 1, "what ran is still answered");
}

#[tokio::test]
async fn a_model_loaded_again_goes_on_with_its_books_and_costs() {
    let (compute, _) = compute(1, |_| ());
    let (model, _) = doubles(&compute);
    for n in 0..3 {
        done(model.run(ticket("a", None), n).await);
    }
    drop(model);
    let (model, _) = doubles(&compute);
    done(model.run(ticket("a", None), 9).await);
    let stats = compute.stats();
    assert_eq!(stats.models.len(), 1);
    assert_eq!(stats.models[0].counts.done, 4);
    let (_second, _) = doubles(&compute);
    assert_eq!(compute.stats().models.len(), 2, "two that live side by side never share a batch");
}

#[tokio::test]
async fn lanes_end_with_their_last_owner() {
    let lanes = |wanted: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|t| std::fs::read_to_string(t.unwrap().path().join("comm")).ok());
        names.filter(|name| name.trim() == wanted).count()
    };
    // The highest lane of an unusual number, since other tests of this process may run lanes, too.
    let (compute, _) = compute(14, |_| ());
    let (model, _) = doubles(&compute);
    while lanes("lane-13") == 0 {
        tokio::task::yield_now().await;
    }
    drop(compute);
    done(model.run(ticket("a", None), 1).await);
    drop(model);
    while lanes("lane-13") > 0 {
        tokio::task::yield_now().await;
    }
}

/// Takes its time, unless it is ended before; counts how often it began.
struct Patient {
    halt: Arc<Halt>,
    begun: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Halt {
    is_asked: Mutex<bool>,
    changed: Condvar,
}

impl Interrupt for Halt {
    fn stop(&self) {
        *self.is_asked.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn reset(&self) {
        *self.is_asked.lock().unwrap() = false;
    }
}

impl Model for Patient {
    type Input = Duration;
    type Output = usize;

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[Duration]) -> Result<Vec<usize>, ModelError> {
        let begun = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let is_asked = self.halt.is_asked.lock().unwrap();
        let waited = self.halt.changed.wait_timeout_while(is_asked, batch[0], |asked| !*asked);
        match *waited.unwrap().0 {
            true => Err(ModelError::Interrupted { name: "patient".into() }),
            false => Ok(vec![begun]),
        }
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.halt.clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn due_text_ends_a_run_half_way_and_the_job_is_answered_later() {
    let (compute, clock) = compute(1, |_| ());
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = begun.clone();
    let make = move || Ok(Patient { halt: Arc::default(), begun: counter.clone() });
    let patient = compute.register("patient", Class::Vision, make).unwrap();
    let make = || Ok(Double { instance: 0 });
    let text = compute.register("text", Class::Text, make).unwrap();
    // The first run is cold, and teaches no cost.
    for _ in 0..2 {
        done(patient.run(ticket("a", None), Duration::from_millis(500)).await);
    }
    let long = {
        let patient = patient.clone();
        // Far longer than the cost that was learned: only an interruption ends it before the text's deadline.
        tokio::spawn(async move { patient.run(ticket("a", None), Duration::from_secs(3)).await })
    };
    while begun.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let deadline = clock.now() + Duration::from_millis(2_500);
    assert_eq!(done(text.run(ticket("b", Some(deadline)), 4).await), (8, 0));
    assert_eq!(done(long.await.unwrap()), 4, "begun once more, and answered once");
    let stats = compute.stats();
    let counts = stats.models[0].counts;
    assert_eq!((counts.submitted, counts.done, counts.preempted), (3, 3, 1));
    assert!(counts.balanced());
}
