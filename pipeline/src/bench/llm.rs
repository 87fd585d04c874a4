//! The language engine against llama.cpp's own server, an urgent request among long ones, a repeated prefix, and what
//! scheduling itself costs.
//!
//! Both servers get the same file, threads, context, requests and client. Where Python lacks the package `xllamacpp`, the
//! rows of llama.cpp are absent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::language::{
    ChildArgs, EmbeddedBackend, GenerateRequest, LanguageBackend, Prompt, Usage,
};
use futures_util::StreamExt;
use media::{Clock, SystemClock};
use models::Catalogue;

use super::BenchArgs;
use super::load::{Target, Wish, text, wishes};
use super::report::{Aim, Report};
use super::scheduling;
use super::served::{Server, Sizes};
use super::stats::{Times, ratio};

const MODEL: &str = "smollm2-135m";
const CONTEXT_TOKENS: u32 = 8192;
const CONCURRENT: [usize; 4] = [1, 4, 8, 16];
/// Lengths of the mixed load, in tokens.
const PROMPTS: [u64; 4] = [32, 256, 64, 128];
const ANSWERS: [u32; 3] = [32, 96, 64];
/// Times that a short measurement is repeated.
const REPEATS: usize = 5;
/// Long requests beside the urgent ones.
const LONG: usize = 16;
const URGENT: usize = 60;

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let model = Catalogue::builtin().dir(MODEL).map_err(|e| e.to_string())?;
    let model = model.join("smollm2-135m-q8_0.gguf");
    let mut report = Report::new("llm");
    against_llama(&mut report, &args.python, &model).await?;
    let engine = Engine::start(&model).await?;
    urgent(&mut report, &engine).await?;
    prefix(&mut report, &engine).await?;
    wake(&mut report, &engine).await?;
    drop(engine);
    scheduling::measure(&mut report);
    Ok(report)
}

/// What one server does.
#[derive(Debug, Default)]
struct Speed {
    prompt_tokens_per_s: Option<f64>,
    alone_tokens_per_s: Option<f64>,
    /// Per entry of [`CONCURRENT`].
    total_tokens_per_s: Vec<Option<f64>>,
}

async fn against_llama(report: &mut Report, python: &str, model: &Path) -> Result<(), String> {
    let mut speeds = [Speed::default(), Speed::default()];
    let mut has_llama = true;
    for (level, concurrency) in CONCURRENT.into_iter().enumerate() {
        let slots = concurrency as u32;
        let sizes = Sizes { threads: 1, context_tokens: CONTEXT_TOKENS, slots };
        // One after the other, never side by side; who goes first alternates.
        let order = if level % 2 == 0 { [0, 1] } else { [1, 0] };
        for who in order {
            let server = match who {
                0 => Some(Server::own(sizes, &[]).await?),
                _ if has_llama => Server::llama(python, model, sizes).await?,
                _ => None,
            };
            has_llama &= who == 0 || server.is_some();
            let Some(server) = server else { continue };
            measure(&server.target, &mut speeds[who], concurrency).await?;
            server.end().await;
        }
    }
    let [own, llama] = speeds;
    report.tell("prompt_tokens_per_s", own.prompt_tokens_per_s);
    report.tell("llama_prompt_tokens_per_s", llama.prompt_tokens_per_s);
    let aim = Aim::AtLeast(1.0);
    report.hold("prompt_ratio", ratio(own.prompt_tokens_per_s, llama.prompt_tokens_per_s), aim);
    report.tell("alone_tokens_per_s", own.alone_tokens_per_s);
    report.tell("llama_alone_tokens_per_s", llama.alone_tokens_per_s);
    report.hold("alone_ratio", ratio(own.alone_tokens_per_s, llama.alone_tokens_per_s), aim);
    for (level, concurrency) in CONCURRENT.into_iter().enumerate() {
        let of = |speed: &Speed| speed.total_tokens_per_s.get(level).copied().flatten();
        report.tell(&format!("total_at_{concurrency}_tokens_per_s"), of(&own));
        report.tell(&format!("llama_total_at_{concurrency}_tokens_per_s"), of(&llama));
        report.hold(&format!("total_at_{concurrency}_ratio"), ratio(of(&own), of(&llama)), aim);
    }
    Ok(())
}

