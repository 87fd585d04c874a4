//! The engine: one thread, one context, and a loop of steps that requests join and leave between.
//!
//! Its neighbours are `plan` (what goes into a step) and `inbox` (who waits). The one rule: after a request's
//! end, however it ends, its sequence is free and its cells are given back.
//!
//! Greedy answers do not depend on who else runs, except where two tokens are almost equally likely: attention
//! sums over cells in the order in which they lie in the pool, and another cutting of a prompt rounds otherwise.
//!
//! Prompts are cut so that a step stays under a quantum by what steps cost lately; steps that one request has to
//! itself under a longer one, since nobody's answer stalls for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use media::{Clock, Mono, SystemClock};
use models::ModelError;
use models::llama::{BatchToken, Decoded, LlamaContext};

use super::admission::Parked;
use super::backend::{BackendError, EngineStats, Finish};
use super::blocks::{Blocks, PoolSize};
use super::inbox::Inbox;
use super::plan::{Limits, Want, plan};
use super::quantum::{Recent, StepCost};
use super::task::{Kind, Scoring, Task};
use super::wire::FromChild;

/// Most sequences that are kept when their requests have ended or wait; each costs a row of logits, 0.2 MB.
pub(super) const KEPT_MAX: usize = 64;
/// Most tokens of a continuation, and of those of one score that are computed at once.
pub(super) const CONTINUATION_TOKENS_MAX: usize = 64;
/// Continuations that are computed at once, over all scores of a step.
pub(super) const BRANCHES_MAX: usize = 32;
/// Steps and urgent requests that the measured times are taken from.
const TIMES: usize = 256;

/// Sizes of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Places {
    /// Requests that can run at once.
    pub(super) slots: usize,
    /// How many of these only urgent requests may take.
    pub(super) slots_urgent: usize,
    /// Cells that are kept for nobody in particular, at most.
    pub(super) cached_cells: usize,
    /// How long an idle engine waits for more requests before it starts with one that is not urgent.
    pub(super) window: Duration,
    /// Aim for the time of a step; 0: none.
    pub(super) quantum_ms: f64,
    /// The same for a step that one request has to itself.
    pub(super) quantum_alone_ms: f64,
}

