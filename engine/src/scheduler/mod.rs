//! Decides which job runs next, on which lane, and with whom in a batch.
//!
//! Its neighbour is [`compute`](crate::compute), which runs what it decides. Its one rule: it never sleeps,
//! never reads a clock and never runs anything, so that the same calls give the same decisions.
//!
//! # Order
//! 1. A class's oldest job without deadline that waited `wait_max`: one per class in that time.
//! 2. A class that is owed lane time by its guaranteed share, at least half of the job's.
//! 3. Classes in configured order. Inside a class: stream priority, then the earliest deadline (none last),
//!    then the stream served longest ago.
//!
//! # Lanes
//! One lane's worth is kept for text: long pieces of other classes hold all lanes but one at most, so that
//! text waits for no more than a short piece. Work without deadline may take that lane, too, while no text is
//! runnable. Batches grow while lanes are busy; a free lane takes what there is.
//!
//! # Preemption
//! When text with a deadline waits and no lane is free for it, the batch with the most left to do is ended
//! half-way, if its model can be and it was started in the order of classes. What it had computed is lost; its
//! jobs wait again, and a job is interrupted twice at most.
//!
//! # Bounded wait
//! A job with a deadline has ended by its deadline, or is running. A job of one lane without a deadline, with
//! k older such jobs in its class, starts within (k + 1) × (`wait_max` + 4 × the longest piece), four being
//! the classes that may each put one such job before it.
//!
//! # Devices
//! One scheduler rules one device. An accelerator or a remote server is another scheduler whose lanes are
//! its slots; a model that takes several lanes says so by its width, and free lanes are held for it.

mod config;
mod job;
mod lease;
mod ledger;
mod pick;
mod preempt;
mod queue;
mod share;
mod streams;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use media::Mono;

pub use config::{CLASSES, SchedulerConfig, SchedulerError};
pub use job::{
    Dispatch, DispatchId, End, Ended, JobId, JobSpec, ModelFigures, ModelKey, ModelSpec, Outcome,
    SubmitOutcome, Why,
};
pub use ledger::{Counts, LedgerLine};

use crate::Class;
use crate::cost::{Admission, Cost};
use queue::{ModelQueue, Rank, StreamIndex};
use share::Share;
use streams::Streams;

#[derive(Debug)]
struct ModelState {
    spec: ModelSpec,
    rank: usize,
    cost: Cost,
    queue: ModelQueue,
    counts: Counts,
}

#[derive(Debug)]
struct Job {
    model: usize,
    stream: StreamIndex,
    rank: Rank,
    submitted: Mono,
    predicted: Option<Duration>,
    /// Runs although it may be late, alone, to learn the cost.
    probe: bool,
    /// Runs of it that were ended half-way.
    preempted: u8,
    /// Set when it starts: when its stream had been served before.
    served_before: u64,
}

#[derive(Debug)]
struct ClassState {
    share: Share,
    models: Vec<usize>,
    /// Queued jobs without deadline, oldest first.
    undated: std::collections::BTreeSet<JobId>,
    queued: usize,
    lanes_held: u64,
    aged_last: Option<Mono>,
}

#[derive(Debug)]
struct Running {
    model: usize,
    members: Vec<(JobId, Job)>,
    batch: usize,
    lanes: Vec<usize>,
    started: Mono,
    estimate: Option<Duration>,
    predicted: Option<Duration>,
    /// Not text, longer than a short piece, and not exempt: counts towards the lanes text may have to wait for.
    is_long: bool,
    why: Why,
    /// To be ended half-way.
    is_preempted: bool,
    stuck: bool,
}

/// The state machine. Bounded by `queue_max` jobs per stream and model, and the lanes.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    models: Vec<ModelState>,
    /// By rank.
    classes: Vec<ClassState>,
    jobs: HashMap<JobId, Job>,
    streams: Streams,
    running: BTreeMap<DispatchId, Running>,
    /// Who holds each lane.
    lanes: Vec<Option<DispatchId>>,
    ended: Vec<Ended>,
    preempted: Vec<DispatchId>,
    jobs_seen: u64,
    dispatches_seen: u64,
    last: Mono,
}

