//! How fast the embedded engine is here: `cargo run --release -p engine --example language_speed -- MODEL.gguf
//! [THREADS]`. Needs the binary `language-child` beside it.

#![expect(clippy::print_stdout, reason = "its figures are its result")]

use std::error::Error;
use std::sync::Arc;

use engine::language::{
    ChildArgs, EmbeddedBackend, EmbeddedConfig, GenerateRequest, LanguageBackend, Prompt,
    TextInputs, UnderstandSpec, Understander,
};
use tokio::time::Instant;

const RUNS: usize = 15;
const RAILWAY: &str = "The history of the railway is a long one. In the early nineteenth century engineers in \
     several countries were trying to find ways to move heavy loads over long distances. ";
const TEXTS: [&str; 3] = [
    "The train to Manchester is delayed by about twenty minutes due to a signal failure.",
    "Nurses at the hospital are vaccinating children against measles this week.",
    "And she takes the shot from outside the box, it's in the net, two nil!",
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("usage: language_speed MODEL.gguf [THREADS]")?;
    let mut child = ChildArgs::new(model.into());
    child.threads = arguments.next().map_or(Ok(1), |n| n.parse())?;
    let beside = std::env::current_exe()?;
    let folder = beside.parent().and_then(|p| p.parent()).ok_or("no folder")?;
    let config = EmbeddedConfig::new(
        folder.join("language-child"),
        Vec::new(),
        child,
        "smollm2-135m".into(),
    );
    let began = Instant::now();
    let backend = EmbeddedBackend::start(config);
    backend.ready().await;
    println!("ready after {:.0} ms", ms(began));

    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let prompt = Prompt::template(format!("{run} {}", RAILWAY.repeat(8)));
        let answer = backend.generate(GenerateRequest::new(prompt, 33)).await?.collect().await?;
        let usage = answer.usage;
        if run == 0 {
            println!("{usage:?}");
        }
        prefill.push(f64::from(usage.prompt_tokens) / usage.prefill_ms * 1e3);
        decode.push(f64::from(usage.completion_tokens - 1) / usage.decode_ms * 1e3);
    }
    show("prefill, tokens/s", prefill);
    show("decode, tokens/s", decode);

    let understander = Understander::new(Arc::new(backend.clone()));
    let spec = UnderstandSpec {
        categories: [
            "news",
            "sports",
            "music",
            "transport",
            "cooking",
            "technology",
            "weather",
            "health",
        ]
        .map(String::from)
        .to_vec(),
        flags: Default::default(),
        summary_tokens_max: 20,
        priority: -10,
    };
    let began = Instant::now();
    understander.prepare(&spec).await?;
    println!("calibration and worked examples: {:.0} ms, once", ms(began));
    let (mut category, mut summary, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    let (mut category_cpu, mut summary_cpu) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let text = format!("{} {}", run + 10, TEXTS[run % TEXTS.len()]);
        lengths.push(backend.tokenize(text.clone(), false).await?.len() as f64);
        let inputs = TextInputs { transcript: text, ..TextInputs::default() };
        let (began, cpu) = (Instant::now(), cpu_ms(&backend));
        understander.category(&inputs, &spec, None).await?;
        category.push(ms(began));
        category_cpu.push(cpu_ms(&backend) - cpu);
        let (began, cpu) = (Instant::now(), cpu_ms(&backend));
        understander.summary(&inputs, &spec, None).await?;
        summary.push(ms(began));
        summary_cpu.push(cpu_ms(&backend) - cpu);
    }
    show("tokens of a text", lengths);
    show("category of 8 labels, ms", category);
    show("its compute, ms (in ticks of 10)", category_cpu);
    show("summary of at most 20 tokens, ms", summary);
    show("its compute, ms (in ticks of 10)", summary_cpu);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    println!("{:?}", backend.stats());
    Ok(())
}

/// Compute of the child so far, as the kernel counts it: free of whoever else is on the cores.
fn cpu_ms(backend: &EmbeddedBackend) -> f64 {
    let stat = backend.pid().and_then(|p| std::fs::read_to_string(format!("/proc/{p}/stat")).ok());
    let stat = stat.unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) * 10.0
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn show(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let at = |q: f64| values[((values.len() - 1) as f64 * q) as usize];
    println!("{what}: lowest {:.1} median {:.1} highest {:.1}", at(0.0), at(0.5), at(1.0));
}
