//! Decides when a window's answer goes out, and with what. Never sleeps, never reads a clock.
//!
//! Revision 0 goes out in window order: when every expected stage has answered, or a margin before the
//! deadline with what there is. One revision may follow within a bound when late answers come. Whoever drives
//! it passes what the sealer and the stages say, and polls after each call and at [`FusionBook::next_wakeup`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use media::result::{FusedResult, Fusion, Missing, MissingReason, RESULT_SCHEMA, Status, Timing};
use media::{Mono, Observation};

use super::alerts::Alerts;
use super::ledger::Ledger;
use super::pooling::Evidence;
use super::settings::{BookSettings, Emit, ExpectedStage, Outcome};
use super::taxonomy::Taxonomy;
use super::window::WindowContents;
use crate::plan::StageIndex;
use crate::stages::PortType;
use crate::windows::Seal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Pending,
    /// The stage is away; it may still come back and answer.
    Gone(MissingReason),
    Missing(MissingReason),
    Ok,
}

#[derive(Clone, Debug)]
struct Entry {
    seal: Option<Seal>,
    contents: WindowContents,
    /// By slot, as the settings list the stages that apply.
    answers: Vec<Answer>,
    timings: Vec<Option<Timing>>,
    /// Observations since the last result.
    held: u64,
}

impl Entry {
    fn settled(&self) -> bool {
        !self.answers.contains(&Answer::Pending)
    }
}

/// A window that went out incomplete and may be revised.
#[derive(Clone, Debug)]
struct Sent {
    entry: Entry,
    seal: Seal,
    until: Mono,
    /// Something came that its result doesn't hold.
    news: bool,
}

/// The open windows of one stream.
#[derive(Debug)]
pub struct FusionBook {
    settings: BookSettings,
    /// Stages that apply; a slot is a position here.
    stages: Vec<ExpectedStage>,
    gone: Vec<Option<MissingReason>>,
    taxonomy: Arc<Taxonomy>,
    alerts: Arc<Alerts>,
    open: BTreeMap<u64, Entry>,
    sent: BTreeMap<u64, Sent>,
    /// No window before this one will be sealed any more.
    seal_next: u64,
    stream_seq: u64,
    /// Last sign of life of any stage.
    heard_at: Mono,
    faults_told: BTreeSet<Arc<str>>,
    ledger: Ledger,
}

