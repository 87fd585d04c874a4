//! A naive reference: one flat list of jobs, searched whole at every decision, and intervals instead of sums.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Class;
use engine::scheduler::{
    Counts, Dispatch, DispatchId, End, JobId, JobSpec, ModelKey, ModelSpec, Outcome, Scheduler,
    SchedulerConfig, SubmitOutcome, Why,
};
use media::{Mono, StreamId};

/// Class, cost of one member, largest batch.
pub(crate) const MODELS: [(Class, u64, usize); 6] = [
    (Class::Text, 12, 1),
    (Class::TextInput, 40, 2),
    (Class::Vision, 18, 8),
    (Class::Vision, 45, 2),
    (Class::Audio, 4, 4),
    (Class::Text, 25, 3),
];

/// Models whose batches can be ended half-way.
const INTERRUPTIBLE: [usize; 2] = [2, 4];
/// What the scheduler promises: interruptions of one job, and what must be left of a batch that is ended.
const PREEMPTED_MAX: u64 = 2;
const LEFT_MIN: Duration = Duration::from_millis(3);

/// One submission of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) gap_ms: u64,
    pub(crate) model: usize,
    pub(crate) stream: u8,
    pub(crate) priority: i32,
    pub(crate) slack_ms: Option<u64>,
    pub(crate) cancel_one: bool,
}

pub(crate) struct Run {
    pub(crate) dispatches: Vec<(Mono, Dispatch)>,
    /// How often each reason to start and each end occurred.
    pub(crate) seen: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Job {
    model: usize,
    stream: u8,
    priority: i32,
    deadline: Option<Mono>,
    submitted: Mono,
    preempted: u64,
    served_before: u64,
}

/// A class between two events.
#[derive(Clone, Copy, Debug)]
struct Past {
    passed_us: u64,
    lanes_healthy: usize,
    lanes_held: usize,
    had_work: bool,
}

struct Oracle {
    scheduler: Scheduler,
    config: SchedulerConfig,
    keys: Vec<ModelKey>,
    now: Mono,
    queued: BTreeMap<JobId, Job>,
    running: BTreeMap<DispatchId, (Mono, Dispatch, usize)>,
    jobs: BTreeMap<JobId, Job>,
    ended: BTreeSet<JobId>,
    stuck: BTreeSet<DispatchId>,
    leaving: BTreeSet<DispatchId>,
    long: BTreeSet<DispatchId>,
    served: BTreeMap<(Class, u8), u64>,
    services: u64,
    counts: Vec<Counts>,
    history: BTreeMap<Class, Vec<Past>>,
    aged: BTreeMap<Class, Mono>,
    seed: u64,
    dispatches: Vec<(Mono, Dispatch)>,
    seen: BTreeMap<String, usize>,
}

/// Runs a trace to its end, checking every rule at every event.
pub(crate) fn run(config: SchedulerConfig, loads: &[Load], seed: u64) -> Run {
    let mut scheduler = Scheduler::new(config.clone()).unwrap();
    let add = |(index, (class, _, batch_max)): (usize, &(Class, u64, usize))| {
        scheduler.add_model(ModelSpec {
            name: format!("m{index}").into(),
            class: *class,
            batch_max: *batch_max,
            width: 1,
            batch_wait_max: Duration::ZERO,
            interruptible: INTERRUPTIBLE.contains(&index),
        })
    };
    let keys = MODELS.iter().enumerate().map(add).collect();
    let mut oracle = Oracle {
        scheduler,
        config,
        keys,
        now: Mono(0),
        queued: BTreeMap::new(),
        running: BTreeMap::new(),
        jobs: BTreeMap::new(),
        ended: BTreeSet::new(),
        stuck: BTreeSet::new(),
        leaving: BTreeSet::new(),
        long: BTreeSet::new(),
        served: BTreeMap::new(),
        services: 0,
        counts: vec![Counts::default(); MODELS.len()],
        history: BTreeMap::new(),
        aged: BTreeMap::new(),
        seed: seed | 1,
        dispatches: Vec::new(),
        seen: BTreeMap::new(),
    };
    let mut at = 0;
    for load in loads {
        at += load.gap_ms * 1_000;
        oracle.run_until(Mono(at));
        oracle.submit(load);
        oracle.decide();
        if load.cancel_one {
            oracle.cancel_oldest();
            oracle.decide();
        }
    }
    oracle.run_until(Mono(at + 600_000_000));
    assert!(oracle.queued.is_empty() && oracle.running.is_empty(), "work left at the end");
    assert_eq!(oracle.ended.len(), oracle.jobs.len(), "a job ended not at all");
    Run { dispatches: oracle.dispatches, seen: oracle.seen }
}

impl Oracle {
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn run_until(&mut self, limit: Mono) {
        loop {
            let end = self.running.values().map(|(end, ..)| *end).min();
            let wake = self.scheduler.next_wakeup(self.now);
            assert!(wake.is_none_or(|wake| wake >= self.now), "a wake-up in the past");
            let Some(next) = end.into_iter().chain(wake).min().filter(|next| *next <= limit) else {
                break;
            };
            self.pass(next);
            let over: Vec<DispatchId> =
                self.running.iter().filter(|(_, r)| r.0 <= next).map(|(id, _)| *id).collect();
            for id in over {
                self.complete(id);
            }
            self.decide();
        }
        self.pass(limit.min(Mono(self.now.0 + 60_000_000)));
    }

