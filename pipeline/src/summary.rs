//! What a run did, in one table: a pure accumulator that is shown every result, in constant memory.

use std::collections::BTreeMap;
use std::fmt;

use media::StageId;
use media::result::{FusedResult, MissingReason, Status, StreamMessage, StreamState};

/// Adds up results.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Windows, revisions not counted.
    pub windows: u64,
    /// Of them, those with every stage's answer.
    pub complete: u64,
    /// Of them, those without.
    pub partial: u64,
    /// Corrected results.
    pub revisions: u64,
    /// How often a stage had no answer, and why.
    pub missing: BTreeMap<(StageId, MissingReason), u64>,
    /// Streams that reached their end.
    pub ended: u64,
    /// Streams that were given up, and why.
    pub failed: Vec<(String, String)>,
    /// Sealed to emitted.
    pub latency: Quantiles,
    /// On air to emitted; paced sources only.
    pub age: Quantiles,
    /// Admission to result; clips only.
    pub processing: Quantiles,
    /// Where the time went.
    pub stages: BTreeMap<StageId, StageTime>,
}

/// Where a stage's time went.
#[derive(Clone, Debug, Default)]
pub struct StageTime {
    /// Windows it worked for.
    pub windows: u64,
    /// Compute per window.
    pub compute: Quantiles,
    /// Longest wait for compute per window.
    pub queue: Quantiles,
    /// All its compute.
    pub compute_ms: f64,
    /// Largest batch.
    pub batch_max: u32,
}

impl Summary {
    /// Takes a result into account.
    pub fn add(&mut self, result: &FusedResult) {
        if result.revision > 0 {
            self.revisions += 1;
            return;
        }
        self.windows += 1;
        match result.status {
            Status::Complete => self.complete += 1,
            Status::Partial => self.partial += 1,
        }
        for missing in &result.missing {
            *self.missing.entry((missing.stage.clone(), missing.reason)).or_default() += 1;
        }
        self.latency.add(result.latency_ms);
        result.age_ms.into_iter().for_each(|ms| self.age.add(ms));
        result.processing_ms.into_iter().for_each(|ms| self.processing.add(ms));
        for timing in &result.timings {
            let stage = self.stages.entry(timing.stage.clone()).or_default();
            stage.windows += 1;
            stage.compute.add(timing.compute_ms);
            stage.queue.add(timing.queue_ms);
            stage.compute_ms += timing.compute_ms;
            stage.batch_max = stage.batch_max.max(timing.batch);
        }
    }

    /// Takes a stream's new state into account.
    pub fn add_state(&mut self, message: &StreamMessage) {
        match message.state {
            StreamState::Ended => self.ended += 1,
            StreamState::Failed => {
                let reason = message.reason.clone().unwrap_or_else(|| "no reason given".into());
                self.failed.push((message.stream.to_string(), reason));
            }
            _ => {}
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64| 100.0 * part as f64 / self.windows.max(1) as f64;
        writeln!(
            f,
            "windows {}   complete {} ({:.1} %)   partial {}   revised {}",
            self.windows,
            self.complete,
            share(self.complete),
            self.partial,
            self.revisions
        )?;
        writeln!(f, "streams ended {}   failed {}", self.ended, self.failed.len())?;
        for (stream, reason) in &self.failed {
            writeln!(f, "  failed: {stream}: {reason}")?;
        }
        for ((stage, reason), count) in &self.missing {
            let reason = serde_json::to_value(reason).unwrap_or_default();
            let reason = reason.as_str().unwrap_or_default().to_owned();
            writeln!(f, "  missing: {stage} {count} ({reason})")?;
        }
        writeln!(f, "{:<14}{:>9}{:>9}{:>9}", "ms", "p50", "p90", "p99")?;
        for (name, quantiles) in
            [("latency", &self.latency), ("age", &self.age), ("processing", &self.processing)]
        {
            if let [Some(p50), Some(p90), Some(p99)] = [0.5, 0.9, 0.99].map(|q| quantiles.at(q)) {
                writeln!(f, "{name:<14}{p50:>9.1}{p90:>9.1}{p99:>9.1}")?;
            }
        }
        if self.stages.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "{:<14}{:>9}{:>9}{:>9}{:>9}{:>10}{:>7}",
            "stage", "windows", "p50 ms", "p99 ms", "queue99", "total s", "batch"
        )?;
        for (stage, time) in &self.stages {
            let at = |quantiles: &Quantiles, q| quantiles.at(q).unwrap_or_default();
            writeln!(
                f,
                "{:<14}{:>9}{:>9.1}{:>9.1}{:>9.1}{:>10.2}{:>7}",
                stage.as_str(),
                time.windows,
                at(&time.compute, 0.5),
                at(&time.compute, 0.99),
                at(&time.queue, 0.99),
                time.compute_ms / 1e3,
                time.batch_max
            )?;
        }
        Ok(())
    }
}

