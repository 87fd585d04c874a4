//! Cuts sound into chunks of equal length whose times are counted in samples, and corrects them by the
//! container's times. Pure; `audio` decodes and resamples.
//!
//! Sound is never thrown away because a container counts wrongly: a sudden gap becomes silence, a slow drift is
//! corrected now and then, and anything faster is taken as the container's error.

use crate::frame::{SAMPLE_RATE_HZ, Samples};
use crate::time::{Mono, Pts};

/// 32 ms: the step of the voice activity model.
pub(super) const CHUNK_SAMPLES: usize = 512;
/// Deviation of the container's times from the sample count that is left alone.
const DEVIATION_MAX_US: i64 = 100_000;
/// Longest gap filled with silence; after a longer one times start anew.
const SILENCE_MAX_US: i64 = 2_000_000;
/// A drift is corrected at most once in this much sound: real clocks differ by less than 1 in 100.
const DRIFT_APART_US: i64 = 10_000_000;

/// What was done to fit a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fitted {
    /// Nothing to do.
    Seamless,
    /// Filled with so many microseconds of silence.
    Silence(i64),
    /// Times start anew after so many microseconds without sound.
    Restarted(i64),
}

/// Collects samples into chunks.
#[derive(Debug, Default)]
pub(super) struct Chunker {
    /// Time of the first sample since times were last anchored, and samples since then.
    anchor: Option<(Pts, u64)>,
    pending: Vec<f32>,
    /// End of the last piece by its own claim.
    claimed_end: Option<Pts>,
    /// Deviation that is taken as the container's error.
    tolerated_us: i64,
    corrected_at: Option<Pts>,
}

impl Chunker {
    /// Time just after the last sample that was taken in.
    pub(super) fn end(&self) -> Option<Pts> {
        self.anchor.map(|(pts, count)| after(pts, count))
    }

    /// Prepares for a piece of sound that claims to start at `pts` and last `duration_us`; chunks that become
    /// complete go to `out`. Call before [`Chunker::push`].
    pub(super) fn fit(
        &mut self,
        pts: Pts,
        duration_us: i64,
        arrival: Mono,
        out: &mut Vec<Samples>,
    ) -> Fitted {
        let step_us = self.claimed_end.map_or(0, |end| pts - end);
        self.claimed_end = Some(Pts(pts.0.saturating_add(duration_us.max(0))));
        let Some(end) = self.end() else {
            self.anchor = Some((pts, 0));
            self.corrected_at = Some(pts);
            return Fitted::Seamless;
        };
        let deviation_us = pts - end - self.tolerated_us;
        if deviation_us.abs() <= DEVIATION_MAX_US {
            return Fitted::Seamless;
        }
        let sudden = step_us > DEVIATION_MAX_US;
        let drifted = self.corrected_at.is_none_or(|at| pts - at >= DRIFT_APART_US);
        if !(sudden || drifted) || deviation_us < 0 {
            self.tolerated_us += deviation_us;
            return Fitted::Seamless;
        }
        self.corrected_at = Some(pts);
        if deviation_us <= SILENCE_MAX_US {
            let samples = deviation_us as u64 * u64::from(SAMPLE_RATE_HZ) / 1_000_000;
            self.take(std::iter::repeat_n(0.0, samples as usize), arrival, out);
            return Fitted::Silence(deviation_us);
        }
        self.finish(arrival, out);
        // With an error tolerated before, the claim may still lie before what was handed out.
        let anchor = pts.max(end);
        self.tolerated_us = pts - anchor;
        self.anchor = Some((anchor, 0));
        Fitted::Restarted(deviation_us)
    }

    /// Takes in samples that follow the last ones.
    pub(super) fn push(&mut self, pcm: &[f32], arrival: Mono, out: &mut Vec<Samples>) {
        self.take(pcm.iter().map(|&s| sane(s)), arrival, out);
    }

    /// Hands out what is left, shorter than a chunk.
    pub(super) fn finish(&mut self, arrival: Mono, out: &mut Vec<Samples>) {
        if !self.pending.is_empty() {
            let pcm = std::mem::take(&mut self.pending);
            out.extend(self.chunk(pcm, arrival));
        }
    }

    fn take(&mut self, pcm: impl Iterator<Item = f32>, arrival: Mono, out: &mut Vec<Samples>) {
        for sample in pcm {
            self.pending.push(sample);
            let (_, count) = self.anchor.get_or_insert((Pts::ZERO, 0));
            *count += 1;
            if self.pending.len() == CHUNK_SAMPLES {
                let next = Vec::with_capacity(CHUNK_SAMPLES);
                let pcm = std::mem::replace(&mut self.pending, next);
                out.extend(self.chunk(pcm, arrival));
            }
        }
    }

    /// A chunk of the newest samples.
    fn chunk(&self, pcm: Vec<f32>, arrival: Mono) -> Option<Samples> {
        let (anchor, count) = self.anchor?;
        let pts = after(anchor, count.saturating_sub(pcm.len() as u64));
        Some(Samples { pts, arrival, pcm })
    }
}