    fn pass(&mut self, to: Mono) {
        let to = to.max(self.now);
        for class in engine::scheduler::CLASSES {
            let held = self.held(class);
            let queued = self.queued.values().any(|job| MODELS[job.model].0 == class);
            let past = Past {
                passed_us: to.0 - self.now.0,
                lanes_healthy: self.config.lanes - self.stuck.len(),
                lanes_held: held,
                had_work: queued || held > 0,
            };
            self.history.entry(class).or_default().push(past);
        }
        self.now = to;
    }

    fn held(&self, class: Class) -> usize {
        let healthy = self.running.iter().filter(|(id, _)| !self.stuck.contains(id));
        healthy
            .filter(|(_, (.., model))| MODELS[*model].0 == class)
            .map(|(_, r)| r.1.lanes.len())
            .sum()
    }

    fn submit(&mut self, load: &Load) {
        let deadline = load.slack_ms.map(|slack| self.now + Duration::from_millis(slack));
        let spec = JobSpec {
            model: self.keys[load.model],
            stream: StreamId::from(format!("s{}", load.stream)),
            priority: load.priority,
            deadline,
            predicted: None,
        };
        let is_mine = |j: &&Job| j.model == load.model && j.stream == load.stream;
        let waiting = self.queued.values().filter(is_mine).count();
        let cost = self.scheduler.cost_p90(self.now, self.keys[load.model], 1);
        let counts = &mut self.counts[load.model];
        let outcome = self.scheduler.submit(self.now, spec);
        let kind = format!("{outcome:?}");
        let kind = kind.split(['(', ' ']).next().unwrap_or_default();
        *self.seen.entry(format!("submit: {kind}")).or_default() += 1;
        match outcome {
            SubmitOutcome::Queued(id) => {
                counts.submitted += 1;
                let Load { model, stream, priority, .. } = *load;
                let submitted = self.now;
                let job = Job {
                    model,
                    stream,
                    priority,
                    deadline,
                    submitted,
                    preempted: 0,
                    served_before: 0,
                };
                assert!(self.jobs.insert(id, job.clone()).is_none(), "a job number given twice");
                self.queued.insert(id, job);
            }
            SubmitOutcome::Shed => {
                counts.submitted += 1;
                counts.shed += 1;
                let deadline = deadline.expect("work without deadline is never shed");
                let hopeless = cost.is_some_and(|cost| self.now + cost > deadline);
                assert!(hopeless || waiting >= self.config.queue_max, "shed without need");
            }
            SubmitOutcome::Full { .. } => {
                counts.refused += 1;
                assert!(deadline.is_none() && waiting >= self.config.queue_max);
            }
            SubmitOutcome::UnknownModel => panic!("the model is known"),
        }
    }

