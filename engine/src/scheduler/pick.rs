//! The choice of the next batch: which class, which model, which lanes, which members.

use std::time::Duration;

use media::Mono;

use super::queue::StreamIndex;
use super::{
    Admission, Dispatch, DispatchId, End, Job, JobId, ModelKey, ModelState, Running, Scheduler, Why,
};
use crate::Class;

/// A batch that could start now.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) leader: JobId,
    pub(super) lanes: Vec<usize>,
    /// The batch grows no longer than this.
    piece_max: Duration,
    /// Takes text's lane because no text is runnable: only jobs without deadline may join.
    is_exempt: bool,
}

/// What a class can do with the free lanes.
#[derive(Debug)]
pub(super) enum Fit {
    Start(Plan),
    /// Its first job needs more lanes than are free: they are held for it.
    Hold,
    Nothing,
}

impl Scheduler {
    /// Starts the next batch, if one fits a free lane.
    pub(super) fn pick(&mut self, now: Mono) -> Option<Dispatch> {
        if self.lanes.iter().all(Option::is_some) {
            return None;
        }
        if let Some((rank, plan)) = self.pick_aged(now) {
            self.classes[rank].aged_last = Some(now);
            return Some(self.start(now, plan, Why::Aged, true));
        }
        let ranks = self.classes.len();
        let (first, fit) = (0..ranks).find_map(|rank| match self.plan_class(now, rank) {
            Fit::Nothing => None,
            fit => Some((rank, fit)),
        })?;
        for rank in first + 1..ranks {
            if !self.classes[rank].share.is_none()
                && let Fit::Start(plan) = self.plan_class(now, rank)
                && self.is_owed(now, rank, plan.leader, plan.lanes.len())
            {
                return Some(self.start(now, plan, Why::Share, false));
            }
        }
        match fit {
            Fit::Start(plan) => Some(self.start(now, plan, Why::Order, false)),
            Fit::Hold | Fit::Nothing => None,
        }
    }

    /// When the model's waiting batch closes; none if it is closed or empty.
    pub(super) fn closes(&self, model: &ModelState, now: Mono) -> Option<Mono> {
        let wait = model.spec.batch_wait_max;
        let queued = model.queue.len();
        let is_full = queued >= model.spec.batch_max;
        // Waiting for more members pays only while others compute.
        if wait.is_zero() || is_full || self.running.values().all(|r| r.stuck) {
            return None;
        }
        let oldest = self.jobs.get(&model.queue.oldest()?)?;
        let by_age = oldest.submitted + wait;
        let cost = model.cost.p90(now, queued).unwrap_or_default();
        // A quarter of the cost in hand, so that the deadline still holds when the batch runs a little long.
        let by_slack = model.queue.due_first().map(|(due, _)| due - cost - cost / 4);
        let closes = by_slack.map_or(by_age, |slack| slack.min(by_age));
        (closes > now).then_some(closes)
    }

    pub(super) fn is_ready(&self, model: &ModelState, now: Mono) -> bool {
        !model.queue.is_empty() && self.closes(model, now).is_none()
    }

    pub(super) fn pick_aged(&self, now: Mono) -> Option<(usize, Plan)> {
        let wait = self.config.wait_max;
        self.classes.iter().enumerate().find_map(|(rank, class)| {
            let oldest = *class.undated.first()?;
            let job = self.jobs.get(&oldest)?;
            let is_due = now.since(job.submitted) >= wait
                && class.aged_last.is_none_or(|last| now.since(last) >= wait);
            match is_due.then(|| self.place(now, oldest, job))? {
                Fit::Start(plan) => Some((rank, plan)),
                Fit::Hold | Fit::Nothing => None,
            }
        })
    }