fn after(anchor: Pts, samples: u64) -> Pts {
    let us = u128::from(samples) * 1_000_000 / u128::from(SAMPLE_RATE_HZ);
    Pts(anchor.0.saturating_add(i64::try_from(us).unwrap_or(i64::MAX)))
}

/// Decoders of damaged floating-point sound hand out infinities.
fn sane(sample: f32) -> f32 {
    if sample.is_finite() { sample.clamp(-1.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 320;
    const PIECE_US: i64 = 20_000;

    /// Feeds pieces of 20 ms that claim these times; returns what was done and the chunks.
    fn feed(times_us: impl IntoIterator<Item = i64>) -> (Vec<Fitted>, Vec<Samples>) {
        let (mut chunker, mut out) = (Chunker::default(), Vec::new());
        let fitted = times_us.into_iter().map(|us| {
            let fitted = chunker.fit(Pts(us), PIECE_US, Mono(0), &mut out);
            chunker.push(&[0.5; PIECE], Mono(0), &mut out);
            fitted
        });
        let fitted = fitted.collect();
        chunker.finish(Mono(0), &mut out);
        (fitted, out)
    }

    fn assert_no_overlap(chunks: &[Samples]) {
        for pair in chunks.windows(2) {
            assert!(pair[0].end().0 <= pair[1].pts.0 + 1, "{} then {}", pair[0].end(), pair[1].pts);
        }
    }

    #[test]
    fn times_are_counted_from_the_first_sample() {
        let (fitted, chunks) = feed((0..50).map(|i| 1_000_000 + i * PIECE_US));
        assert!(fitted.iter().all(|f| *f == Fitted::Seamless));
        assert_eq!(chunks.iter().map(|c| c.pcm.len()).sum::<usize>(), 50 * PIECE);
        assert!(chunks[..chunks.len() - 1].iter().all(|c| c.pcm.len() == CHUNK_SAMPLES));
        assert_eq!((chunks[0].pts.0, chunks[1].pts.0), (1_000_000, 1_032_000));
        assert_eq!(chunks.last().unwrap().end(), Pts(2_000_000));
    }

    #[test]
    fn jitter_of_the_container_changes_nothing() {
        let (_, chunks) = feed((0..100).map(|i| i * PIECE_US + (i % 5) * 13_000));
        assert_eq!(chunks.last().unwrap().end(), Pts(100 * PIECE_US));
    }

    #[test]
    fn lost_packets_become_silence() {
        let (fitted, chunks) = feed((0..20).chain(70..90).map(|i| i * PIECE_US));
        assert_eq!(fitted[20], Fitted::Silence(1_000_000));
        assert_eq!(chunks.last().unwrap().end(), Pts(90 * PIECE_US));
        let silent = chunks.iter().flat_map(|c| &c.pcm).filter(|s| **s == 0.0).count();
        assert_eq!(silent, 16_000);
    }

    #[test]
    fn a_long_gap_starts_times_anew() {
        let (fitted, chunks) = feed((0..20).chain(500..520).map(|i| i * PIECE_US));
        assert_eq!(fitted[20], Fitted::Restarted(9_600_000));
        assert_no_overlap(&chunks);
        assert!(chunks.iter().any(|c| c.pts == Pts(500 * PIECE_US)));
        assert_eq!(chunks.last().unwrap().end(), Pts(520 * PIECE_US));
    }

    #[test]
    fn slow_drift_is_corrected_once_it_counts() {
        // The container's clock runs 0.5 % fast: 300 ms in a minute.
        let (fitted, chunks) = feed((0..3_000).map(|i| i * (PIECE_US + 100)));
        assert_eq!(fitted.iter().filter(|f| **f != Fitted::Seamless).count(), 2);
        let behind = 3_000 * (PIECE_US + 100) - chunks.last().unwrap().end().0;
        assert!((0..=110_000).contains(&behind), "{behind}");
    }

    #[test]
    fn a_container_that_counts_wrongly_costs_no_sound() {
        for wrong_us in [PIECE_US / 2, PIECE_US + PIECE_US / 3] {
            let (_, chunks) = feed((0..400).map(|i| i * wrong_us));
            let sound = chunks.iter().flat_map(|c| &c.pcm).filter(|s| **s != 0.0).count();
            assert_eq!(sound, 400 * PIECE);
            let silence = chunks.iter().flat_map(|c| &c.pcm).count() - sound;
            assert!(silence < 4_000, "{silence}");
            assert_no_overlap(&chunks);
        }
    }

    #[test]
    fn nothing_but_finite_amplitudes_leaves() {
        let (mut chunker, mut out) = (Chunker::default(), Vec::new());
        chunker.push(&[f32::NAN, f32::INFINITY, -3.0, 0.25], Mono(0), &mut out);
        chunker.finish(Mono(0), &mut out);
        assert_eq!(out[0].pcm, [0.0, 0.0, -1.0, 0.25]);
    }
}