async fn measure(target: &Target, speed: &mut Speed, concurrency: usize) -> Result<(), String> {
    if concurrency == 1 {
        let words = target.words_for(512).await?;
        let (mut prompt, mut alone) = (Times::default(), Times::default());
        for n in 0..REPEATS as u64 {
            let long = Wish { prompt: text(words, 900 + n), answer_tokens: 1, priority: None };
            let took = target.ask(&long).await?;
            prompt.add(took.prompt_tokens as f64 / took.first_ms * 1e3);
            let short = Wish { prompt: text(12, 950 + n), answer_tokens: 96, priority: None };
            let took = target.ask(&short).await?;
            let gaps = took.answer_tokens.saturating_sub(1) as f64;
            alone.add(gaps / (took.whole_ms - took.first_ms) * 1e3);
        }
        speed.prompt_tokens_per_s = prompt.at(0.5);
        speed.alone_tokens_per_s = alone.at(0.5);
    }
    let mut words = Vec::new();
    for tokens in PROMPTS {
        words.push(target.words_for(tokens).await?);
    }
    let count = (2 * concurrency).max(6);
    let mut rates = Times::default();
    for round in 0..2 {
        let from = 1_000 * (round + 1) + concurrency as u64 * 100;
        let total = target.all(wishes(&words, &ANSWERS, count, from), concurrency).await;
        if let Some(error) = total.errors.first() {
            return Err(format!("at {concurrency} requests at once: {error}"));
        }
        total.answer_tokens_per_s().into_iter().for_each(|rate| rates.add(rate));
    }
    speed.total_tokens_per_s.push(rates.max());
    Ok(())
}

/// The embedded engine in a child of this process, without HTTP.
struct Engine {
    backend: EmbeddedBackend,
    clock: Arc<SystemClock>,
}

impl Engine {
    async fn start(model: &Path) -> Result<Self, String> {
        let child = ChildArgs {
            context_tokens: CONTEXT_TOKENS,
            slots: LONG as u32 + 2,
            ..ChildArgs::new(model.to_owned())
        };
        let backend = EmbeddedBackend::start(crate::run::embedded(child, MODEL.to_owned())?);
        backend.ready().await;
        Ok(Engine { backend, clock: Arc::new(SystemClock::new()) })
    }

    /// Time to the first piece of text, and the cost.
    async fn ask(&self, request: GenerateRequest) -> Result<(f64, Usage), String> {
        let began = self.clock.now();
        let mut answer = self.backend.generate(request).await.map_err(|e| e.to_string())?;
        let mut first_ms = None;
        while let Some(delta) = answer.next().await {
            first_ms.get_or_insert(self.clock.now().ms_since(began));
            if let engine::language::Delta::End { usage, .. } = delta.map_err(|e| e.to_string())? {
                return Ok((first_ms.unwrap_or_default(), usage));
            }
        }
        Err("the answer stopped without an end".into())
    }
}

fn request(words: usize, number: u64, tokens: u32, priority: i32) -> GenerateRequest {
    GenerateRequest {
        ignore_end: true,
        priority,
        ..GenerateRequest::new(Prompt::template(text(words, number)), tokens)
    }
}

