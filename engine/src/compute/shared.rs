//! The state behind the one lock, and what follows from each change of it.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use media::{Clock, Mono, StreamId};
use models::ModelError;
use tokio::sync::{Notify, oneshot};

use super::Observer;
use super::device::{Device, Wake, Work};
use super::entry::{self, Entry, Members, Ran};
use super::lease::{Batch, LaneGuard, NoLane};
use super::stop::Stop;
use crate::events::{self, Event};
use crate::scheduler::{
    Dispatch, DispatchId, End, Ended, JobId, JobSpec, ModelKey, ModelSpec, Outcome, Piece,
    Scheduler, SubmitOutcome,
};
use crate::{Class, JobEnd};

/// A model's answer on its way to the handle that knows its type.
pub(super) type Answer = JobEnd<Box<dyn Any + Send>>;

type Granted = oneshot::Sender<Result<LaneGuard, NoLane>>;

/// How a job's asker is told.
pub(super) enum Reply {
    /// The input waits here until the job starts.
    Model { input: Option<Box<dyn Any + Send>>, answer: oneshot::Sender<Answer> },
    /// A lane is wanted.
    Lease(Granted),
    /// The lane has been given; its end is only counted.
    Told,
}

/// Why a job was not taken in.
pub(super) enum Refused {
    Shed,
    Full(Reply),
    Closing,
}

struct Pending {
    stream: StreamId,
    reply: Reply,
}

pub(super) struct State {
    pub(super) scheduler: Scheduler,
    pub(super) is_closing: bool,
    pending: HashMap<JobId, Pending>,
    /// Who runs each model; gone when its last handle and job are. Leases have none.
    entries: BTreeMap<ModelKey, Weak<Entry>>,
    leases: BTreeMap<(Class, String), ModelKey>,
    /// How the batches that run are ended half-way.
    stops: BTreeMap<DispatchId, Arc<Stop>>,
    stuck: Vec<usize>,
}

impl State {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        State {
            scheduler,
            is_closing: false,
            pending: HashMap::new(),
            entries: BTreeMap::new(),
            leases: BTreeMap::new(),
            stops: BTreeMap::new(),
            stuck: Vec::new(),
        }
    }

    /// Nothing waits and nothing runs, but for stuck calls that have been answered for.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) device: Arc<dyn Device>,
    observer: Option<Observer>,
    /// A job started or ended: there may be room in a queue, or nothing left to drain.
    pub(super) changed: Notify,
}

/// The end of a job, to be told outside the lock.
struct Told {
    reply: Reply,
    ended: Ended,
    model: Arc<str>,
    /// A member of the batch whose outputs are at hand.
    is_member: bool,
}

/// What a change entails, carried out after the lock is released.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) events: Vec<Event>,
    works: Vec<Work>,
    stops: Vec<Arc<Stop>>,
    grants: Vec<(Granted, LaneGuard)>,
    told: Vec<Told>,
    wake_at: Option<Mono>,
}

type Outputs = Result<Members, ModelError>;

impl Shared {
    pub(super) fn new(
        scheduler: Scheduler,
        clock: Arc<dyn Clock>,
        device: Arc<dyn Device>,
        observer: Option<Observer>,
    ) -> Self {
        let state = Mutex::new(State::new(scheduler));
        Shared { state, clock, device, observer, changed: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock would be a defect of ours; what it leaves is no reason to stop every stream.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then does what follows from it.
    pub(super) fn with<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut State, Mono, &mut Effects) -> T,
    ) -> T {
        self.with_outputs(None, change)
    }

    pub(super) fn submit(self: &Arc<Self>, spec: JobSpec, reply: Reply) -> Result<JobId, Refused> {
        self.with(|state, now, effects| Shared::offer(state, now, spec, reply, effects))
    }

    pub(super) fn cancel(self: &Arc<Self>, job: JobId) {
        self.with(|state, now, _| state.scheduler.cancel(now, job));
    }

