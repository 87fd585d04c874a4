//! A language server under load, ours or anybody's: requests a second, latency, tokens, processor time.

use std::time::Duration;

use super::BenchArgs;
use super::load::{Target, Total, wishes};
use super::machine;
use super::report::Report;
use super::served::{Server, Sizes};
use super::stats::ratio;
use super::{routes, several};

/// Prompt and answer, in tokens.
const SHAPES: [(u64, u32); 2] = [(256, 128), (512, 128)];
/// Time for a server that is already running to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let mut report = Report::new("serve");
    if let Some(url) = &args.url {
        let target = Target::open(url, ANSWER_MAX).await?;
        for shape in SHAPES {
            let total = run(&target, args, shape).await?;
            tell(&mut report, &name(shape), &total);
        }
        return Ok(report);
    }
    let sizes = Sizes { threads: 1, context_tokens: 8192, slots: args.concurrency as u32 };
    let server = Server::own(sizes, &[]).await?;
    let mut batched = Vec::new();
    for shape in SHAPES {
        let total = run(&server.target, args, shape).await?;
        tell(&mut report, &name(shape), &total);
        batched.push(total.requests_per_s());
    }
    server.end().await;
    // The same without batching: one request at a time, the others wait.
    let server = Server::own(Sizes { slots: 1, ..sizes }, &[]).await?;
    let alone = run(&server.target, args, SHAPES[0]).await?;
    tell(&mut report, &format!("{}_unbatched", name(SHAPES[0])), &alone);
    report.tell("batching_gain", ratio(batched[0], alone.requests_per_s()));
    server.end().await;
    several::models(&mut report, sizes).await?;
    several::answers(&mut report, sizes).await?;
    routes::measure(&mut report).await?;
    Ok(report)
}

fn name((prompt, answer): (u64, u32)) -> String {
    format!("{prompt}_{answer}")
}

struct Run {
    total: Total,
    processor_s: f64,
    kv_max: Option<f64>,
}

impl Run {
    fn requests_per_s(&self) -> Option<f64> {
        self.total.requests_per_s()
    }
}

async fn run(target: &Target, args: &BenchArgs, shape: (u64, u32)) -> Result<Run, String> {
    let (prompt, answer) = shape;
    let words = target.words_for(prompt).await?;
    let wishes = wishes(&[words], &[answer], args.requests, prompt);
    let before = machine::all_processor_time();
    let load = target.all(wishes, args.concurrency);
    tokio::pin!(load);
    let mut kv_max: Option<f64> = None;
    let total = loop {
        tokio::select! {
            total = &mut load => break total,
            () = tokio::time::sleep(Duration::from_millis(500)) => {
                let now = target.metric("vllm:kv_cache_usage_perc").await;
                kv_max = kv_max.into_iter().chain(now).reduce(f64::max);
            }
        }
    };
    let processor_s = (machine::all_processor_time() - before).as_secs_f64();
    Ok(Run { total, processor_s, kv_max })
}

fn tell(report: &mut Report, name: &str, run: &Run) {
    let Run { total, processor_s, kv_max } = run;
    let count = total.whole.count();
    let mean = (count > 0).then(|| total.whole.sum() / count as f64);
    report.tell(&format!("{name}_requests_per_s"), total.requests_per_s());
    report.tell(&format!("{name}_mean_ms"), mean);
    report.tell_times(name, &total.whole);
    report.tell_times(&format!("{name}_first_token"), &total.first);
    report.tell_times(&format!("{name}_between_tokens"), &total.gap);
    report.tell(&format!("{name}_answer_tokens_per_s"), total.answer_tokens_per_s());
    report.tell(&format!("{name}_errors"), total.errors.len());
    if let Some(first) = total.errors.first() {
        report.tell(&format!("{name}_first_error"), first.as_str());
    }
    report.tell(&format!("{name}_kv_use_max"), *kv_max);
    // Of the whole machine, the client's part included: the same for every server.
    let each = (count > 0).then(|| processor_s / count as f64);
    report.tell(&format!("{name}_processor_s_per_request"), each);
}