pub(super) struct Engine {
    pub(super) ctx: LlamaContext,
    pub(super) inbox: Arc<Inbox>,
    out: SyncSender<FromChild>,
    pub(super) clock: Arc<SystemClock>,
    pub(super) places: Places,
    limits: Limits,
    pub(super) running: Vec<Task>,
    branches: Vec<u32>,
    pub(super) blocks: Blocks,
    /// What waiting requests had computed when they gave up their place, by request.
    pub(super) parked: HashMap<u64, Parked>,
    /// Tokens of those that are kept outside the pool.
    pub(super) cells_saved: usize,
    pub(super) stats: EngineStats,
    pub(super) cost: StepCost,
    pub(super) step_ms: Recent,
    pub(super) urgent_wait_ms: Recent,
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
pub(super) struct Step {
    pub(super) batch: Vec<BatchToken>,
    rows: Vec<Row>,
    /// Per task: position in `running`, tokens of its own sequence.
    pub(super) parts: Vec<(usize, usize)>,
    /// Per score in its continuations: position in `running`, where it goes on after this step.
    pub(super) rounds: Vec<(usize, usize)>,
    branches: Vec<u32>,
    /// Requests with one token each.
    pub(super) generating: usize,
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
        let sequences = places.slots + KEPT_MAX;
        let blocks = Blocks::new(PoolSize {
            cells: ctx.settings().n_ctx as usize,
            sequences,
            kept: KEPT_MAX,
            cached_cells: places.cached_cells,
        });
        let stats = EngineStats { cells: blocks.cells() as u32, ..EngineStats::default() };
        Engine {
            ctx,
            inbox,
            out,
            clock,
            places,
            limits,
            running: Vec::new(),
            branches: (sequences..sequences + BRANCHES_MAX).map(|seq| seq as u32).collect(),
            blocks,
            parked: HashMap::new(),
            cells_saved: 0,
            stats,
            cost: StepCost::new(),
            step_ms: Recent::new(TIMES),
            urgent_wait_ms: Recent::new(TIMES),
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
                self.forget(id);
                if let Some(at) = self.running.iter().position(|t| t.id == id) {
                    let task = self.leave(at);
                    self.report(Some(task.enqueued));
                }
            }
            for task in between.late {
                self.forget(task.id);
                self.end_late(task, now);
            }
            while let Some(at) = self.running.iter().position(|t| t.until.is_some_and(|u| u <= now))
            {
                let task = self.leave(at);
                self.end_late(task, now);
            }
            if between.drop_caches {
                self.drop_caches();
            }
            self.admit(now);
            if self.running.is_empty() {
                self.report(None);
                let places = self.places.slots - self.places.slots_urgent;
                self.inbox.wait(self.places.window, places);
            } else {
                self.step();
            }
        }
    }

    fn step(&mut self) {
        let step = self.compose();
        let rank = step.parts.iter().chain(&step.rounds).map(|&(at, _)| self.running[at].turn.rank);
        let began = self.clock.now();
        self.inbox.step_begins(rank.min().unwrap_or(i32::MAX), began);
        self.begin_urgent(&step, began);
        let result = self.ctx.decode(&step.batch);
        let now = self.clock.now();
        if matches!(result, Ok(Decoded::Done)) {
            self.measure(&step, now.ms_since(began));
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
                let mut lost = step.batch.len();
                for &(at, _) in &step.parts {
                    let task = &mut self.running[at];
                    // A request whose tokens are all there has lost its logits: its last token comes again.
                    let kept = (self.ctx.seq_len(task.seq) as usize).min(task.tokens.len() - 1);
                    self.ctx.seq_cut(task.seq, kept as u32);
                    lost = lost.saturating_sub(kept.saturating_sub(task.computed));
                    task.computed = kept;
                    self.blocks.computed(task.seq, &task.tokens[..kept]);
                }
                self.stats.abort_tokens += lost as u64;
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
        let generating = self.running.iter().filter(|t| t.generates()).count();
        let Places { quantum_ms, quantum_alone_ms, .. } = self.places;
        let quantum_ms = if self.running.len() == 1 { quantum_alone_ms } else { quantum_ms };
        let chunk = self.cost.chunk(generating, quantum_ms, self.limits.chunk);
        let chunk_urgent = self.cost.chunk(0, quantum_alone_ms, self.limits.chunk_urgent);
        self.stats.chunk_tokens = chunk as u32;
        let wants: Vec<Want> = self.running.iter().map(|t| want(t, chunk)).collect();
        let mut step = Step::default();
        for (at, n) in plan(&wants, &Limits { chunk, chunk_urgent, ..self.limits }) {
            if wants[at].whole {
                self.compose_round(at, chunk, &mut step);
                continue;
            }
            step.generating += usize::from(self.running[at].generates());
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

    /// Continuations of a score branch off the end of its prefix.
    fn compose_round(&mut self, at: usize, chunk: usize, step: &mut Step) {
        let task = &self.running[at];
        let Kind::Score(scoring) = &task.kind else { return };
        let round = scoring.round(self.branches.len(), round_tokens(task, scoring, chunk));
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
            let task = &mut self.running[at];
            task.computed += n;
            self.blocks.computed(task.seq, &task.tokens[..task.computed]);
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

    /// Takes finished requests out.
    fn settle(&mut self, now: Mono) {
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
        let last =
            self.running.iter().enumerate().max_by_key(|(_, t)| (t.turn.rank, t.turn.arrival));
        if let Some((at, _)) = last {
            let id = Some(self.fail(at).id);
            send(&self.out, FromChild::Error { id, error });
        }
    }

    fn fail_step(&mut self, step: &Step, error: &ModelError) {
        let in_step = step.parts.iter().chain(&step.rounds);
        let mut positions: Vec<usize> = in_step.map(|&(at, _)| at).collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        for at in positions {
            let id = Some(self.fail(at).id);
            let error = BackendError::Failed { detail: error.to_string() };
            send(&self.out, FromChild::Error { id, error });
        }
    }
}

fn want(task: &Task, chunk: usize) -> Want {
    let (tokens, whole) = match &task.kind {
        Kind::Score(scoring) if scoring.next.is_some() => {
            let round = scoring.round(BRANCHES_MAX, round_tokens(task, scoring, chunk));
            (scoring.continuations[round].iter().map(|c| c.len() - 1).sum(), true)
        }
        _ => (task.behind(), false),
    };
    Want { priority: task.turn.rank, arrival: task.turn.arrival, tokens, whole }
}

/// Tokens of a score's next round, which is computed whole: at least one continuation.
fn round_tokens(task: &Task, scoring: &Scoring, chunk: usize) -> usize {
    let next = scoring.next.and_then(|next| scoring.continuations.get(next));
    let least = next.map_or(0, |c| c.len() - 1);
    let most = if task.turn.is_urgent() { CONTINUATION_TOKENS_MAX } else { chunk };
    most.min(CONTINUATION_TOKENS_MAX).max(least)
}

/// Waits while the parent is slow to read; when it is gone, the process is ending anyway.
fn send(out: &SyncSender<FromChild>, message: FromChild) {
    if out.send(message).is_err() {
        tracing::debug!("nobody reads the answers any more");
    }
}