    fn cancel_oldest(&mut self) {
        if let Some(id) = self.queued.keys().next().copied() {
            assert!(self.scheduler.cancel(self.now, id));
            assert!(!self.scheduler.cancel(self.now, id), "cancelled twice");
        }
    }

    fn complete(&mut self, id: DispatchId) {
        let (_, dispatch, model) = self.running.remove(&id).unwrap();
        let outcome = match self.random(20) {
            // Most that are to end half-way do; the others were through before.
            1.. if self.leaving.remove(&id) => Outcome::Preempted,
            0 => Outcome::Failed,
            _ => Outcome::Done,
        };
        self.leaving.remove(&id);
        assert!(self.scheduler.complete(self.now, id, outcome));
        assert!(!self.scheduler.complete(self.now, id, outcome), "completed twice");
        if self.stuck.remove(&id) {
            return self.note_ends(&[]);
        }
        self.counts[model].running -= dispatch.jobs.len() as u64;
        if outcome == Outcome::Preempted {
            self.counts[model].preempted += 1;
            for id in dispatch.jobs.into_iter().rev() {
                let job = self.jobs.get_mut(&id).unwrap();
                job.preempted += 1;
                self.served.insert((MODELS[model].0, job.stream), job.served_before);
                self.queued.insert(id, job.clone());
            }
            return self.note_ends(&[]);
        }
        self.note_ends(&dispatch.jobs);
    }

    /// Reads the ends: each once, and of the kind that the job's state allows.
    fn note_ends(&mut self, members: &[JobId]) {
        for ended in self.scheduler.take_ended() {
            let job = self.jobs[&ended.job].clone();
            assert!(self.ended.insert(ended.job), "{:?} ended twice", ended.job);
            let was_queued = self.queued.remove(&ended.job).is_some();
            let is_over = job.deadline.is_some_and(|deadline| deadline <= self.now);
            let counts = &mut self.counts[job.model];
            let (allowed, count) = match ended.end {
                End::Done => {
                    (!was_queued && job.deadline.is_none_or(|d| d >= self.now), &mut counts.done)
                }
                End::Late => (!was_queued && is_over, &mut counts.late),
                End::Shed => (was_queued && job.deadline.is_some(), &mut counts.shed),
                End::Expired => (was_queued && is_over, &mut counts.expired),
                End::Cancelled => (was_queued, &mut counts.cancelled),
                End::Failed => (!was_queued, &mut counts.failed),
            };
            assert!(allowed, "{ended:?} of {job:?} at {:?}", self.now);
            *self.seen.entry(format!("{:?}", ended.end)).or_default() += 1;
            *count += 1;
            assert!(was_queued || members.contains(&ended.job));
        }
    }

    fn decide(&mut self) {
        let dispatches = self.scheduler.schedule(self.now);
        let limit = self.config.stuck_after;
        let mut failed = Vec::new();
        for (id, (_, dispatch, model)) in &self.running {
            let started = self.dispatches.iter().find(|(_, d)| d.id == *id).unwrap().0;
            if self.now.since(started) >= limit && self.stuck.insert(*id) {
                self.counts[*model].running -= dispatch.jobs.len() as u64;
                failed.extend(dispatch.jobs.iter().copied());
            }
        }
        self.note_ends(&failed);
        for dispatch in dispatches {
            self.check_start(&dispatch);
        }
        for id in self.scheduler.take_preempted() {
            assert!(self.due_text_needs_a_lane(), "a batch ended for nobody");
            assert!(self.may_be_ended(id), "{id:?} may not be ended");
            self.leaving.insert(id);
            let soon = self.now + Duration::from_micros(self.random(2_000));
            let end = &mut self.running.get_mut(&id).unwrap().0;
            *end = soon.min(*end);
            *self.seen.entry("Preempted".to_owned()).or_default() += 1;
        }
        let left = self.running.keys().find(|id| self.may_be_ended(**id));
        assert!(!self.due_text_needs_a_lane() || left.is_none(), "text waits for {left:?}");
        self.check_rest();
    }

