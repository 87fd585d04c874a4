//! The engine: one thread, one context, and a loop of steps that requests join and leave between.
//!
//! Its neighbours are `plan` (what goes into a step) and `inbox` (who waits). The one rule: after a request's
//! end, however it ends, its sequence is free and its cells are given back.
//!
//! Greedy answers do not depend on who else runs, except where two tokens are almost equally likely: attention
//! sums over cells in the order in which they lie in the pool, and another cutting of a prompt rounds otherwise.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use media::{Clock, Mono, SystemClock};
use models::ModelError;
use models::llama::{BatchToken, Decoded, LlamaContext};

use super::backend::{BackendError, EngineStats, Finish};
use super::inbox::Inbox;
use super::plan::{Limits, Want, plan};
use super::prefix::Prefixes;
use super::task::{Kind, Task};
use super::wire::FromChild;

/// Kept prefixes at most.
pub(super) const PREFIXES_MAX: usize = 16;
/// Continuations that are computed at once, over all scores of a step.
pub(super) const BRANCHES_MAX: usize = 32;
/// Weight of the newest step in a measured rate.
const RATE_WEIGHT: f64 = 0.1;

/// Sizes of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Requests that can run at once.
    pub(super) slots: usize,
    /// How many of these only urgent requests may take.
    pub(super) slots_urgent: usize,
}

pub(super) struct Engine {
    pub(super) ctx: LlamaContext,
    pub(super) inbox: Arc<Inbox>,
    out: SyncSender<FromChild>,
    clock: Arc<SystemClock>,
    pub(super) places: Places,
    limits: Limits,
    pub(super) running: Vec<Task>,
    pub(super) free: Vec<u32>,
    branches: Vec<u32>,
    pub(super) prefixes: Prefixes,
    /// Tokens of requests that gave up their place and are kept outside the pool.
    pub(super) cells_saved: usize,
    pub(super) stats: EngineStats,
}

/// Whose logits a row of the batch holds.
#[derive(Clone, Copy, Debug)]
enum Row {
    /// After the last token of a request.
    Last { task: usize, index: usize },
    /// Inside a continuation: the row decides the likelihood of its `token`-th token.
    Branch { task: usize, index: usize, continuation: usize, token: usize },
}

#[derive(Debug, Default)]
struct Step {
    batch: Vec<BatchToken>,
    rows: Vec<Row>,
    /// Per task: position in `running`, tokens of its own sequence.
    parts: Vec<(usize, usize)>,
    /// Per score in its continuations: position in `running`, where it goes on after this step.
    rounds: Vec<(usize, usize)>,
    branches: Vec<u32>,
}

impl Engine {
    pub(super) fn new(
        ctx: LlamaContext,
        inbox: Arc<Inbox>,
        out: SyncSender<FromChild>,
        clock: Arc<SystemClock>,
        places: Places,
        limits: Limits,
    ) -> Self {
        let sequences = (places.slots + PREFIXES_MAX) as u32;
        let stats = EngineStats { cells: ctx.settings().n_ctx, ..EngineStats::default() };
        Engine {
            ctx,
            inbox,
            out,
            clock,
            places,
            limits,
            running: Vec::new(),
            free: (0..sequences).rev().collect(),
            branches: (sequences..sequences + BRANCHES_MAX as u32).collect(),
            prefixes: Prefixes::default(),
            cells_saved: 0,
            stats,
        }
    }

    /// Works until the inbox is closed.
    pub(super) fn run(mut self) {
        loop {
            self.inbox.rest(|id| send(&self.out, FromChild::Paused { id }));
            let now = self.clock.now();
            let between = self.inbox.between(now);
            if between.closed {
                return;
            }
            for id in between.cancelled {
                if let Some(at) = self.running.iter().position(|t| t.id == id) {
                    let task = self.leave(at);
                    self.report(Some(task.enqueued));
                }
            }
            for task in between.late {
                self.end_late(task, now);
            }
            while let Some(at) = self.running.iter().position(|t| t.until.is_some_and(|u| u <= now))
            {
                let task = self.leave(at);
                self.end_late(task, now);
            }
            self.admit(now);
            if self.running.is_empty() {
                self.report(None);
                self.inbox.wait();
            } else {
                self.step();
            }
        }
    }