    /// Frees a batch's lanes; `outputs` answer its members.
    pub(super) fn finish(
        self: &Arc<Self>,
        batch: Batch,
        outcome: Outcome,
        outputs: Option<Outputs>,
    ) {
        self.with_outputs(outputs, |state, now, effects| {
            state.stops.remove(&batch.id);
            state.scheduler.complete(now, batch.id, outcome);
            effects.events.push(batch.finished(now));
        });
    }

    /// Frees the lanes of a batch that ended half-way; its jobs wait again, but those nobody waits for.
    fn stopped(self: &Arc<Self>, batch: Batch, jobs: &[JobId], inputs: Members) {
        self.with(|state, now, effects| {
            state.stops.remove(&batch.id);
            state.scheduler.complete(now, batch.id, Outcome::Preempted);
            for (job, back) in jobs.iter().zip(inputs) {
                let Some(pending) = state.pending.get_mut(job) else { continue };
                if let Reply::Model { input, answer } = &mut pending.reply {
                    *input = Some(back);
                    if answer.is_closed() {
                        state.scheduler.cancel(now, *job);
                    }
                }
            }
            effects.events.push(batch.preempted(now));
        });
    }

    /// Hands a job to the scheduler; part of a change.
    pub(super) fn offer(
        state: &mut State,
        now: Mono,
        spec: JobSpec,
        reply: Reply,
        effects: &mut Effects,
    ) -> Result<JobId, Refused> {
        if state.is_closing {
            return Err(Refused::Closing);
        }
        let (key, stream) = (spec.model, spec.stream.clone());
        match state.scheduler.submit(now, spec) {
            SubmitOutcome::Queued(job) => {
                state.pending.insert(job, Pending { stream, reply });
                Ok(job)
            }
            SubmitOutcome::Shed => {
                if let Some(model) = state.scheduler.model(key) {
                    effects.events.push(Event::Ended {
                        at: now,
                        class: model.class,
                        model: model.name.clone(),
                        stream,
                        end: End::Shed,
                        queue: Duration::ZERO,
                        compute: Duration::ZERO,
                    });
                }
                Err(Refused::Shed)
            }
            SubmitOutcome::Full { .. } => Err(Refused::Full(reply)),
            SubmitOutcome::UnknownModel => Err(Refused::Closing),
        }
    }

    /// A place for a model. One whose handles are all gone leaves its own, with ledger and costs, to the
    /// next of its name.
    pub(super) fn add(&self, spec: ModelSpec, entry: &Arc<Entry>) -> ModelKey {
        let mut state = self.lock();
        let State { scheduler, entries, .. } = &mut *state;
        let left = entries.iter().find(|(key, entry)| {
            let is_same = |old: &ModelSpec| old.name == spec.name && old.class == spec.class;
            entry.strong_count() == 0 && scheduler.model(**key).is_some_and(is_same)
        });
        let left = left.map(|(key, _)| *key);
        let key = match left.filter(|key| scheduler.replace_model(*key, &spec)) {
            Some(key) => key,
            None => scheduler.add_model(spec),
        };
        entries.insert(key, Arc::downgrade(entry));
        key
    }

    /// The place of work that is done elsewhere.
    pub(super) fn lease_key(&self, class: Class, model: &str) -> ModelKey {
        let mut state = self.lock();
        let State { scheduler, leases, .. } = &mut *state;
        *leases.entry((class, model.to_owned())).or_insert_with(|| {
            scheduler.add_model(ModelSpec {
                name: Arc::from(model),
                class,
                batch_max: 1,
                width: 1,
                batch_wait_max: Duration::ZERO,
                interruptible: false,
            })
        })
    }