    fn due_text_needs_a_lane(&self) -> bool {
        let batches = |(model, (class, _, batch_max)): (usize, &(Class, u64, usize))| {
            let dated = |job: &&Job| job.model == model && job.deadline.is_some();
            let dated = self.queued.values().filter(dated).count();
            if *class == Class::Text { dated.div_ceil(*batch_max) } else { 0 }
        };
        let wanted: usize = MODELS.iter().enumerate().map(batches).sum();
        wanted > self.free().len() + self.leaving.difference(&self.stuck).count()
    }

    fn may_be_ended(&self, id: DispatchId) -> bool {
        let (_, dispatch, model) = &self.running[&id];
        let started = self.dispatches.iter().find(|(_, d)| d.id == id).unwrap().0;
        let left = dispatch.estimate.map(|e| e.saturating_sub(self.now.since(started)));
        INTERRUPTIBLE.contains(model)
            && dispatch.why == Why::Order
            && left.is_some_and(|left| left >= LEFT_MIN)
            && !self.leaving.contains(&id)
            && !self.stuck.contains(&id)
            && dispatch.jobs.iter().all(|job| self.jobs[job].preempted < PREEMPTED_MAX)
    }

    fn key(&self, id: JobId, job: &Job) -> (usize, i32, u64, u64, JobId) {
        let class = MODELS[job.model].0;
        let rank = self.config.order.iter().position(|c| *c == class).unwrap();
        let served = self.served.get(&(class, job.stream)).copied().unwrap_or(0);
        (rank, job.priority, job.deadline.map_or(u64::MAX, |d| d.0), served, id)
    }

    fn free(&self) -> Vec<usize> {
        let held = |lane: &usize| self.running.values().any(|r| r.1.lanes.contains(lane));
        (0..self.config.lanes).filter(|lane| !held(lane)).collect()
    }

    /// Lanes that long pieces may still take; none when no lane is kept for text.
    fn open_to_long(&self) -> Option<usize> {
        let healthy = self.config.lanes - self.stuck.len();
        let long =
            self.running.keys().filter(|id| self.long.contains(id) && !self.stuck.contains(id));
        (self.config.text_lane && healthy > 1).then(|| (healthy - 1).saturating_sub(long.count()))
    }

    fn is_text_queued(&self) -> bool {
        self.queued.values().any(|job| MODELS[job.model].0 == Class::Text)
    }

    /// Whether the job may start on one of the free lanes.
    fn fits(&self, job: &Job) -> bool {
        let is_open = self.open_to_long().is_none_or(|open| open > 0);
        let cost = self.scheduler.cost_p90(self.now, self.keys[job.model], 1);
        let is_short = cost.is_some_and(|cost| cost <= self.config.foreign_piece_max);
        let by_idleness = job.deadline.is_none() && !self.is_text_queued();
        let is_text = MODELS[job.model].0 == Class::Text;
        !self.free().is_empty() && (is_text || is_open || is_short || by_idleness)
    }

