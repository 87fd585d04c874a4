use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use media::StreamId;
use media::result::{Alert, Fusion, Gap, GapReason, RESULT_SCHEMA, Status, StreamState, Window};
use proptest::prelude::*;

use super::*;

fn result(stream: &str, status: Status, alerts: &[&str]) -> FusedResult {
    FusedResult {
        schema: RESULT_SCHEMA.into(),
        run: "".into(),
        seq: 0,
        stream_seq: 0,
        stream: StreamId::from(stream),
        window: Window { index: 0, start_ms: 0, end_ms: 1000 },
        status,
        revision: 0,
        latency_ms: 1.0,
        age_ms: None,
        processing_ms: None,
        budget_ms: None,
        vision: None,
        audio: None,
        text: None,
        fusion: Fusion {
            alerts: alerts.iter().map(|n| Alert { name: (*n).into(), pts_ms: 0 }).collect(),
            ..Fusion::default()
        },
        missing: Vec::new(),
        timings: Vec::new(),
    }
}

fn state(stream: &str) -> StreamMessage {
    StreamMessage {
        schema: "stream/1".into(),
        run: "".into(),
        seq: 0,
        stream: StreamId::from(stream),
        state: StreamState::Running,
        reason: None,
        window_next: 0,
    }
}

fn hub(queue: usize, journal: usize) -> Hub {
    Hub::with_limits("run-1".into(), HubLimits { queue, journal, journal_bytes: 1 << 20 })
}

fn fill(hub: &Hub, count: usize) {
    for _ in 0..count {
        hub.publish_result(result("a", Status::Complete, &[])).unwrap();
    }
}

/// Everything that is there now: `seq` of messages, gaps apart.
fn drain(subscription: &mut Subscription) -> (Vec<u64>, Vec<Gap>) {
    let (mut seqs, mut gaps) = (Vec::new(), Vec::new());
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(delivery)) = subscription.poll_recv(&mut cx) {
        match delivery.seq {
            Some(seq) => {
                let json: serde_json::Value = serde_json::from_slice(&delivery.json).unwrap();
                assert_eq!(json["seq"], seq);
                assert_eq!(json["run"], "run-1");
                seqs.push(seq);
            }
            None => gaps.push(serde_json::from_slice(&delivery.json).unwrap()),
        }
    }
    (seqs, gaps)
}

#[test]
fn messages_are_numbered_over_all_streams_and_shared_as_written() {
    let hub = hub(8, 8);
    let mut all = hub.subscribe(Filter::default(), None, None);
    let mut same = hub.subscribe(Filter::default(), None, None);
    let first = hub.publish_result(result("a", Status::Complete, &[])).unwrap();
    let second = hub.publish_state(state("b")).unwrap();
    assert_eq!((first.message.seq, second.message.seq), (1, 2));
    assert_eq!(drain(&mut all).0, [1, 2]);
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(got)) = same.poll_recv(&mut cx) else { panic!() };
    assert_eq!(got.json.as_ptr(), first.json.as_ptr(), "one allocation for everyone");
}

#[test]
fn filters_let_through_what_was_asked_for() {
    let hub = hub(8, 8);
    let filter = |stream: Option<&str>, status, alerts| Filter {
        stream: stream.map(StreamId::from),
        status,
        alerts,
    };
    let named = |name: &str| Some(AlertFilter::Named(name.into()));
    let mut subscriptions: Vec<(Subscription, Vec<u64>)> = [
        (filter(Some("a"), None, None), vec![1, 2, 5]),
        (filter(None, Some(Status::Partial), None), vec![2, 4, 5]),
        (filter(None, None, Some(AlertFilter::Any)), vec![2, 3, 5]),
        (filter(None, None, named("crowd")), vec![3, 5]),
        (filter(Some("b"), Some(Status::Complete), named("fire")), vec![]),
    ]
    .into_iter()
    .map(|(filter, want)| (hub.subscribe(filter, None, None), want))
    .collect();
    hub.publish_result(result("a", Status::Complete, &[])).unwrap();
    hub.publish_result(result("a", Status::Partial, &["fire"])).unwrap();
    hub.publish_result(result("b", Status::Complete, &["crowd"])).unwrap();
    hub.publish_result(result("b", Status::Partial, &[])).unwrap();
    hub.publish_state(state("a")).unwrap();
    for (subscription, want) in &mut subscriptions {
        assert_eq!(drain(subscription).0, *want);
    }
}

