//! Cuts samples as they come into the fixed chunks that voice activity is measured on.
//!
//! Feeds [`VoiceActivity`](super::VoiceActivity) and [`Segmenter`](super::Segmenter). Holds less than a chunk.

use media::{Pts, SAMPLE_RATE_HZ};

/// Samples of a chunk.
pub const CHUNK_SAMPLES: usize = 512;
/// Length of a chunk in microseconds: 32 ms.
pub const CHUNK_US: i64 = CHUNK_SAMPLES as i64 * 1_000_000 / SAMPLE_RATE_HZ as i64;

/// 512 samples of 16 kHz mono audio.
pub type Chunk = [f32; CHUNK_SAMPLES];

/// Times of samples may differ by this much from where the last ones ended before that counts as a gap.
const GAP_US: i64 = 20_000;

/// Collects samples until a chunk is full.
#[derive(Clone, Debug, Default)]
pub struct Chunker {
    start: Pts,
    rest: Vec<f32>,
}

impl Chunker {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// All chunks that `pcm`, whose first sample is at `pts`, completes. Where the samples do not follow the
    /// held ones in time, the held ones are filled up with silence first.
    pub fn push(&mut self, pts: Pts, pcm: &[f32]) -> Vec<(Pts, Chunk)> {
        let mut chunks = Vec::with_capacity(pcm.len() / CHUNK_SAMPLES + 2);
        if self.rest.is_empty() {
            self.start = pts;
        } else if (pts - (self.start + duration(self.rest.len()))).abs() > GAP_US {
            chunks.extend(self.flush());
            self.start = pts;
        }
        self.rest.extend_from_slice(pcm);
        let (full, rest) = self.rest.as_chunks::<CHUNK_SAMPLES>();
        let rest = rest.to_vec();
        for (i, chunk) in full.iter().enumerate() {
            chunks.push((self.start + duration(i * CHUNK_SAMPLES), *chunk));
        }
        self.start = self.start + duration(full.len() * CHUNK_SAMPLES);
        self.rest = rest;
        chunks
    }

    /// What is left at the end of the track, filled up with silence.
    pub fn flush(&mut self) -> Option<(Pts, Chunk)> {
        if self.rest.is_empty() {
            return None;
        }
        let mut chunk = [0.0; CHUNK_SAMPLES];
        for (to, from) in chunk.iter_mut().zip(&self.rest) {
            *to = *from;
        }
        self.rest.clear();
        Some((self.start, chunk))
    }
}

fn duration(samples: usize) -> std::time::Duration {
    std::time::Duration::from_micros(samples as u64 * 1_000_000 / u64::from(SAMPLE_RATE_HZ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_lengths_become_whole_chunks_at_the_right_times() {
        let mut chunker = Chunker::new();
        let pcm: Vec<f32> = (0..1_700).map(|i| i as f32).collect();
        let mut got = chunker.push(Pts::from_ms(100), &pcm[..700]);
        got.extend(chunker.push(Pts::from_ms(100) + duration(700), &pcm[700..]));
        got.extend(chunker.flush());
        assert_eq!(got.len(), 4);
        for (i, (pts, _)) in got.iter().enumerate() {
            assert_eq!(*pts, Pts::from_ms(100 + 32 * i as i64));
        }
        let joined: Vec<f32> = got.iter().flat_map(|(_, c)| c.iter().copied()).collect();
        assert_eq!(joined[..1_700], pcm[..]);
        assert!(joined[1_700..].iter().all(|s| *s == 0.0));
        assert!(chunker.flush().is_none());
    }

    #[test]
    fn samples_from_before_a_gap_keep_their_time() {
        let mut chunker = Chunker::new();
        assert!(chunker.push(Pts::ZERO, &[0.5; 100]).is_empty());
        let got = chunker.push(Pts::from_ms(5_000), &[0.25; 512]);
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].0, got[0].1[99], got[0].1[100]), (Pts::ZERO, 0.5, 0.0));
        assert_eq!((got[1].0, got[1].1[0]), (Pts::from_ms(5_000), 0.25));
    }
}