    fn step(&mut self) {
        let step = self.compose();
        let priority =
            step.parts.iter().chain(&step.rounds).map(|&(at, _)| self.running[at].priority);
        let began = self.clock.now();
        self.inbox.step_begins(priority.min().unwrap_or(i32::MAX), began);
        let result = self.ctx.decode(&step.batch);
        let now = self.clock.now();
        if matches!(result, Ok(Decoded::Done)) {
            self.measure(&step, now.since(began).as_secs_f64());
            self.take(&step, now);
        }
        for &seq in &step.branches {
            self.ctx.seq_cut(seq, 0);
        }
        self.branches.extend(&step.branches);
        match result {
            Ok(Decoded::Done) => self.settle(now),
            Ok(Decoded::Aborted) => {
                self.stats.aborts += 1;
                for &(at, _) in &step.parts {
                    let task = &mut self.running[at];
                    // A request whose tokens are all there has lost its logits: its last token comes again.
                    let kept = (self.ctx.seq_len(task.seq) as usize).min(task.tokens.len() - 1);
                    self.ctx.seq_cut(task.seq, kept as u32);
                    task.computed = kept;
                }
            }
            Ok(Decoded::NoRoom) => {
                // The accounting promises room; if it is wrong, the last in line pays and the rest goes on.
                self.fail_last(BackendError::Failed { detail: "no room for its tokens".into() });
            }
            Err(error) => self.fail_step(&step, &error),
        }
        self.report(None);
    }

    /// Turns the plan into a batch.
    fn compose(&mut self) -> Step {
        let wants: Vec<Want> = self.running.iter().map(|t| self.want(t)).collect();
        let mut step = Step::default();
        for (at, n) in plan(&wants, &self.limits) {
            if wants[at].whole {
                self.compose_round(at, &mut step);
                continue;
            }
            let task = &self.running[at];
            let last = task.computed + n == task.tokens.len();
            for (i, &token) in task.tokens[task.computed..task.computed + n].iter().enumerate() {
                step.batch.push(BatchToken {
                    token,
                    pos: (task.computed + i) as u32,
                    seq: task.seq,
                    logits: last && i + 1 == n,
                });
            }
            if last {
                step.rows.push(Row::Last { task: at, index: step.batch.len() - 1 });
            }
            step.parts.push((at, n));
        }
        step
    }

    fn want(&self, task: &Task) -> Want {
        let (tokens, whole) = match &task.kind {
            Kind::Score(scoring) if scoring.next.is_some() => {
                let round = scoring.round(BRANCHES_MAX, self.limits.chunk);
                (scoring.continuations[round].iter().map(|c| c.len() - 1).sum(), true)
            }
            _ => (task.behind(), false),
        };
        Want { priority: task.priority, arrival: task.arrival, tokens, whole }
    }

    /// Continuations of a score branch off the end of its prefix.
    fn compose_round(&mut self, at: usize, step: &mut Step) {
        let task = &self.running[at];
        let Kind::Score(scoring) = &task.kind else { return };
        let round = scoring.round(self.branches.len(), self.limits.chunk);
        let start = task.tokens.len();
        let end = round.end;
        for k in round {
            let continuation = &scoring.continuations[k];
            if continuation.len() == 1 {
                continue;
            }
            let Some(seq) = self.branches.pop() else { break };
            step.branches.push(seq);
            self.ctx.seq_share(task.seq, seq, start as u32);
            for (i, &token) in continuation[..continuation.len() - 1].iter().enumerate() {
                let index = step.batch.len();
                step.rows.push(Row::Branch { task: at, index, continuation: k, token: i + 1 });
                step.batch.push(BatchToken { token, pos: (start + i) as u32, seq, logits: true });
            }
        }
        step.rounds.push((at, end));
    }

    /// Takes what a finished step says.
    fn take(&mut self, step: &Step, now: Mono) {
        for &(at, n) in &step.parts {
            self.running[at].computed += n;
        }
        for &row in &step.rows {
            match row {
                Row::Last { task, index } => {
                    let Some(logits) = self.ctx.logits(index) else { continue };
                    let task = &mut self.running[task];
                    task.first.get_or_insert(now);
                    let said = task.advance(self.ctx.model(), logits);
                    let id = task.id;
                    if let Some(token) = said.logprobs {
                        send(&self.out, FromChild::Logprobs { id, tokens: vec![token] });
                    }
                    if !said.text.is_empty() {
                        send(&self.out, FromChild::Text { id, text: said.text });
                    }
                    if let Some(end) = said.end {
                        let usage = task.usage(now);
                        send(
                            &self.out,
                            match end {
                                Ok(finish) => FromChild::End { id, finish, usage },
                                Err(error) => FromChild::Error { id: Some(id), error },
                            },
                        );
                        task.reserve = 0; // marks the end; `settle` takes it out
                    }
                }
                Row::Branch { task, index, continuation, token } => {
                    let Some(logits) = self.ctx.logits(index) else { continue };
                    if let Kind::Score(scoring) = &mut self.running[task].kind {
                        scoring.add(continuation, token, logits);
                    }
                }
            }
        }
        for &(at, end) in &step.rounds {
            if let Kind::Score(scoring) = &mut self.running[at].kind {
                scoring.next = Some(scoring.skip(end));
            }
        }
    }