    fn with_outputs<T>(
        self: &Arc<Self>,
        outputs: Option<Outputs>,
        change: impl FnOnce(&mut State, Mono, &mut Effects) -> T,
    ) -> T {
        let mut effects = Effects::default();
        let mut state = self.lock();
        let now = self.clock.now();
        let value = change(&mut state, now, &mut effects);
        self.settle(&mut state, now, &mut effects);
        drop(state);
        self.act(effects, outputs);
        value
    }

    /// Lets the scheduler decide and gathers what follows.
    fn settle(self: &Arc<Self>, state: &mut State, now: Mono, effects: &mut Effects) {
        gather(state, now, true, effects);
        for Piece { model, length } in state.scheduler.take_pieces() {
            let Some(spec) = state.scheduler.model(model) else { continue };
            let (class, model) = (spec.class, spec.name.clone());
            effects.events.push(Event::Piece { at: now, class, model, length });
        }
        for dispatch in state.scheduler.schedule(now) {
            self.begin(state, now, dispatch, effects);
        }
        gather(state, now, false, effects);
        let stuck = state.scheduler.lanes_stuck();
        if stuck != state.stuck {
            let before = std::mem::replace(&mut state.stuck, stuck.clone()).len();
            effects.events.push(Event::Stuck { at: now, lanes: stuck, before });
        }
        let stops = state.scheduler.take_preempted().into_iter();
        effects.stops.extend(stops.filter_map(|id| state.stops.get(&id).cloned()));
        effects.wake_at = state.scheduler.next_wakeup(now);
    }

    /// A batch got its lanes: collects its inputs, or makes its guard.
    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        now: Mono,
        dispatch: Dispatch,
        effects: &mut Effects,
    ) {
        let Some(spec) = state.scheduler.model(dispatch.model) else { return };
        let (class, model) = (spec.class, spec.name.clone());
        let mut streams = Vec::with_capacity(dispatch.jobs.len());
        let mut inputs = Vec::with_capacity(dispatch.jobs.len());
        let mut lease = None;
        for job in &dispatch.jobs {
            let Some(pending) = state.pending.get_mut(job) else { continue };
            streams.push(pending.stream.clone());
            match std::mem::replace(&mut pending.reply, Reply::Told) {
                Reply::Model { mut input, answer } => {
                    inputs.extend(input.take());
                    pending.reply = Reply::Model { input: None, answer };
                }
                Reply::Lease(sender) => lease = Some((sender, pending.stream.clone())),
                Reply::Told => {}
            }
        }
        let lanes = dispatch.lanes;
        effects.events.push(Event::Started {
            at: now,
            dispatch: dispatch.id,
            class,
            model: model.clone(),
            lanes: lanes.clone(),
            streams,
            why: dispatch.why,
        });
        let (estimate, jobs) = (dispatch.estimate, dispatch.jobs);
        let batch = Batch { id: dispatch.id, class, model, lanes, started: now, estimate };
        if let Some((sender, stream)) = lease {
            let guard = LaneGuard::new(self.clone(), batch, dispatch.model, stream);
            effects.grants.push((sender, guard));
            return;
        }
        let entry = state.entries.get(&dispatch.model).and_then(Weak::upgrade);
        let stop = Arc::new(Stop::default());
        state.stops.insert(dispatch.id, stop.clone());
        effects.works.push(self.work(batch, jobs, entry, inputs, stop));
    }

    fn work(
        self: &Arc<Self>,
        batch: Batch,
        jobs: Vec<JobId>,
        entry: Option<Arc<Entry>>,
        inputs: Members,
        stop: Arc<Stop>,
    ) -> Work {
        let shared = self.clone();
        let (model, class) = (batch.model.clone(), batch.class);
        let lane = batch.lanes.first().copied().unwrap_or_default();
        Work::new(lane, model, class, inputs.len(), stop.clone(), move || {
            // The entry is let go before the answer is out, so that whoever has it may register anew.
            let ran = match entry {
                Some(entry) => entry.run(inputs, &stop),
                None => Ran::Whole(Err(entry::gone(&batch.model)), true),
            };
            let (result, is_cold) = match ran {
                Ran::Whole(result, is_cold) => (result, is_cold),
                Ran::Stopped(inputs) => return shared.stopped(batch, &jobs, inputs),
            };
            let outcome = match (&result, is_cold) {
                (Ok(_), false) => Outcome::Done,
                (Ok(_), true) => Outcome::DoneCold,
                (Err(_), _) => Outcome::Failed,
            };
            shared.finish(batch, outcome, Some(result));
        })
    }

    fn act(self: &Arc<Self>, effects: Effects, outputs: Option<Outputs>) {
        let Effects { events, works, stops, grants, told, wake_at } = effects;
        let has_changed = !(works.is_empty() && grants.is_empty() && told.is_empty());
        // The lanes first: nobody waits longer for anything than they do.
        stops.iter().for_each(|stop| stop.ask());
        works.into_iter().for_each(|work| self.device.launch(work));
        if let Some(at) = wake_at {
            self.device.wake_at(at, Wake(Arc::downgrade(self)));
        }
        let mut outputs = outputs.map(|result| result.map(Vec::into_iter));
        for told in told {
            told.tell(&mut outputs);
        }
        for event in &events {
            events::record(event);
            if let Some(observer) = &self.observer {
                observer(event);
            }
        }
        if has_changed {
            self.changed.notify_waiters();
        }
        // Whoever asked may be gone: then the guard is dropped here, and the lane is free again.
        for (sender, guard) in grants {
            drop(sender.send(Ok(guard)));
        }
    }
}