impl Scheduler {
    /// A scheduler without models.
    ///
    /// # Errors
    /// [`SchedulerError`], naming the rule that cannot hold.
    pub fn new(config: SchedulerConfig) -> Result<Self, SchedulerError> {
        config.check()?;
        let classes = config.order.iter().map(|class| ClassState {
            share: Share::new(config.shares.get(class).copied().unwrap_or(0.0)),
            models: Vec::new(),
            undated: Default::default(),
            queued: 0,
            lanes_held: 0,
            aged_last: None,
        });
        Ok(Scheduler {
            classes: classes.collect(),
            lanes: vec![None; config.lanes],
            config,
            models: Vec::new(),
            jobs: HashMap::new(),
            streams: Streams::default(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            preempted: Vec::new(),
            jobs_seen: 0,
            dispatches_seen: 0,
            last: Mono::default(),
        })
    }

    /// Makes a model known.
    pub fn add_model(&mut self, spec: ModelSpec) -> ModelKey {
        let rank = self.config.order.iter().position(|c| *c == spec.class).unwrap_or_default();
        let index = self.models.len();
        self.classes[rank].models.push(index);
        self.models.push(ModelState {
            spec,
            rank,
            cost: Cost::default(),
            queue: ModelQueue::default(),
            counts: Counts::default(),
        });
        ModelKey(index as u32)
    }

    /// Gives a model's place, with its ledger and costs, to its successor of the same name and class. False,
    /// and nothing done, if it is another model or still has work.
    pub fn replace_model(&mut self, key: ModelKey, spec: &ModelSpec) -> bool {
        let Some(model) = self.models.get_mut(key.0 as usize) else { return false };
        let has_work = model.counts.queued + model.counts.running > 0;
        if has_work || (&model.spec.name, model.spec.class) != (&spec.name, spec.class) {
            return false;
        }
        model.spec = spec.clone();
        true
    }

    /// Takes a job in, or says why not.
    pub fn submit(&mut self, now: Mono, spec: JobSpec) -> SubmitOutcome {
        let now = self.advance(now);
        let JobSpec { model: key, stream, priority, deadline, predicted } = spec;
        let index = key.0 as usize;
        let Some(model) = self.models.get_mut(index) else { return SubmitOutcome::UnknownModel };
        let limit = self.config.queue_max;
        let known = self.streams.find(&stream);
        let is_full = known.is_some_and(|s| model.queue.len_of(s) >= limit);
        if is_full && deadline.is_none() {
            model.counts.refused += 1;
            return SubmitOutcome::Full { limit };
        }
        model.counts.submitted += 1;
        let interval = self.config.probe_interval;
        let admission = match deadline {
            None => Admission::Fits,
            Some(deadline) => model.cost.admit(now, deadline, predicted, interval),
        };
        let displaced = known.filter(|_| is_full).map(|s| model.queue.displaced(s));
        if admission == Admission::Shed || displaced == Some(None) {
            model.counts.shed += 1;
            return SubmitOutcome::Shed;
        }
        if let Some(Some(oldest)) = displaced {
            self.end_queued(now, oldest.job, End::Shed);
        }
        let id = JobId(self.jobs_seen);
        self.jobs_seen += 1;
        let stream = self.streams.enter(&stream);
        let rank = Rank::new(priority, deadline, id);
        let probe = admission == Admission::Probe;
        let job = Job {
            model: index,
            stream,
            rank,
            submitted: now,
            predicted,
            probe,
            preempted: 0,
            served_before: 0,
        };
        self.enqueue(id, job);
        SubmitOutcome::Queued(id)
    }

    /// Ends what is over, then fills the free lanes. Call after every other call, and at
    /// [`Scheduler::next_wakeup`].
    pub fn schedule(&mut self, now: Mono) -> Vec<Dispatch> {
        let now = self.advance(now);
        self.expire(now);
        self.quarantine(now);
        let mut dispatches = Vec::new();
        while let Some(dispatch) = self.pick(now) {
            dispatches.push(dispatch);
        }
        self.preempt(now);
        dispatches
    }

    /// The batches that were chosen since the last call to be ended half-way. One that can't be ended is
    /// completed as usual.
    pub fn take_preempted(&mut self) -> Vec<DispatchId> {
        std::mem::take(&mut self.preempted)
    }

    /// Frees a batch's lanes and ends its members, or lets them wait again. False if no such batch runs.
    pub fn complete(&mut self, now: Mono, id: DispatchId, outcome: Outcome) -> bool {
        let now = self.advance(now);
        let Some(running) = self.running.remove(&id) else { return false };
        for lane in &running.lanes {
            self.lanes[*lane] = None;
        }
        let compute = now.since(running.started);
        if running.stuck {
            return true;
        }
        let model = &mut self.models[running.model];
        self.classes[model.rank].lanes_held -= running.lanes.len() as u64;
        if outcome == Outcome::Preempted {
            self.wait_again(running);
            return true;
        }
        if outcome == Outcome::Done {
            model.cost.record(now, running.batch, compute, running.estimate, running.predicted);
        }
        let ends = |deadline: Option<Mono>| match outcome {
            Outcome::Failed => End::Failed,
            _ if deadline.is_some_and(|d| now > d) => End::Late,
            _ => End::Done,
        };
        self.end_members(running.model, &running.members, running.started, compute, ends);
        true
    }

    /// Withdraws a job that has not started. False if it has, or has ended.
    pub fn cancel(&mut self, now: Mono, job: JobId) -> bool {
        let now = self.advance(now);
        self.end_queued(now, job, End::Cancelled)
    }

    /// Withdraws every job that has not started.
    pub fn cancel_queued(&mut self, now: Mono) {
        let now = self.advance(now);
        let mut queued: Vec<JobId> = self.jobs.keys().copied().collect();
        queued.sort_unstable();
        for job in queued {
            self.end_queued(now, job, End::Cancelled);
        }
    }

    /// When to call [`Scheduler::schedule`] if nothing else happens before.
    pub fn next_wakeup(&self, now: Mono) -> Option<Mono> {
        let due = self.models.iter().filter_map(|m| m.queue.due_first()).map(|(due, _)| due);
        let stuck = self.running.values().filter(|r| !r.stuck);
        let stuck = stuck.map(|r| r.started + self.config.stuck_after);
        let has_room = self.lanes.iter().any(Option::is_none);
        let closing = self.models.iter().filter(|_| has_room).filter_map(|m| self.closes(m, now));
        due.chain(stuck).chain(closing).min()
    }

    /// The ends since the last call, each job once, in order. Jobs shed by [`Scheduler::submit`] itself are
    /// not among them.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Every model's jobs, in order of registration.
    pub fn ledger(&self) -> Vec<LedgerLine> {
        let line = |m: &ModelState| LedgerLine {
            class: m.spec.class,
            model: m.spec.name.to_string(),
            counts: m.counts,
        };
        self.models.iter().map(line).collect()
    }

    /// Every model's figures, in order of registration.
    pub fn figures(&self, now: Mono) -> Vec<ModelFigures> {
        let figures = |m: &ModelState| ModelFigures {
            name: m.spec.name.clone(),
            class: m.spec.class,
            counts: m.counts,
            cost_p50: m.cost.p50(now, 1),
            cost_p90: m.cost.p90(now, 1),
            estimate_error: m.cost.error(),
        };
        self.models.iter().map(figures).collect()
    }

    /// Lane time each class has held until the last call, stuck lanes left out.
    pub fn lane_time(&self) -> BTreeMap<Class, Duration> {
        let held = self.config.order.iter().zip(&self.classes);
        held.map(|(class, c)| (*class, c.share.held())).collect()
    }

    /// p90 of a batch of `batch`, as the scheduler believes it.
    pub fn cost_p90(&self, now: Mono, model: ModelKey, batch: usize) -> Option<Duration> {
        self.models.get(model.0 as usize)?.cost.p90(now, batch)
    }

    /// Lanes quarantined because their call has not returned.
    pub fn lanes_stuck(&self) -> Vec<usize> {
        let stuck = self.running.values().filter(|r| r.stuck);
        stuck.flat_map(|r| r.lanes.iter().copied()).collect()
    }

    /// Lanes held, stuck ones included.
    pub fn lanes_held(&self) -> usize {
        self.lanes.iter().flatten().count()
    }

    /// The rules it decides by.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The specification a model was added with.
    pub fn model(&self, key: ModelKey) -> Option<&ModelSpec> {
        self.models.get(key.0 as usize).map(|m| &m.spec)
    }

    /// Accounts for the time since the last call. A `now` before it counts as the same instant.
    fn advance(&mut self, now: Mono) -> Mono {
        if now <= self.last {
            return self.last;
        }
        let (passed, lanes) = (now.since(self.last), self.lanes_healthy());
        for class in &mut self.classes {
            let demand = class.queued > 0 || class.lanes_held > 0;
            class.share.advance(passed, lanes, class.lanes_held, demand);
        }
        self.last = now;
        now
    }

    fn expire(&mut self, now: Mono) {
        for index in 0..self.models.len() {
            while let Some((due, job)) = self.models[index].queue.due_first()
                && due <= now
            {
                self.end_queued(now, job, End::Expired);
            }
        }
    }

    /// Fails batches that run too long. Their lanes stay held until [`Scheduler::complete`].
    fn quarantine(&mut self, now: Mono) {
        let limit = self.config.stuck_after;
        let stuck = self.running.iter().filter(|(_, r)| !r.stuck && now.since(r.started) >= limit);
        let stuck: Vec<DispatchId> = stuck.map(|(id, _)| *id).collect();
        for id in stuck {
            let Some(mut running) = self.running.remove(&id) else { continue };
            self.classes[self.models[running.model].rank].lanes_held -= running.lanes.len() as u64;
            let members = std::mem::take(&mut running.members);
            let compute = now.since(running.started);
            self.end_members(running.model, &members, running.started, compute, |_| End::Failed);
            running.stuck = true;
            self.running.insert(id, running);
        }
    }

    fn end_members(
        &mut self,
        model: usize,
        members: &[(JobId, Job)],
        started: Mono,
        compute: Duration,
        end: impl Fn(Option<Mono>) -> End,
    ) {
        for (id, job) in members {
            let end = end(job.rank.deadline());
            let counts = &mut self.models[model].counts;
            counts.running -= 1;
            counts.count(end);
            self.streams.leave(job.stream);
            self.ended.push(Ended {
                job: *id,
                model: ModelKey(model as u32),
                end,
                queue: started.since(job.submitted),
                compute,
                batch: members.len() as u32,
            });
        }
    }

    fn end_queued(&mut self, now: Mono, id: JobId, end: End) -> bool {
        let Some(job) = self.unqueue(id) else { return false };
        self.streams.leave(job.stream);
        self.models[job.model].counts.count(end);
        self.ended.push(Ended {
            job: id,
            model: ModelKey(job.model as u32),
            end,
            queue: now.since(job.submitted),
            compute: Duration::ZERO,
            batch: 0,
        });
        true
    }

    /// Puts a job into every index of waiting jobs.
    fn enqueue(&mut self, id: JobId, job: Job) {
        let model = &mut self.models[job.model];
        model.queue.push(job.stream, self.streams.served(job.stream, model.rank), job.rank);
        model.counts.queued += 1;
        let class = &mut self.classes[model.rank];
        class.queued += 1;
        if job.rank.deadline().is_none() {
            class.undated.insert(id);
        }
        self.jobs.insert(id, job);
    }

    /// Takes a job out of every index of waiting jobs.
    fn unqueue(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        let model = &mut self.models[job.model];
        model.queue.remove(job.stream, job.rank);
        model.counts.queued -= 1;
        let class = &mut self.classes[model.rank];
        class.queued -= 1;
        class.undated.remove(&id);
        Some(job)
    }
}