enum Place<'a> {
    Open(&'a mut Entry),
    Sent(&'a mut Sent),
    Closed,
    Full,
}

impl FusionBook {
    /// A stream without windows yet.
    pub fn new(settings: BookSettings, taxonomy: Arc<Taxonomy>, alerts: Arc<Alerts>) -> Self {
        let stages: Vec<_> = settings.stages.iter().filter(|s| s.applies).cloned().collect();
        FusionBook {
            gone: vec![None; stages.len()],
            stages,
            taxonomy,
            alerts,
            open: BTreeMap::new(),
            sent: BTreeMap::new(),
            seal_next: 0,
            stream_seq: 0,
            heard_at: settings.admitted,
            faults_told: BTreeSet::new(),
            ledger: Ledger::default(),
            settings,
        }
    }

    /// An observation of `stage` that lies in window `index`.
    pub fn offer(&mut self, now: Mono, index: u64, stage: StageIndex, observation: Observation) {
        self.heard_at = self.heard_at.max(now);
        self.ledger.observations.offered += 1;
        if self.slot(stage).is_none() {
            self.ledger.observations.dropped += 1;
            return;
        }
        match self.place(index) {
            Place::Open(entry) => {
                entry.contents.add(observation);
                entry.held += 1;
                self.ledger.observations.held += 1;
            }
            Place::Sent(sent) => {
                sent.entry.contents.add(observation);
                sent.entry.held += 1;
                sent.news = true;
                self.ledger.observations.held += 1;
            }
            Place::Closed => self.ledger.observations.late += 1,
            Place::Full => self.ledger.observations.dropped += 1,
        }
    }

    /// `stage` is done with window `index`. Told once; a later `Ok` may still replace `Missing`.
    pub fn answered(
        &mut self,
        now: Mono,
        index: u64,
        stage: StageIndex,
        outcome: Outcome,
        timing: Option<Timing>,
    ) {
        self.heard_at = self.heard_at.max(now);
        let Some(slot) = self.slot(stage) else { return };
        let answer = match outcome {
            Outcome::Ok => Answer::Ok,
            Outcome::Missing(reason) => Answer::Missing(reason),
        };
        let (entry, news) = match self.place(index) {
            Place::Open(entry) => (entry, None),
            Place::Sent(sent) => (&mut sent.entry, Some(&mut sent.news)),
            Place::Closed => {
                self.ledger.answers_late += 1;
                return;
            }
            Place::Full => return,
        };
        if entry.answers[slot] == Answer::Ok {
            return;
        }
        entry.answers[slot] = answer;
        entry.timings[slot] = timing;
        if let Some(news) = news {
            *news |= answer == Answer::Ok;
            self.ledger.answers_late += 1;
        }
    }

    /// A window is sealed. Windows are sealed in order; one sealed twice or out of order is passed over.
    pub fn sealed(&mut self, now: Mono, seal: Seal) {
        let index = seal.window.index;
        if index < self.seal_next {
            return;
        }
        self.heard_at = self.heard_at.max(now);
        self.drop_unsealed_before(index);
        let fresh = self.fresh_entry();
        self.open.entry(index).or_insert(fresh).seal = Some(seal);
        self.seal_next = index.saturating_add(1);
        self.ledger.windows.sealed += 1;
        self.ledger.windows.open += 1;
    }

    /// Windows up to `last` that were not sealed never will be.
    pub fn skipped(&mut self, last: u64) {
        self.seal_next = self.seal_next.max(last.saturating_add(1));
        self.drop_unsealed_before(self.seal_next);
    }

    /// `stage` is being restarted or was given up: nothing waits for it until [`FusionBook::stage_back`].
    pub fn stage_gone(&mut self, stage: StageIndex, reason: MissingReason) {
        let Some(slot) = self.slot(stage) else { return };
        self.gone[slot] = Some(reason);
        let sent = self.sent.values_mut().map(|sent| &mut sent.entry);
        for entry in self.open.values_mut().chain(sent) {
            if entry.answers[slot] == Answer::Pending {
                entry.answers[slot] = Answer::Gone(reason);
            }
        }
    }

    /// `stage` runs again and finds its queue: open windows wait for it.
    pub fn stage_back(&mut self, stage: StageIndex) {
        let Some(slot) = self.slot(stage) else { return };
        self.gone[slot] = None;
        for entry in self.open.values_mut() {
            if matches!(entry.answers[slot], Answer::Gone(_)) {
                entry.answers[slot] = Answer::Pending;
            }
        }
    }

    /// What goes out now, in order.
    pub fn poll(&mut self, now: Mono) -> Vec<Emit> {
        let mut emits = Vec::new();
        let forced = self.forced_through(now);
        while let Some(first) = self.open.first_entry() {
            let Some(seal) = first.get().seal else { break };
            if !first.get().settled() && forced.is_none_or(|forced| *first.key() > forced) {
                break;
            }
            let entry = first.remove();
            emits.push(self.emit(now, entry, seal));
        }
        let settled = self.sent.iter().filter(|(_, sent)| {
            now >= sent.until
                || (sent.entry.settled() && (sent.news || !awaits_return(&sent.entry)))
        });
        for index in settled.map(|(index, _)| *index).collect::<Vec<_>>() {
            emits.extend(self.finish_revision(now, index));
        }
        while self.sent.len() > self.settings.open_max {
            let Some(index) = self.sent.keys().next().copied() else { break };
            emits.extend(self.finish_revision(now, index));
        }
        emits
    }

    /// The stream is over and nothing more will come: everything sealed goes out with what there is.
    pub fn close(&mut self, now: Mono) -> Vec<Emit> {
        self.drop_unsealed_before(u64::MAX);
        let mut emits = Vec::new();
        while let Some((_, entry)) = self.open.pop_first() {
            if let Some(seal) = entry.seal {
                emits.push(self.emit(now, entry, seal));
            }
        }
        for index in self.sent.keys().copied().collect::<Vec<_>>() {
            emits.extend(self.finish_revision(now, index));
        }
        self.seal_next = u64::MAX;
        emits
    }

    /// When to poll if nothing else happens; `now` when there is something already.
    pub fn next_wakeup(&self, now: Mono) -> Option<Mono> {
        if self.open.first_key_value().is_some_and(|(_, e)| e.seal.is_some() && e.settled()) {
            return Some(now);
        }
        let open = self.open.values().filter_map(|e| e.seal).filter_map(|seal| self.due(&seal));
        open.chain(self.sent.values().map(|sent| sent.until)).min()
    }

    /// Whether another window can be opened. Unpaced sources wait for room; a paced one that goes on makes
    /// the oldest sealed window go out incomplete.
    pub fn has_room(&self) -> bool {
        self.open.len() < self.settings.open_max
    }

    /// Whether nothing is open and no revision is awaited.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.sent.is_empty()
    }

    /// Everything counted so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn slot(&self, stage: StageIndex) -> Option<usize> {
        self.stages.iter().position(|s| s.index == stage)
    }

    fn place(&mut self, index: u64) -> Place<'_> {
        if index >= self.seal_next && !self.open.contains_key(&index) {
            if !self.has_room() {
                return Place::Full;
            }
            let fresh = self.fresh_entry();
            return Place::Open(self.open.entry(index).or_insert(fresh));
        }
        match (self.open.get_mut(&index), self.sent.get_mut(&index)) {
            (Some(entry), _) => Place::Open(entry),
            (None, Some(sent)) => Place::Sent(sent),
            (None, None) => Place::Closed,
        }
    }

    fn fresh_entry(&self) -> Entry {
        let answer = |gone: &Option<MissingReason>| gone.map_or(Answer::Pending, Answer::Gone);
        Entry {
            seal: None,
            contents: WindowContents::default(),
            answers: self.gone.iter().map(answer).collect(),
            timings: vec![None; self.stages.len()],
            held: 0,
        }
    }

    fn drop_unsealed_before(&mut self, index: u64) {
        let counts = &mut self.ledger.observations;
        self.open.retain(|have, entry| {
            let keep = *have >= index || entry.seal.is_some();
            if !keep {
                counts.held -= entry.held;
                counts.dropped += entry.held;
            }
            keep
        });
    }

    /// When a sealed window goes out whether complete or not.
    fn due(&self, seal: &Seal) -> Option<Mono> {
        let deadline = seal.deadline.map(|d| (d - self.settings.emit_margin).max(seal.sealed_at));
        let hang = (!self.settings.paced)
            .then(|| seal.sealed_at.max(self.heard_at) + self.settings.hang_max);
        deadline.into_iter().chain(hang).min()
    }

    /// Last window that can't wait. The ones before it can't either: order is kept.
    fn forced_through(&self, now: Mono) -> Option<u64> {
        let sealed = || self.open.iter().filter_map(|(index, e)| Some((*index, e.seal.as_ref()?)));
        let due = sealed()
            .filter(|(_, seal)| self.due(seal).is_some_and(|due| due <= now))
            .map(|(index, _)| index)
            .next_back();
        let over = self.open.len().saturating_sub(self.settings.open_max);
        let pushed = over.checked_sub(1).and_then(|i| sealed().nth(i)).map(|(index, _)| index);
        due.max(pushed)
    }

    /// First result of a window.
    fn emit(&mut self, now: Mono, entry: Entry, seal: Seal) -> Emit {
        let emit = self.fuse(now, &entry, &seal, 0);
        let windows = &mut self.ledger.windows;
        windows.open -= 1;
        match emit.result.status {
            Status::Complete => windows.complete += 1,
            Status::Partial => windows.partial += 1,
        }
        self.count_fused(entry.held);
        let may_come = |a: &Answer| matches!(a, Answer::Pending | Answer::Gone(_));
        if self.settings.revisions && entry.answers.iter().any(may_come) {
            let until = now + self.settings.revise_within;
            let entry = Entry { held: 0, ..entry };
            self.sent.insert(seal.window.index, Sent { entry, seal, until, news: false });
        }
        emit
    }

    /// Ends the wait for late answers: a revision if there is news.
    fn finish_revision(&mut self, now: Mono, index: u64) -> Option<Emit> {
        let Sent { entry, seal, news, .. } = self.sent.remove(&index)?;
        if !news {
            return None;
        }
        self.ledger.revisions += 1;
        self.count_fused(entry.held);
        Some(self.fuse(now, &entry, &seal, 1))
    }

    fn count_fused(&mut self, held: u64) {
        self.ledger.observations.held -= held;
        self.ledger.observations.fused += held;
    }

    fn fuse(&mut self, now: Mono, entry: &Entry, seal: &Seal, revision: u32) -> Emit {
        let has = |outputs: &[PortType]| self.stages.iter().any(|s| outputs.contains(&s.output));
        let looks = [PortType::Objects, PortType::Scenes, PortType::Screen, PortType::Safety];
        let vision = has(&looks).then(|| entry.contents.vision());
        let audio = has(&[PortType::Speech, PortType::Tone]).then(|| entry.contents.audio());
        let text = entry.contents.text();
        let evidence =
            Evidence { vision: vision.as_ref(), audio: audio.as_ref(), text: text.as_ref() };
        let fusion = Fusion {
            labels: self.taxonomy.pool(evidence),
            sentiment: self.taxonomy.sentiment(evidence),
            alerts: Vec::new(),
        };
        let missing: Vec<Missing> = self
            .stages
            .iter()
            .zip(&entry.answers)
            .filter_map(|(stage, answer)| {
                let reason = match answer {
                    Answer::Ok => return None,
                    Answer::Pending => MissingReason::Deadline,
                    Answer::Gone(reason) | Answer::Missing(reason) => *reason,
                };
                Some(Missing { stage: stage.id.clone(), reason })
            })
            .collect();
        let settings = &self.settings;
        let mut result = FusedResult {
            schema: RESULT_SCHEMA.into(),
            run: settings.run.clone(),
            seq: 0,
            stream_seq: self.stream_seq,
            stream: settings.stream.clone(),
            window: seal.window,
            status: if missing.is_empty() { Status::Complete } else { Status::Partial },
            revision,
            latency_ms: now.ms_since(seal.sealed_at),
            age_ms: seal.air_end.map(|air_end| now.ms_since(air_end)),
            processing_ms: settings.clip.then(|| now.ms_since(settings.admitted)),
            budget_ms: settings.paced.then_some(settings.budget.as_millis() as u64),
            vision,
            audio,
            text,
            fusion,
            missing,
            timings: entry.timings.iter().flatten().cloned().collect(),
        };
        let mut rule_faults = Vec::new();
        if !self.alerts.is_empty() {
            (result.fusion.alerts, rule_faults) = self.alerts.judge(&result);
            rule_faults.retain(|fault| self.faults_told.insert(fault.rule.clone()));
        }
        self.stream_seq += 1;
        Emit { result, rule_faults }
    }
}

/// Whether a stage that is away could still answer.
fn awaits_return(entry: &Entry) -> bool {
    entry.answers.iter().any(|answer| matches!(answer, Answer::Gone(_)))
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