/// Urgent requests alone, then among long ones that never end.
async fn urgent(report: &mut Report, engine: &Engine) -> Result<(), String> {
    let mut idle = Times::default();
    for n in 0..URGENT as u64 / 2 {
        idle.add(engine.ask(request(32, 2_000 + n, 8, -1)).await?.0);
    }
    let quiet = long_rate(engine, Duration::from_secs(10), None).await?;
    let mut busy = Times::default();
    let disturbed = long_rate(engine, Duration::from_secs(60), Some(&mut busy)).await?;
    let stats = engine.backend.stats();
    report.tell_times("urgent_first_token_idle", &idle);
    report.tell_times("urgent_first_token_busy", &busy);
    let of = |fraction| ratio(busy.at(fraction), idle.at(fraction));
    report.hold("urgent_first_token_p50_ratio", of(0.5), Aim::AtMost(1.5));
    report.tell("urgent_first_token_p99_ratio", of(0.99));
    let waits = (stats.urgent_wait_ms_p50, stats.urgent_wait_ms_p99);
    // The engine says 0 where it has measured nothing.
    let measured = |ms: f64| Some(ms).filter(|ms| *ms > 0.0);
    report.hold("urgent_wait_p50_ms", measured(waits.0), Aim::AtMost(1.0));
    report.hold("urgent_wait_p99_ms", measured(waits.1), Aim::AtMost(5.0));
    report.tell("long_tokens_per_s_undisturbed", quiet);
    report.tell("long_tokens_per_s_disturbed", disturbed);
    report.tell("aborted_steps", stats.aborts);
    Ok(())
}

/// Tokens a second of the long requests, with an urgent one every 200 ms if `urgent` is there to take their times.
async fn long_rate(
    engine: &Engine,
    span_max: Duration,
    urgent: Option<&mut Times>,
) -> Result<Option<f64>, String> {
    let mut long = Vec::new();
    for n in 0..LONG as u64 {
        let answer = engine.backend.generate(request(24, 3_000 + n, 400, 5)).await;
        long.push(answer.map_err(|e| e.to_string())?);
    }
    let tokens = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let readers = long.into_iter().map(|mut answer| {
        let tokens = tokens.clone();
        tokio::spawn(async move {
            while let Some(Ok(_)) = answer.next().await {
                tokens.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    // Until all of them generate.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let counted = || tokens.load(std::sync::atomic::Ordering::Relaxed);
    let (from, before) = (engine.clock.now(), counted());
    match urgent {
        None => tokio::time::sleep(span_max).await,
        Some(times) => {
            for n in 0..URGENT as u64 {
                if engine.clock.now().since(from) > span_max
                    || readers.iter().any(|r| r.is_finished())
                {
                    break;
                }
                times.add(engine.ask(request(32, 4_000 + n, 8, -1)).await?.0);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
    let seconds = engine.clock.now().since(from).as_secs_f64();
    let rate = (counted() - before) as f64 / seconds;
    for reader in readers {
        reader.abort();
        // Its answer is dropped, which cancels it.
        let _ = reader.await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(Some(rate))
}

/// A prefix of 300 tokens before 30 new ones, shared and not.
async fn prefix(report: &mut Report, engine: &Engine) -> Result<(), String> {
    let (mut shared, mut apart) = (Times::default(), Times::default());
    let prefix = text(300, 5_000);
    for n in 0..=REPEATS as u64 {
        let prompt = Prompt::template(format!("{prefix} {}", text(30, 5_100 + n)));
        let with_salt = |salt: Option<String>| GenerateRequest {
            cache_salt: salt,
            ..GenerateRequest::new(prompt.clone(), 1)
        };
        let (_, usage) = engine.ask(with_salt(None)).await?;
        let (_, other) = engine.ask(with_salt(Some(format!("salt {n}")))).await?;
        // The first of all computes what the others share.
        if n > 0 {
            shared.add(usage.prefill_ms);
            apart.add(other.prefill_ms);
        }
    }
    report.tell("prefix_shared_prefill_p50_ms", shared.at(0.5));
    report.tell("prefix_apart_prefill_p50_ms", apart.at(0.5));
    report.hold("prefix_gain", ratio(apart.at(0.5), shared.at(0.5)), Aim::AtLeast(5.0));
    Ok(())
}

/// From a request's arrival at an engine that sleeps to the start of its first step.
async fn wake(report: &mut Report, engine: &Engine) -> Result<(), String> {
    let mut waits = Times::default();
    for n in 0..30 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        waits.add(engine.ask(request(8, 6_000 + n, 1, 0)).await?.1.queue_ms);
    }
    report.tell("engine_wake_p50_ms", waits.at(0.5));
    report.hold("engine_wake_p99_ms", waits.at(0.99), Aim::AtMost(3.0));
    Ok(())
}