    fn check_start(&mut self, dispatch: &Dispatch) {
        let model = self.keys.iter().position(|key| *key == dispatch.model).unwrap();
        let (class, cost_ms, batch_max) = MODELS[model];
        let lane = dispatch.lanes[0];
        assert_eq!(dispatch.lanes.len(), 1);
        assert!(self.free().contains(&lane), "lane {lane} is held already");
        assert!((1..=batch_max).contains(&dispatch.jobs.len()));
        let leader = self.queued[&dispatch.jobs[0]].clone();
        assert!(self.fits(&leader), "{leader:?} may not use lane {lane}");
        let best = self
            .queued
            .iter()
            .filter(|(_, job)| self.fits(job))
            .map(|(id, job)| self.key(*id, job))
            .min();
        match dispatch.why {
            Why::Order => {
                assert_eq!(
                    Some(self.key(dispatch.jobs[0], &leader)),
                    best,
                    "not the first in order"
                );
            }
            Why::Share => {
                let rank = self.config.order.iter().position(|c| *c == class).unwrap();
                assert!(best.unwrap().0 < rank, "by share, where it was its turn");
                self.check_share(class);
            }
            Why::Aged => {
                assert!(leader.deadline.is_none() && dispatch.jobs.len() == 1);
                assert!(self.now.since(leader.submitted) >= self.config.wait_max);
                let before = self.aged.insert(class, self.now);
                assert!(before.is_none_or(|t| self.now.since(t) >= self.config.wait_max));
            }
        }
        let is_kept = class != Class::Text && self.open_to_long() == Some(0);
        let undated_only = is_kept && leader.deadline.is_none() && !self.is_text_queued();
        let is_long = dispatch.estimate.is_none_or(|cost| cost > self.config.foreign_piece_max);
        assert!(!is_kept || undated_only || !is_long, "a long piece on text's lane");
        if class != Class::Text && is_long && !undated_only {
            self.long.insert(dispatch.id);
        }
        let is_batch = dispatch.jobs.len() > 1;
        for id in &dispatch.jobs {
            let next = self
                .queued
                .iter()
                .filter(|(_, job)| job.model == model && !(undated_only && job.deadline.is_some()));
            let next = next.map(|(id, job)| self.key(*id, job)).min();
            let job = self.queued[id].clone();
            assert_eq!(job.model, model, "a batch of two models");
            if dispatch.why == Why::Order {
                assert_eq!(Some(self.key(*id, &job)), next, "a member out of order");
            }
            assert!(
                job.deadline.is_none_or(|deadline| deadline > self.now),
                "started past its deadline"
            );
            if is_batch && let Some(deadline) = job.deadline {
                assert!(
                    self.now + dispatch.estimate.unwrap() <= deadline,
                    "batched beyond its slack"
                );
            }
            self.services += 1;
            let before = self.served.insert((class, job.stream), self.services);
            self.jobs.get_mut(id).unwrap().served_before = before.unwrap_or(0);
            self.queued.remove(id);
        }
        let members = dispatch.jobs.len() as u64;
        self.counts[model].running += members;
        // Now and then a run takes long, and very seldom it hangs.
        let slow = match self.random(200) {
            0 => 60,
            1..10 => 5,
            _ => 1,
        };
        let cost = Duration::from_micros(cost_ms * members * slow * (800 + self.random(400)));
        self.running.insert(dispatch.id, (self.now + cost, dispatch.clone(), model));
        self.dispatches.push((self.now, dispatch.clone()));
        *self.seen.entry(format!("{:?}", dispatch.why)).or_default() += 1;
    }

    /// The share's credit, added up anew from all that happened: a start by share needs some.
    fn check_share(&self, class: Class) {
        let share = self.config.shares[&class];
        let mut credit = 0.0f64;
        for past in &self.history[&class] {
            let due = share * past.lanes_healthy as f64;
            let bound = due * 1e6;
            let after = credit + (due - past.lanes_held as f64) * past.passed_us as f64;
            credit = if past.had_work {
                after.clamp(-bound, bound)
            } else {
                after.clamp(-bound, credit.max(0.0).min(bound))
            };
        }
        assert!(credit > 0.0, "{class:?} started by share with a credit of {credit} us");
    }

    /// Nothing that could start waits, nothing waits past its deadline, and the books balance.
    fn check_rest(&mut self) {
        for job in self.queued.values() {
            assert!(!self.fits(job), "{job:?} waits beside a free lane");
            assert!(job.deadline.is_none_or(|deadline| deadline > self.now));
        }
        for (index, line) in self.scheduler.ledger().iter().enumerate() {
            let queued = self.queued.values().filter(|job| job.model == index).count() as u64;
            let expected = Counts { queued, ..self.counts[index] };
            assert_eq!(line.counts, expected, "books of model {index}");
            assert!(line.counts.balanced(), "{line:?}");
        }
        assert!(self.running.len() <= self.config.lanes);
        assert_eq!(self.scheduler.lanes_held(), self.running.len());
    }
}