#[test]
fn a_slow_subscriber_gets_a_count_of_what_it_missed_and_then_the_newest() {
    let hub = hub(3, 100);
    let mut slow = hub.subscribe(Filter::default(), None, None);
    let mut quick = hub.subscribe(Filter::default(), None, None);
    fill(&hub, 3);
    assert_eq!(drain(&mut quick), (vec![1, 2, 3], vec![]));
    fill(&hub, 2);
    let (seqs, gaps) = drain(&mut slow);
    assert_eq!(seqs, [4, 5]);
    let gap = &gaps[0];
    assert_eq!((gap.from, gap.to, gap.count, gap.reason), (1, 3, 3, GapReason::Lag));
    assert_eq!(drain(&mut quick), (vec![4, 5], vec![]), "the other one noticed nothing");
}

#[test]
fn after_is_answered_from_the_journal() {
    let hub = hub(2, 10);
    fill(&hub, 8);
    let mut from_three = hub.subscribe(Filter::default(), Some(3), None);
    fill(&hub, 1);
    assert_eq!(drain(&mut from_three), (vec![4, 5, 6, 7, 8, 9], vec![]), "more than a queue holds");
    let mut from_start = hub.subscribe(Filter::default(), Some(0), Some("run-1"));
    assert_eq!(drain(&mut from_start).0.len(), 9);
    let mut current = hub.subscribe(Filter::default(), Some(9), None);
    assert_eq!(drain(&mut current), (vec![], vec![]));
}

#[test]
fn what_the_journal_no_longer_has_is_said() {
    let hub = hub(2, 4);
    fill(&hub, 10);
    let (seqs, gaps) = drain(&mut hub.subscribe(Filter::default(), Some(2), None));
    assert_eq!(seqs, [7, 8, 9, 10]);
    let gap = &gaps[0];
    assert_eq!((gap.from, gap.to, gap.count, gap.reason), (3, 6, 4, GapReason::Journal));
}

#[test]
fn a_number_of_another_run_is_a_restart() {
    let hub = hub(2, 4);
    fill(&hub, 2);
    for (after, run) in [(1, Some("run-0")), (900, None), (u64::MAX, Some("run-1"))] {
        let (seqs, gaps) = drain(&mut hub.subscribe(Filter::default(), Some(after), run));
        assert_eq!(seqs, [1, 2], "everything of this run");
        assert_eq!((gaps[0].reason, gaps[0].count), (GapReason::Restart, 0));
    }
}

#[test]
fn the_journal_is_bounded_in_bytes() {
    let limits = HubLimits { queue: 1000, journal: 1000, journal_bytes: 2_000 };
    let hub = Hub::with_limits("run-1".into(), limits);
    let mut idle = hub.subscribe(Filter::default(), None, None);
    fill(&hub, 100);
    assert!(lock(&hub.shared.state).journal_bytes() <= 2_000);
    let (seqs, gaps) = drain(&mut idle);
    assert_eq!(seqs.len() as u64 + gaps[0].count, 100, "bytes ran out before its queue did");
    assert_eq!(gaps[0].reason, GapReason::Lag);
}

#[tokio::test]
async fn a_waiting_subscriber_is_woken_and_ended() {
    let hub = hub(4, 4);
    let mut subscription = hub.subscribe(Filter::default(), None, None);
    let reader = tokio::spawn(async move {
        let mut count = 0;
        while subscription.next().await.is_some() {
            count += 1;
        }
        count
    });
    tokio::task::yield_now().await;
    for _ in 0..3 {
        fill(&hub, 1);
        tokio::task::yield_now().await;
    }
    assert_eq!(hub.subscribers(), 1);
    hub.close();
    assert_eq!(reader.await.unwrap(), 3);
    assert_eq!(hub.subscribers(), 0, "dropping it unsubscribes");
}

