//! `pipeline bench NAME`: measures the production graph, in process, and says what it was measured against.
//!
//! One file per bench; `report` is what they fill in, `stats` the arithmetic, `machine` what the system counts,
//! `stand` the running graph. One rule: nothing here is faster than what a user gets, since it is the same code.

mod bare;
mod clips;
mod clips_made;
mod costs;
mod freshness;
mod latency;
mod llm;
mod load;
mod machine;
mod memory;
mod models;
mod null;
mod overhead;
mod priority;
mod recorder;
mod reference;
mod report;
mod routes;
mod scheduling;
mod serve;
mod served;
mod several;
mod stand;
mod stats;
mod synthetic;

use std::time::Duration;

use clap::ValueEnum;

use report::Report;

/// What `pipeline bench` was called with.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// What is measured.
    #[arg(value_enum)]
    name: BenchName,
    /// A table for people, or one JSON object.
    #[arg(long, value_enum, default_value = "table")]
    format: BenchFormat,
    /// Length of the loop of `memory`.
    #[arg(long, value_name = "MINUTES", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// A Python that has onnxruntime, for `clips` to be compared with, or xllamacpp, for `llm`.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// A language server that speaks the OpenAI protocol, for `serve`; none: this program's own.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Requests at once, for `serve`.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_024))]
    concurrency: usize,
    /// Requests in all, for `serve`.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    requests: usize,
    /// Length of a measurement, in place of the bench's own.
    #[arg(long, hide = true, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: Option<u64>,
}

/// What there is to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchName {
    /// The demo clip at its own pace: from a window's end to its answer.
    Latency,
    /// A folder of short videos: time of one alone, and how many a second, against the bare parts.
    Clips,
    /// A live source faster than its stage: how old answers are.
    Freshness,
    /// What the framework costs without any model.
    Overhead,
    /// The text stage's answer while everything else is saturated.
    Priority,
    /// The language engine against llama.cpp's own server; urgent requests among long ones; a repeated prefix.
    Llm,
    /// A language server under load.
    Serve,
    /// Resident memory at the start, per stream, and over time.
    Memory,
    /// What each model costs on this machine, alone on one thread; kept for `validate` and `run`.
    Models,
}

/// How figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchFormat {
    /// For people.
    Table,
    /// `{"name", "figures", "aims", "command", "machine", "version"}`
    Json,
}

impl BenchArgs {
    /// The measurement's length: as given, or the bench's own.
    fn span(&self, own_s: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(own_s))
    }
}

/// Measures, and gives what is to be printed.
///
/// # Errors
/// One sentence: what can't be had, and what to do.
pub async fn bench(args: &BenchArgs) -> Result<String, String> {
    let machine = machine::Machine::here();
    let report: Report = match args.name {
        BenchName::Latency => latency::bench(args).await?,
        BenchName::Clips => clips::bench(args).await?,
        BenchName::Freshness => freshness::bench(args).await?,
        BenchName::Overhead => overhead::bench(args).await?,
        BenchName::Priority => priority::bench(args).await?,
        BenchName::Llm => llm::bench(args).await?,
        BenchName::Serve => serve::bench(args).await?,
        BenchName::Memory => memory::bench(args).await?,
        BenchName::Models => models::bench(args).await?,
    };
    Ok(match args.format {
        BenchFormat::Table => report.table(&machine),
        BenchFormat::Json => report.json(&machine),
    })
}
