//! 30 frames a second, live, into one stage of 60 ms: how old an answer is when it comes.
//!
//! Age is the stage's output minus the arrival of the frame it is about. A queue makes it grow without end, a
//! queue of one keeps it near 77 ms: half a frame interval of waiting, and the stage.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actors::{Ask, Asked};
use engine::{Class, JobEnd, Ticket};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use media::{Clock, Detection, Frame};

use super::BenchArgs;
use super::null::Slow;
use super::report::{Aim, Report};
use super::stand::{self, Counted, Stand};
use super::stats::Times;
use super::synthetic::{self, BenchOpener, Script};
use crate::run::Rooms;

const CONFIG: &str = "
version: 1
stages:
  frames: { kind: frames, from: source.video, fps: 30 }
  slow: { kind: detect, from: frames, model: ssdlite-300, track: false }
  fused: { kind: fuse, from: slow }
";
const STAGE: Duration = Duration::from_millis(60);

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let plan = stand::plan("freshness", CONFIG)?;
    let mut rooms = Rooms::unfurnished(&plan.compute)?;
    let clock = rooms.clock.clone();
    let make = {
        let clock = clock.clone();
        move || Ok(Slow::<Frame, Vec<Detection>>::new(clock.clone(), STAGE))
    };
    let slow = rooms.compute.register("slow", Class::Vision, make).map_err(|e| e.to_string())?;
    let aged = Arc::new(Aged { inner: Arc::new(slow), clock, ages: Arc::default() });
    rooms.models.insert_detector("ssdlite-300", aged.clone());
    rooms.opener = Arc::new(BenchOpener {
        scripts: vec![Script::Frames { pictures: synthetic::grey(320, 180), fps: 30 }],
    });
    let windows = Arc::new(Counted::default());
    let stand = Stand::up(&plan.graph, rooms, windows.clone()).await?;
    stand.add(stand::stream("live", "rtsp://bench/0", true, &plan.graph)).await?;
    tokio::time::sleep(args.span(15)).await;
    let board = stand.board.clone();
    stand.down().await;

    let edges: Vec<_> = board.streams().into_iter().flat_map(|s| s.edges).collect();
    let into_slow = edges.iter().find(|edge| edge.to.as_str() == "slow");
    let offered = into_slow.map_or(0, |edge| edge.counts.offered);
    let ages = aged.ages.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut report = Report::new("freshness");
    report.hold("age_p50_ms", ages.at(0.5), Aim::AtMost(80.0));
    report.hold("age_p99_ms", ages.at(0.99), Aim::AtMost(100.0));
    report.tell("age_max_ms", ages.max());
    report.tell("delivered", ages.count());
    report.tell("dropped", edges.iter().map(|edge| edge.counts.dropped).sum::<u64>());
    report.tell("offered", offered);
    report.tell("windows", windows.count());
    Ok(report)
}

/// Notes how old a frame is when its answer comes.
struct Aged {
    inner: Asked<Frame, Vec<Detection>>,
    clock: Arc<dyn Clock>,
    ages: Arc<Mutex<Times>>,
}

impl Ask<Frame, Vec<Detection>> for Aged {
    fn ask(&self, ticket: Ticket, frame: Frame) -> BoxFuture<'static, JobEnd<Vec<Detection>>> {
        let arrival = frame.arrival;
        let answer = self.inner.ask(ticket, frame);
        let (clock, ages) = (self.clock.clone(), self.ages.clone());
        async move {
            let end = answer.await;
            if matches!(end, JobEnd::Done { .. }) {
                let age = clock.now().ms_since(arrival);
                ages.lock().unwrap_or_else(PoisonError::into_inner).add(age);
            }
            end
        }
        .boxed()
    }
}