    /// Keeps new prefixes and takes finished requests out.
    fn settle(&mut self, now: Mono) {
        for at in 0..self.running.len() {
            self.keep_prefix(at);
        }
        let mut at = 0;
        while at < self.running.len() {
            let task = &self.running[at];
            match &task.kind {
                Kind::Score(scoring) if scoring.is_done() => {
                    let (id, scores, usage) = (task.id, scoring.scores(), task.usage(now));
                    send(&self.out, FromChild::Scores { id, scores, usage });
                }
                Kind::Generate(_) if task.reserve == 0 => {}
                _ => {
                    at += 1;
                    continue;
                }
            }
            let task = self.leave(at);
            self.report(Some(task.enqueued));
        }
    }

    fn keep_prefix(&mut self, at: usize) {
        let task = &self.running[at];
        let reuse = task.reuse;
        if reuse < 2 || task.computed < reuse || self.prefixes.holds(&task.tokens[..reuse]) {
            return;
        }
        if self.prefixes.len() >= PREFIXES_MAX {
            let Some(seq) = self.prefixes.evict() else { return };
            self.ctx.seq_cut(seq, 0);
            self.free.push(seq);
        }
        let Some(seq) = self.free.pop() else { return };
        self.ctx.seq_share(task.seq, seq, reuse as u32);
        let key = self.prefixes.keep(seq, &task.tokens[..reuse]);
        let task = &mut self.running[at];
        // Its cells belong to the new prefix from now on.
        let shared = super::prefix::Shared { key, seq, len: reuse };
        if let Some(old) = task.shared.replace(shared) {
            self.prefixes.release(old.key);
        }
    }

    fn end_late(&mut self, mut task: Task, now: Mono) {
        let id = task.id;
        let answer = match &task.kind {
            Kind::Score(_) => FromChild::Error { id: Some(id), error: BackendError::TimeLimit },
            Kind::Generate(_) => {
                let text = task.rest();
                if !text.is_empty() {
                    send(&self.out, FromChild::Text { id, text });
                }
                FromChild::End { id, finish: Finish::TimeLimit, usage: task.usage(now) }
            }
        };
        send(&self.out, answer);
        self.report(Some(task.enqueued));
    }

    fn fail_last(&mut self, error: BackendError) {
        let last = self.running.iter().enumerate().max_by_key(|(_, t)| (t.priority, t.arrival));
        if let Some((at, _)) = last {
            let id = Some(self.leave(at).id);
            send(&self.out, FromChild::Error { id, error });
        }
    }

    fn fail_step(&mut self, step: &Step, error: &ModelError) {
        let in_step = step.parts.iter().chain(&step.rounds);
        let mut positions: Vec<usize> = in_step.map(|&(at, _)| at).collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        for at in positions {
            let id = Some(self.leave(at).id);
            let error = BackendError::Failed { detail: error.to_string() };
            send(&self.out, FromChild::Error { id, error });
        }
    }

    fn measure(&mut self, step: &Step, seconds: f64) {
        self.stats.steps += 1;
        let tokens = step.batch.len() as f64;
        if seconds <= 0.0 {
            return;
        }
        let rate = match (step.parts.as_slice(), step.rounds.is_empty()) {
            ([(_, 1)], true) => &mut self.stats.decode_tokens_per_s,
            (parts, true) if parts.iter().all(|&(_, n)| n >= 8) => {
                &mut self.stats.prefill_tokens_per_s
            }
            _ => return,
        };
        let weight = if *rate == 0.0 { 1.0 } else { RATE_WEIGHT };
        *rate += (tokens / seconds - *rate) * weight;
    }

    fn report(&mut self, enqueued: Option<Mono>) {
        self.stats.running = self.running.len() as u32;
        self.stats.cells_used = self.cells_used() as u32;
        self.stats.prefixes = self.prefixes.len() as u32;
        let ended_ms = enqueued.map(|at| self.clock.now().ms_since(at));
        self.inbox.report(self.stats, ended_ms);
    }
}

/// Waits while the parent is slow to read; when it is gone, the process is ending anyway.
fn send(out: &SyncSender<FromChild>, message: FromChild) {
    if out.send(message).is_err() {
        tracing::debug!("nobody reads the answers any more");
    }
}
