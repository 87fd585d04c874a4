//! Utterances from scripted probabilities: one chunk per entry, samples carry their own index.

use proptest::prelude::*;

use super::*;

/// Feeds one chunk after another; each chunk's samples are its index, so that they can be found again.
struct Stage {
    segmenter: Segmenter,
    pts: Pts,
    chunks: usize,
    events: Vec<SpeechEvent>,
}

impl Stage {
    fn new(utterance_ms_max: u64, pause_ms: u64) -> Self {
        Stage {
            segmenter: Segmenter::new(SegmenterSettings { utterance_ms_max, pause_ms }),
            pts: Pts::ZERO,
            chunks: 0,
            events: Vec::new(),
        }
    }

    fn feed(&mut self, probability: f32, chunks: usize) {
        for _ in 0..chunks {
            let chunk = [self.chunks as f32; CHUNK_SAMPLES];
            self.events.extend(self.segmenter.push(self.pts, &chunk, probability));
            self.pts = self.pts + span(1);
            self.chunks += 1;
        }
    }

    fn end(mut self) -> Vec<Utterance> {
        self.events.extend(self.segmenter.end());
        assert_eq!(self.segmenter.samples_held(), 0);
        self.events
            .into_iter()
            .filter_map(|e| match e {
                SpeechEvent::Closed(u) => Some(u),
                SpeechEvent::Started { .. } => None,
            })
            .collect()
    }
}

/// Indexes of the chunks in an utterance.
fn chunks_of(u: &Utterance) -> Vec<usize> {
    u.pcm.chunks(CHUNK_SAMPLES).map(|c| c[0] as usize).collect()
}

#[test]
fn a_pause_ends_an_utterance_with_pre_roll_and_tail() {
    let mut stage = Stage::new(7_000, 400);
    stage.feed(0.0, 20);
    stage.feed(0.9, 30);
    stage.feed(0.0, 20);
    stage.feed(0.9, 1);
    let utterances = stage.end();
    assert_eq!(utterances.len(), 2);
    assert_eq!(chunks_of(&utterances[0]), (14..53).collect::<Vec<_>>());
    assert_eq!(utterances[0].start, Pts(14 * CHUNK_US));
    assert_eq!(utterances[0].end, Pts(53 * CHUNK_US));
    assert_eq!(utterances[0].ended_by, UtteranceEnd::Pause);
    assert_eq!((utterances[1].number, utterances[1].ended_by), (1, UtteranceEnd::End));
    assert_eq!(chunks_of(&utterances[1]), (64..71).collect::<Vec<_>>());
}

#[test]
fn probabilities_between_the_thresholds_keep_what_was() {
    let mut stage = Stage::new(7_000, 400);
    stage.feed(0.45, 50);
    assert!(stage.segmenter.running().is_none());
    stage.feed(0.6, 1);
    stage.feed(0.4, 50);
    let running = stage.segmenter.running().expect("still speech");
    assert_eq!((running.number, running.pcm.len()), (0, 57 * CHUNK_SAMPLES));
    assert_eq!(running.end, Pts(101 * CHUNK_US));
}

#[test]
fn a_long_utterance_is_cut_at_a_breath() {
    let mut stage = Stage::new(1_000, 400);
    stage.feed(0.9, 20);
    stage.feed(0.1, 5);
    stage.feed(0.9, 15);
    stage.feed(0.1, 5);
    stage.feed(0.9, 3);
    let utterances = stage.end();
    assert_eq!(utterances.len(), 2, "the first breath came too early to cut");
    assert_eq!(utterances[0].ended_by, UtteranceEnd::Breath);
    assert_eq!(chunks_of(&utterances[0]).last(), Some(&42));
    assert_eq!(
        chunks_of(&utterances[1]).first(),
        Some(&43),
        "the rest of the breath leads the next"
    );
}

#[test]
fn speech_without_a_pause_is_cut_where_it_is_quietest() {
    let mut segmenter =
        Segmenter::new(SegmenterSettings { utterance_ms_max: 1_000, pause_ms: 400 });
    let mut events = Vec::new();
    for i in 0..60usize {
        let mut chunk = [0.5; CHUNK_SAMPLES];
        // Between two words, around the boundary of chunks 30 and 31.
        if i == 30 {
            chunk[256..].fill(0.01);
        } else if i == 31 {
            chunk[..256].fill(0.01);
        }
        events.extend(segmenter.push(Pts(i as i64 * CHUNK_US), &chunk, 0.9));
    }
    let SpeechEvent::Closed(first) = &events[1] else { panic!("{events:?}") };
    assert_eq!(first.ended_by, UtteranceEnd::Length);
    assert_eq!(first.pcm.len(), 31 * CHUNK_SAMPLES);
    assert_eq!(events[2], SpeechEvent::Started { number: 1, start: first.end });
}