    /// The first job of the class, in its order, for which there are lanes. Sheds what can't make it.
    pub(super) fn plan_class(&mut self, now: Mono, rank: usize) -> Fit {
        if self.classes[rank].queued == 0 {
            return Fit::Nothing;
        }
        let mut heads = Vec::with_capacity(self.classes[rank].models.len());
        for i in 0..self.classes[rank].models.len() {
            let index = self.classes[rank].models[i];
            if self.is_ready(&self.models[index], now) {
                heads.extend(self.first_in_time(now, index));
                // A lane closed to the first may be open to this one.
                heads.extend(self.models[index].queue.first_undated());
            }
        }
        heads.sort_unstable();
        for head in heads {
            let Some(job) = self.jobs.get(&head.job) else { continue };
            match self.place(now, head.job, job) {
                Fit::Nothing => {}
                fit => return fit,
            }
        }
        Fit::Nothing
    }

    /// The model's first job that can make its deadline; those before it are shed.
    fn first_in_time(&mut self, now: Mono, model: usize) -> Option<super::queue::Head> {
        loop {
            let head = self.models[model].queue.first()?;
            if self.admit(now, head.job) {
                return Some(head);
            }
            self.end_queued(now, head.job, End::Shed);
        }
    }

    fn admit(&mut self, now: Mono, id: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let Some(deadline) = job.rank.deadline().filter(|_| !job.probe) else { return true };
        let cost = &mut self.models[job.model].cost;
        match cost.admit(now, deadline, job.predicted, self.config.probe_interval) {
            Admission::Fits => true,
            Admission::Probe => {
                job.probe = true;
                true
            }
            Admission::Shed => false,
        }
    }

    /// The free lanes a job may take. Text takes any. Of n lanes, long pieces of others hold n - 1 at most,
    /// so that text never waits for more than a short one, except pieces without deadline while no text is
    /// runnable.
    fn place(&self, now: Mono, leader: JobId, job: &Job) -> Fit {
        let model = &self.models[job.model];
        let (batch_max, foreign_max) = (self.config.batch_piece_max, self.config.foreign_piece_max);
        let healthy = self.lanes_healthy();
        let mut width = model.spec.width.clamp(1, healthy.max(1));
        let (mut piece_max, mut is_exempt) = (batch_max, false);
        if model.spec.class != Class::Text && self.config.text_lane && healthy > 1 {
            let cost = model.cost.estimate(now, 1, job.predicted);
            let is_short = cost.is_some_and(|cost| cost <= foreign_max);
            let by_idleness = job.rank.deadline().is_none() && !self.is_text_runnable(now);
            if !is_short && !by_idleness {
                width = width.min(healthy - 1);
            }
            let open = (healthy - 1).saturating_sub(self.lanes_with_long_pieces());
            match (open >= width, by_idleness, is_short) {
                (true, _, _) => {}
                (false, true, _) => is_exempt = true,
                (false, false, true) => piece_max = batch_max.min(foreign_max),
                (false, false, false) if width > 1 => return Fit::Hold,
                (false, false, false) => return Fit::Nothing,
            }
        }
        let free = (0..self.lanes.len()).filter(|lane| self.lanes[*lane].is_none());
        let lanes: Vec<usize> = free.take(width).collect();
        match lanes.len() {
            found if found == width => Fit::Start(Plan { leader, lanes, piece_max, is_exempt }),
            0 => Fit::Nothing,
            _ => Fit::Hold,
        }
    }

    pub(super) fn lanes_healthy(&self) -> usize {
        let stuck = self.running.values().filter(|r| r.stuck).map(|r| r.lanes.len());
        self.lanes.len() - stuck.sum::<usize>()
    }

    fn lanes_with_long_pieces(&self) -> usize {
        let long = self.running.values().filter(|r| r.is_long && !r.stuck);
        long.map(|r| r.lanes.len()).sum()
    }

    fn is_text_runnable(&self, now: Mono) -> bool {
        let texts = self.models.iter().filter(|m| m.spec.class == Class::Text);
        texts.into_iter().any(|m| self.is_ready(m, now))
    }

