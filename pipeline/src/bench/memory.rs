//! Resident memory of this process and of the language engine's: after the start, with each live 720p stream
//! more, and over a loop in which nothing should grow.

use std::sync::Arc;
use std::time::Duration;

use super::BenchArgs;
use super::report::{Aim, Report};
use super::stand::{self, Counted, Stand};
use super::synthetic::BenchOpener;
use super::{clips_made, machine, stats};
use crate::run::Rooms;

const CONFIG: &str = include_str!("../../../configs/demo.yaml");
const STREAMS: usize = 3;
/// After which a stream has touched what it needs.
const SETTLED: Duration = Duration::from_secs(15);

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let plan = stand::plan("demo.yaml", CONFIG)?;
    let clips = clips_made::clips(&models::Catalogue::builtin().cache().join("media"))?;
    let mut rooms = Rooms::open(&plan).await?;
    rooms.opener = Arc::new(BenchOpener { scripts: Vec::new() });
    let windows = Arc::new(Counted::default());
    let stand = Stand::up(&plan.graph, rooms, windows.clone()).await?;
    let mut report = Report::new("memory");
    let (own, child) = machine::resident_mb();
    report.tell("started_mb", own);
    report.tell("language_engine_mb", child);

    let settled = args.seconds.map_or(SETTLED, Duration::from_secs);
    let mut sizes = vec![own];
    for number in 0..STREAMS {
        let uri = clips[number % clips.len()].as_str();
        stand.add(stand::stream(&format!("live-{number}"), uri, true, &plan.graph)).await?;
        tokio::time::sleep(settled).await;
        let (own, child) = machine::resident_mb();
        report.tell(&format!("with_{}_streams_mb", number + 1), own);
        report.tell("language_engine_busy_mb", child);
        sizes.push(own);
    }
    // The first one also brings in what all of them share: instances per lane, buffers of the runtime.
    report.tell("first_stream_mb", sizes[1] - sizes[0]);
    report.tell("per_further_stream_mb", (sizes[STREAMS] - sizes[1]) / (STREAMS - 1) as f64);

    let span = args.seconds.map_or(Duration::from_secs(args.minutes * 60), Duration::from_secs);
    let (from, counted) = (stand.clock.now(), windows.count());
    let (mut own, mut child) = (Vec::new(), Vec::new());
    loop {
        let passed = stand.clock.now().since(from);
        let minutes = passed.as_secs_f64() / 60.0;
        let (own_mb, child_mb) = machine::resident_mb();
        own.push((minutes, own_mb));
        child.push((minutes, child_mb));
        if passed >= span {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1).min(span)).await;
    }
    let windows = windows.count() - counted;
    stand.down().await;
    report.hold("slope_mb_per_min", stats::slope(&own), Aim::AtMost(1.0));
    report.hold("language_engine_slope_mb_per_min", stats::slope(&child), Aim::AtMost(1.0));
    report.tell("loop_first_mb", own.first().map(|p| p.1));
    report.tell("loop_last_mb", own.last().map(|p| p.1));
    report.tell("loop_minutes", own.last().map(|p| p.0));
    report.tell("windows", windows);
    Ok(report)
}