/// Quantiles of times in milliseconds, within 1 %, in constant memory: counts of buckets that grow by 2 %.
#[derive(Clone, Debug, Default)]
pub struct Quantiles {
    count: u64,
    buckets: Vec<u64>,
}

/// Upper end of the first bucket.
const FIRST_MS: f64 = 0.01;
const GROWTH: f64 = 1.02;
/// Up to some 58 hours.
const BUCKETS: usize = 1_200;

impl Quantiles {
    /// Takes a time into account; what is no time is taken for 0.
    pub fn add(&mut self, ms: f64) {
        let bucket = if ms > FIRST_MS { (ms / FIRST_MS).ln() / GROWTH.ln() } else { 0.0 };
        let bucket = (bucket.ceil() as usize).min(BUCKETS - 1);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest time that at least this fraction of all does not exceed; none of none.
    pub fn at(&self, fraction: f64) -> Option<f64> {
        let rank = ((fraction * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        // The middle of the bucket.
        Some(if bucket == 0 { 0.0 } else { FIRST_MS * GROWTH.powf(bucket as f64 - 0.5) })
    }
}

#[cfg(test)]
mod tests {
    use media::StreamId;
    use media::result::{Fusion, Missing, RESULT_SCHEMA, Timing, Window};

    use super::*;

    pub(crate) fn result(status: Status, latency_ms: f64) -> FusedResult {
        FusedResult {
            schema: RESULT_SCHEMA.into(),
            run: "".into(),
            seq: 1,
            stream_seq: 1,
            stream: StreamId::from("a"),
            window: Window { index: 0, start_ms: 0, end_ms: 1000 },
            status,
            revision: 0,
            latency_ms,
            age_ms: Some(latency_ms + 40.0),
            processing_ms: None,
            budget_ms: Some(500),
            vision: None,
            audio: None,
            text: None,
            fusion: Fusion::default(),
            missing: Vec::new(),
            timings: Vec::new(),
        }
    }

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut quantiles = Quantiles::default();
        assert_eq!(quantiles.at(0.5), None);
        for ms in 1..=1000 {
            quantiles.add(f64::from(ms));
        }
        for (fraction, want) in
            [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1000.0), (0.0, 1.0)]
        {
            let got = quantiles.at(fraction).unwrap();
            assert!((got / want - 1.0).abs() < 0.0101, "{fraction}: {got}, not {want}");
        }
        for odd in [f64::NAN, -3.0, 0.0, f64::INFINITY] {
            quantiles.add(odd);
        }
        assert_eq!(quantiles.count(), 1004);
        assert!(quantiles.at(1.0).unwrap() > 1e6);
    }

    #[test]
    fn the_table_says_what_is_missing_and_where_the_time_went() {
        let mut summary = Summary::default();
        for i in 0..9 {
            let mut result = result(Status::Complete, 100.0 + f64::from(i));
            result.timings.push(Timing {
                stage: StageId::from("objects"),
                queue_ms: 2.0,
                compute_ms: 20.0,
                batch: 1 + i as u32,
            });
            summary.add(&result);
        }
        let mut partial = result(Status::Partial, 480.0);
        partial.missing = vec![
            Missing { stage: StageId::from("meaning"), reason: MissingReason::Deadline },
            Missing { stage: StageId::from("speech"), reason: MissingReason::UnsupportedLanguage },
        ];
        summary.add(&partial);
        summary.add(&FusedResult { revision: 1, ..partial });
        summary.add_state(&StreamMessage {
            schema: "stream/1".into(),
            run: "".into(),
            seq: 1,
            stream: StreamId::from("cam"),
            state: StreamState::Failed,
            reason: Some("no route".into()),
            window_next: 0,
        });
        assert_eq!(
            summary.to_string(),
            "\
windows 10   complete 9 (90.0 %)   partial 1   revised 1
streams ended 0   failed 1
  failed: cam: no route
  missing: meaning 1 (deadline)
  missing: speech 1 (unsupported_language)
ms                  p50      p90      p99
latency           104.9    106.9    481.7
age               143.9    146.8    521.4
stage           windows   p50 ms   p99 ms  queue99   total s  batch
objects               9     19.9     19.9      2.0      0.18      9
"
        );
    }
}