    /// Whether the class's share owes it this job.
    pub(super) fn is_owed(&self, now: Mono, rank: usize, leader: JobId, width: usize) -> bool {
        let ahead = |r: &Running| {
            let left = r.estimate.unwrap_or_default().saturating_sub(now.since(r.started));
            left * r.lanes.len() as u32
        };
        let of_class = |r: &&Running| !r.stuck && self.models[r.model].rank == rank;
        let committed: Duration = self.running.values().filter(of_class).map(ahead).sum();
        let cost = self
            .jobs
            .get(&leader)
            .and_then(|job| self.models[job.model].cost.estimate(now, 1, job.predicted));
        let cost = cost.unwrap_or_default() * width as u32;
        self.classes[rank].share.owes(cost, committed, self.lanes_healthy())
    }

    /// Takes the leader and those who join it out of the queue and gives them their lanes.
    fn start(&mut self, now: Mono, plan: Plan, why: Why, alone: bool) -> Dispatch {
        let id = DispatchId(self.dispatches_seen);
        self.dispatches_seen += 1;
        let mut members = Vec::new();
        let mut index = 0;
        let mut predicted = None;
        if let Some(leader) = self.take(plan.leader) {
            index = leader.model;
            predicted = leader.predicted;
            let is_alone = alone || leader.probe || predicted.is_some();
            members.push((plan.leader, leader));
            if !is_alone {
                self.fill(now, index, &plan, &mut members);
            }
        }
        let model = &mut self.models[index];
        let batch = members.len();
        let estimate = model.cost.estimate(now, batch, predicted);
        let is_short = estimate.is_some_and(|e| e <= self.config.foreign_piece_max);
        let is_long = model.spec.class != Class::Text && !plan.is_exempt && !is_short;
        model.counts.running += batch as u64;
        self.classes[model.rank].lanes_held += plan.lanes.len() as u64;
        for lane in &plan.lanes {
            self.lanes[*lane] = Some(id);
        }
        let jobs = members.iter().map(|(job, _)| *job).collect();
        let lanes = plan.lanes.clone();
        let running = Running {
            model: index,
            members,
            batch,
            lanes: plan.lanes,
            started: now,
            estimate,
            predicted,
            is_long,
            why,
            is_preempted: false,
            stuck: false,
        };
        self.running.insert(id, running);
        Dispatch { id, model: ModelKey(index as u32), jobs, lanes, why, estimate }
    }

    /// Adds members as long as the batch stays short enough and in time for each of them. A model whose
    /// cost is unknown is tried with a single job first.
    fn fill(&mut self, now: Mono, index: usize, plan: &Plan, members: &mut Vec<(JobId, Job)>) {
        let mut due_first = members.first().and_then(|(_, job)| job.rank.deadline());
        while members.len() < self.models[index].spec.batch_max {
            let model = &self.models[index];
            let Some(cost) = model.cost.p90(now, members.len() + 1) else { return };
            let next = if plan.is_exempt {
                model.queue.first_undated()
            } else {
                self.first_in_time(now, index)
            };
            let Some(next) = next else { return };
            let deadline = next.rank().deadline();
            due_first = due_first.into_iter().chain(deadline).min();
            let is_late = due_first.is_some_and(|due| now + cost > due);
            let is_other =
                self.jobs.get(&next.job).is_none_or(|j| j.probe || j.predicted.is_some());
            if cost > plan.piece_max || is_late || is_other {
                return;
            }
            let Some(job) = self.take(next.job) else { return };
            members.push((next.job, job));
        }
    }

    /// Takes a job out to run it: its stream has been served.
    fn take(&mut self, id: JobId) -> Option<Job> {
        let (stream, rank) = self.jobs.get(&id).map(|j| (j.stream, self.models[j.model].rank))?;
        let served_before = self.streams.served(stream, rank);
        let served = self.streams.serve(stream, rank);
        self.order_stream(stream, rank, served);
        let job = self.unqueue(id)?;
        Some(Job { served_before, ..job })
    }

    /// Gives the stream its place among those equal to it.
    pub(super) fn order_stream(&mut self, stream: StreamIndex, rank: usize, served: u64) {
        for i in 0..self.classes[rank].models.len() {
            let model = self.classes[rank].models[i];
            self.models[model].queue.served(stream, served);
        }
    }
}
