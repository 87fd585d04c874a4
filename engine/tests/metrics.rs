//! The metrics that a run leaves, by name and label. Alone in its binary: a recorder is per process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::compute::{Compute, ComputeConfig};
use engine::{Class, JobEnd, Ticket, events};
use media::{Clock, StreamId, SystemClock};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use models::{Model, ModelError};

#[derive(Clone, Default)]
struct Sums {
    sums: Arc<Mutex<BTreeMap<String, u64>>>,
    described: Arc<Mutex<Vec<String>>>,
}

struct Sum {
    name: String,
    sums: Sums,
}

impl Sum {
    fn add(&self, by: u64) {
        *self.sums.sums.lock().unwrap().entry(self.name.clone()).or_default() += by;
    }
}

impl CounterFn for Sum {
    fn increment(&self, value: u64) {
        self.add(value);
    }
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Sum {
    fn record(&self, _: f64) {
        self.add(1);
    }
}

impl Sums {
    fn of(&self, key: &Key) -> Arc<Sum> {
        let labels = key.labels().map(|l| format!("{}={}", l.key(), l.value()));
        let name = format!("{}{{{}}}", key.name(), labels.collect::<Vec<_>>().join(","));
        Arc::new(Sum { name, sums: self.clone() })
    }

    fn describe(&self, name: &KeyName) {
        self.described.lock().unwrap().push(name.as_str().to_owned());
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.of(key))
    }
}

struct Sleepy;

impl Model for Sleepy {
    type Input = ();
    type Output = ();

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[()]) -> Result<Vec<()>, ModelError> {
        // Long enough that its cost is above zero microseconds.
        let sum = (0..200_000u64).fold(0u64, |sum, n| std::hint::black_box(sum ^ n));
        assert!(sum < u64::MAX);
        Ok(batch.to_vec())
    }
}

#[tokio::test]
async fn every_job_is_counted_under_class_model_and_end() {
    let sums = Sums::default();
    metrics::set_global_recorder(sums.clone()).unwrap();
    events::describe();
    let clock = Arc::new(SystemClock::new());
    let compute = Compute::start(ComputeConfig::for_lanes(1), clock.clone()).unwrap();
    let model = compute.register("sleepy", Class::Audio, || Ok(Sleepy)).unwrap();
    let ticket = |deadline| Ticket { stream: StreamId::from("mic"), priority: 0, deadline };
    for _ in 0..5 {
        assert!(matches!(model.run(ticket(None), ()).await, JobEnd::Done { .. }));
    }
    // Due at once, so that it cannot be made.
    assert_eq!(model.run(ticket(Some(clock.now())), ()).await, JobEnd::Shed);
    compute.shutdown(Duration::from_secs(5)).await;
    let expected = [
        ("pipeline_jobs_total{class=audio,model=sleepy,end=done}", 5),
        ("pipeline_jobs_total{class=audio,model=sleepy,end=shed}", 1),
        ("pipeline_job_queue_seconds{class=audio,model=sleepy}", 5),
        ("pipeline_job_compute_seconds{class=audio,model=sleepy}", 5),
        // The first run of an instance says little about the next.
        ("pipeline_piece_seconds{class=audio,model=sleepy}", 4),
        ("pipeline_batch_size{class=audio,model=sleepy}", 5),
        ("pipeline_batches_total{class=audio,why=order}", 5),
    ];
    // Events are counted just after the answers they belong to.
    let is_counted = |(name, count): &(&str, u64)| {
        sums.sums.lock().unwrap().get(*name).is_some_and(|found| found >= count)
    };
    while !expected.iter().all(is_counted) {
        tokio::task::yield_now().await;
    }
    let found = sums.sums.lock().unwrap().clone();
    for (name, count) in expected {
        assert_eq!(found.get(name), Some(&count), "{name} of {found:#?}");
        let family = name.split('{').next().unwrap();
        assert!(sums.described.lock().unwrap().iter().any(|d| d == family), "{family} undescribed");
    }
}