#[test]
fn a_gap_closes_and_nothing_from_before_leads_what_follows() {
    let mut stage = Stage::new(7_000, 400);
    stage.feed(0.9, 10);
    stage.pts = Pts::from_ms(60_000);
    stage.feed(0.9, 5);
    let utterances = stage.end();
    assert_eq!(utterances[0].ended_by, UtteranceEnd::Gap);
    assert_eq!(utterances[0].end, Pts(10 * CHUNK_US));
    assert_eq!(utterances[1].start, Pts::from_ms(60_000));
    assert_eq!(chunks_of(&utterances[1]), (10..15).collect::<Vec<_>>());
}

#[test]
fn time_goes_on_when_pts_jump_back() {
    let mut stage = Stage::new(7_000, 400);
    stage.pts = Pts::from_ms(10_000);
    stage.feed(0.9, 10);
    stage.pts = Pts::ZERO;
    stage.feed(0.9, 10);
    stage.feed(0.0, 20);
    stage.feed(0.9, 5);
    let utterances = stage.end();
    assert_eq!(utterances.len(), 3, "one gap, though all later pts lie before");
    assert_eq!(utterances[1].start, utterances[0].end);
    assert_eq!(utterances[2].start, utterances[1].start + span(10 + 20 - PRE_ROLL_CHUNKS));
}

#[test]
fn a_probability_that_is_no_number_is_no_speech() {
    let mut stage = Stage::new(7_000, 400);
    stage.feed(f32::NAN, 10);
    assert!(stage.segmenter.running().is_none());
}

#[test]
fn jitter_inside_an_utterance_is_no_gap() {
    let mut stage = Stage::new(7_000, 400);
    for i in 0..40 {
        stage.pts = Pts(i * CHUNK_US + if i % 2 == 0 { 15_000 } else { -15_000 });
        stage.feed(0.9, 1);
    }
    assert_eq!(stage.end().len(), 1);
}

proptest! {
    #[test]
    fn every_sample_of_speech_is_in_exactly_one_utterance(
        runs in prop::collection::vec(
            (prop_oneof![Just(0.0f32), Just(0.4), Just(0.45), Just(0.6), Just(1.0), Just(f32::NAN)],
             1usize..60,
             prop_oneof![6 => Just(0i64), 1 => -3_000_000i64..3_000_000]),
            1..40),
        utterance_ms_max in 0u64..4_000,
        pause_ms in 0u64..1_000,
    ) {
        let mut stage = Stage::new(utterance_ms_max, pause_ms);
        let bound = stage.segmenter.chunks_max * 3 / 2 + PRE_ROLL_CHUNKS + 1;
        let mut certain = Vec::new();
        for (probability, chunks, jump) in runs {
            stage.pts = Pts(stage.pts.0 + jump);
            for _ in 0..chunks {
                if probability >= OPEN {
                    certain.push(stage.chunks);
                }
                stage.feed(probability, 1);
                prop_assert!(stage.segmenter.samples_held() <= bound * CHUNK_SAMPLES);
                if let Some(running) = stage.segmenter.running() {
                    prop_assert!(running.start < running.end);
                    prop_assert_eq!(running.end - running.start,
                        (running.pcm.len() / CHUNK_SAMPLES) as i64 * CHUNK_US);
                }
            }
        }
        let started: Vec<u64> = stage.events.iter().filter_map(|e| match e {
            SpeechEvent::Started { number, .. } => Some(*number),
            SpeechEvent::Closed(_) => None,
        }).collect();
        let utterances = stage.end();
        prop_assert_eq!(&started, &(0..utterances.len() as u64).collect::<Vec<_>>());
        let mut before = Pts(i64::MIN);
        let mut seen = Vec::new();
        for (i, u) in utterances.iter().enumerate() {
            prop_assert_eq!(u.number, i as u64);
            prop_assert!(before <= u.start && u.start < u.end);
            prop_assert_eq!(u.pcm.len() % CHUNK_SAMPLES, 0);
            before = u.end;
            seen.extend(chunks_of(u));
        }
        prop_assert!(seen.windows(2).all(|w| w[0] < w[1]), "no chunk twice, none out of order");
        prop_assert!(certain.iter().all(|c| seen.binary_search(c).is_ok()), "no speech lost");
    }
}