/// Collects the ends: before scheduling those of a completed batch's members, after it the rest.
fn gather(state: &mut State, now: Mono, is_member: bool, effects: &mut Effects) {
    for ended in state.scheduler.take_ended() {
        let Some(spec) = state.scheduler.model(ended.model) else { continue };
        let (class, model) = (spec.class, spec.name.clone());
        let Some(Pending { stream, reply }) = state.pending.remove(&ended.job) else { continue };
        let Ended { end, queue, compute, .. } = ended;
        let event =
            Event::Ended { at: now, class, model: model.clone(), stream, end, queue, compute };
        effects.events.push(event);
        effects.told.push(Told { reply, ended, model, is_member });
    }
}

impl Told {
    fn tell(
        self,
        outputs: &mut Option<Result<std::vec::IntoIter<Box<dyn Any + Send>>, ModelError>>,
    ) {
        let Ended { end, queue, compute, batch, .. } = self.ended;
        match self.reply {
            Reply::Model { answer, .. } => {
                let end = match (end, outputs) {
                    (End::Shed, _) => JobEnd::Shed,
                    (End::Expired, _) => JobEnd::Expired,
                    (End::Cancelled, _) => JobEnd::Cancelled,
                    (End::Failed, Some(Err(error))) if self.is_member => {
                        JobEnd::Failed(error.clone())
                    }
                    (End::Done | End::Late, Some(Ok(outputs))) => match outputs.next() {
                        Some(output) => JobEnd::Done { output, queue, compute, batch },
                        None => JobEnd::Failed(no_answer(&self.model, compute)),
                    },
                    (End::Done | End::Late | End::Failed, _) => {
                        JobEnd::Failed(no_answer(&self.model, compute))
                    }
                };
                // An asker that went away needs no answer.
                drop(answer.send(end));
            }
            Reply::Lease(sender) => {
                let why = match end {
                    End::Shed => NoLane::Shed,
                    End::Expired => NoLane::Expired,
                    End::Done | End::Late | End::Cancelled | End::Failed => NoLane::Closing,
                };
                drop(sender.send(Err(why)));
            }
            Reply::Told => {}
        }
    }
}

fn no_answer(model: &str, compute: Duration) -> ModelError {
    let detail = format!("no answer after {} ms; its lane is quarantined", compute.as_millis());
    ModelError::Run { name: model.to_owned(), detail }
}