#[derive(Clone, Debug)]
enum Step {
    Result(usize, bool, bool),
    State(usize),
    Read(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..3, any::<bool>(), any::<bool>()).prop_map(|(s, p, a)| Step::Result(s, p, a)),
        1 => (0usize..3).prop_map(Step::State),
        3 => (0usize..5, 1usize..12).prop_map(|(who, n)| Step::Read(who, n)),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// Received plus counted in gaps is what matched; in order; gaps and what was received don't overlap; never
    /// more behind than a queue. Some subscribers came late and catch up from the journal.
    #[test]
    fn nothing_is_lost_without_being_counted(
        before in 0usize..20, steps in steps(), queue in 1usize..6, journal in 1usize..12
    ) {
        let hub = hub(queue, journal);
        let mut topics: Vec<(u64, Topic)> = Vec::new();
        let publish = |topics: &mut Vec<(u64, Topic)>, stream: usize, partial: bool, alert: bool| {
            let status = if partial { Status::Partial } else { Status::Complete };
            let alerts: &[&str] = if alert { &["x"] } else { &[] };
            let published = hub.publish_result(result(["a", "b", "c"][stream], status, alerts)).unwrap();
            topics.push((published.message.seq, Topic::of_result(&published.message)));
        };
        for i in 0..before {
            publish(&mut topics, i % 3, false, false);
        }
        let first_kept = topics.len().saturating_sub(journal) as u64;
        let filters = [
            (Filter::default(), None),
            (Filter { stream: Some("a".into()), ..Filter::default() }, None),
            (Filter { status: Some(Status::Partial), alerts: Some(AlertFilter::Any), ..Filter::default() }, None),
            (Filter::default(), Some(first_kept)),
            (Filter { stream: Some("b".into()), ..Filter::default() }, Some(first_kept)),
        ];
        struct Seen { subscription: Subscription, filter: Filter, from: u64, seqs: Vec<u64>, gaps: Vec<Gap> }
        let mut readers: Vec<Seen> = filters.into_iter().map(|(filter, after)| Seen {
            subscription: hub.subscribe(filter.clone(), after, None),
            filter,
            from: after.unwrap_or(before as u64),
            seqs: Vec::new(),
            gaps: Vec::new(),
        }).collect();
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = |seen: &mut Seen, count: usize| {
            for _ in 0..count {
                let Poll::Ready(Some(delivery)) = seen.subscription.poll_recv(&mut cx) else { return };
                match delivery.seq {
                    Some(seq) => seen.seqs.push(seq),
                    None => seen.gaps.push(serde_json::from_slice(&delivery.json).unwrap()),
                }
            }
        };
        for step in steps {
            match step {
                Step::Result(stream, partial, alert) => publish(&mut topics, stream, partial, alert),
                Step::State(stream) => {
                    let published = hub.publish_state(state(["a", "b", "c"][stream])).unwrap();
                    topics.push((published.message.seq, Topic::of_state(&published.message)));
                }
                Step::Read(who, count) => read(&mut readers[who], count),
            }
        }
        for seen in &mut readers {
            let behind = seen.seqs.len();
            read(seen, usize::MAX);
            prop_assert!(seen.seqs.len() - behind <= queue.max(journal));
            let matched: Vec<u64> = topics.iter()
                .filter(|(seq, topic)| *seq > seen.from && topic.is_result() && seen.filter.wants(topic))
                .map(|(seq, _)| *seq)
                .collect();
            let received: Vec<u64> = seen.seqs.iter().copied().filter(|s| topics[*s as usize - 1].1.is_result()).collect();
            let counted: u64 = seen.gaps.iter().map(|g| g.count).sum();
            prop_assert_eq!(received.len() as u64 + counted, matched.len() as u64);
            prop_assert!(seen.seqs.is_sorted_by(|a, b| a < b));
            for gap in &seen.gaps {
                prop_assert_eq!(gap.reason, GapReason::Lag);
                let inside = matched.iter().filter(|s| (gap.from..=gap.to).contains(s)).count();
                prop_assert_eq!(inside as u64, gap.count);
                prop_assert!(!received.iter().any(|s| (gap.from..=gap.to).contains(s)));
            }
        }
    }
}
