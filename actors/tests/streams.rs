//! Streams as a whole, with scripted sources and models: what a fall costs, what a stop answers, what a ledger adds
//! up to. Real threads and real time, but short; nothing here depends on how fast it goes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use media::result::{MissingReason, Status, StreamState};
use media::{Frame, MediaError};
use support::{Answers, Script, World};

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_of_a_file_is_asked_about_and_the_ledger_balances() {
    let world = World::new(Answers::new(|_: &Frame| 1));
    let results = world.run(Script::frames(10, 5)).await;
    assert_eq!(results.len(), 10);
    assert!(results.iter().all(|r| r.status == Status::Complete), "{results:?}");
    assert_eq!(world.answers.asked(), 50);
    let status = world.status();
    assert_eq!(status.state, StreamState::Ended);
    assert_eq!((status.windows.sealed, status.windows.complete, status.windows.open), (10, 10, 0));
    for edge in &status.edges {
        let c = edge.counts;
        assert_eq!(c.offered, c.taken + c.dropped + c.queued, "{edge:?}");
        assert_eq!((c.dropped, c.queued), (0, 0), "{edge:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_panics_costs_its_window_and_no_other() {
    let fell = Arc::new(AtomicU32::new(0));
    let count = fell.clone();
    let world = World::new(Answers::new(move |frame: &Frame| {
        if frame.pts.ms() == 3_200 && count.fetch_add(1, Ordering::Relaxed) == 0 {
            panic!("scripted");
        }
        1
    }));
    let results = world.run(Script::frames(10, 5)).await;
    assert_eq!(fell.load(Ordering::Relaxed), 1);
    let indexes: Vec<u64> = results.iter().map(|r| r.window.index).collect();
    assert_eq!(indexes, (0..10).collect::<Vec<_>>());
    let partial: Vec<u64> =
        results.iter().filter(|r| r.status == Status::Partial).map(|r| r.window.index).collect();
    // The window it was in, and the one before, whose last answers may have been under way with it.
    assert!(partial.len() <= 2 && partial.iter().all(|i| (2..=3).contains(i)), "{partial:?}");
    assert_eq!(world.status().state, StreamState::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_always_panics_is_given_up_and_every_window_is_answered_without_it() {
    let world = World::new(Answers::new(|_: &Frame| panic!("scripted")));
    let results = world.run(Script::frames(6, 5)).await;
    assert_eq!(results.len(), 6);
    for result in &results {
        assert_eq!(result.status, Status::Partial);
        assert_eq!(result.missing.len(), 1);
        let reason = result.missing[0].reason;
        assert!(matches!(reason, MissingReason::Failed | MissingReason::Unavailable), "{reason:?}");
    }
    assert_eq!(world.status().state, StreamState::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_fails_half_way_has_what_was_read_answered_and_says_why() {
    let world = World::new(Answers::new(|_: &Frame| 1));
    let error = MediaError::NotMedia { uri: "clip".into(), detail: "scripted".into() };
    let results = world.run(Script::frames(3, 5).then(error)).await;
    assert_eq!(results.len(), 3);
    let status = world.status();
    assert_eq!(status.state, StreamState::Failed);
    assert_eq!(status.reason.as_deref(), Some("clip: not a readable media file (scripted)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_the_track_a_stage_reads_is_complete_without_it() {
    let world = World::new(Answers::new(|_: &Frame| 1));
    let results = world.run(Script::sound(3)).await;
    assert_eq!(results.len(), 3);
    assert!(results.iter().all(|r| r.status == Status::Complete && r.missing.is_empty()));
    assert_eq!(world.answers.asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_stopped_is_no_finished_clip() {
    let world = World::new(Answers::new(|_: &Frame| 1));
    let results = world.run(Script::frames(3, 5).then_hang()).await;
    assert!(results.len() <= 3);
    let status = world.status();
    assert_eq!(status.state, StreamState::Ended);
    assert_eq!(status.reason.as_deref(), Some("stopped"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_streams_of_one_name_are_refused_and_others_run_side_by_side() {
    let world = World::new(Answers::new(|_: &Frame| 1));
    let counts = world.run_many(Script::frames(4, 5), 12).await;
    assert_eq!(counts.len(), 12);
    assert!(counts.values().all(|windows| *windows == 4), "{counts:?}");
    assert_eq!(world.answers.asked(), 12 * 20);
}
