//! What each way of drawing and holding an answer costs a token: `cargo run --release -p engine --example
//! answer_cost -- MODEL.gguf [RUNS]`. Needs the binary `language-child` beside it.

#![expect(clippy::print_stdout, reason = "its figures are its result")]

use std::error::Error;

use engine::language::{
    ChildArgs, Constraint, EmbeddedBackend, EmbeddedConfig, GenerateRequest, LanguageBackend,
    Prompt, Sampling,
};
use models::llama::{Grammar, Guide, LlamaModel, Token};
use serde_json::json;
use tokio::time::Instant;

const TOKENS: u32 = 96;
const DIGITS: &str = "root ::= [0-9]+ (\", \" [0-9]+)*";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: answer_cost MODEL.gguf [RUNS]")?;
    let runs: usize = arguments.next().map_or(Ok(5), |n| n.parse())?;
    masks(&path)?;
    let beside = std::env::current_exe()?;
    let folder = beside.parent().and_then(|p| p.parent()).ok_or("no folder")?;
    let child = ChildArgs::new(path.into());
    let config = EmbeddedConfig::new(folder.join("language-child"), Vec::new(), child, "m".into());
    let backend = EmbeddedBackend::start(config);
    backend.ready().await;

    let hot = Sampling { temperature: 1.0, seed: Some(1), ..Sampling::default() };
    let plain = GenerateRequest {
        ignore_end: true,
        ..GenerateRequest::new(Prompt::template("Once upon a time there was a"), TOKENS)
    };
    let with =
        |sampling: &Sampling| GenerateRequest { sampling: sampling.clone(), ..plain.clone() };
    let held = |constraint| GenerateRequest { constraint: Some(constraint), ..with(&hot) };
    let array =
        json!({"type": "array", "items": {"type": "string", "maxLength": 40}, "minItems": 40});
    let kinds = [
        ("greedy, may end", GenerateRequest { ignore_end: false, ..plain.clone() }),
        ("greedy, end masked", plain.clone()),
        ("temperature 1", with(&hot)),
        ("top_k 40", with(&Sampling { top_k: 40, ..hot.clone() })),
        ("top_p 0.95", with(&Sampling { top_p: 0.95, ..hot.clone() })),
        ("min_p 0.05", with(&Sampling { min_p: 0.05, ..hot.clone() })),
        (
            "all penalties, greedy",
            with(&Sampling {
                repetition_penalty: 1.1,
                presence_penalty: 0.5,
                frequency_penalty: 0.5,
                ..Sampling::default()
            }),
        ),
        ("logprobs 5", GenerateRequest { logprobs: Some(5), ..plain.clone() }),
        ("JSON schema", held(Constraint::Json(array))),
        ("expression", held(Constraint::Regex("([0-9]{1,6}, )+".into()))),
        ("GBNF", held(Constraint::Grammar(DIGITS.into()))),
    ];
    let mut times = vec![Vec::new(); kinds.len()];
    for _ in 0..runs {
        // One after the other, so that all see the same weather.
        for ((_, request), times) in kinds.iter().zip(&mut times) {
            let usage = backend.generate(request.clone()).await?.collect().await?.usage;
            if usage.completion_tokens > 1 {
                times.push(usage.decode_ms / f64::from(usage.completion_tokens - 1));
            }
        }
    }
    for ((name, _), mut times) in kinds.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
        let best = times.first().copied().unwrap_or(f64::NAN);
        println!("{name:24} {median:7.2} ms a token in the median, {best:.2} at best");
    }
    Ok(())
}

/// Compiling and masks alone, driven by texts that fit.
fn masks(path: &str) -> Result<(), Box<dyn Error>> {
    let model = LlamaModel::load(path.as_ref())?;
    let began = Instant::now();
    Guide::regex(&model, "a")?;
    println!("first constraint of a model: {:.1} ms", ms(began));
    let schema = json!({
        "type": "object",
        "properties": {
            "category": {"enum": ["news", "sport", "weather"]},
            "count": {"type": "integer"},
            "summary": {"type": "string", "maxLength": 200}
        },
        "required": ["category", "count", "summary"],
        "additionalProperties": false
    });
    let fits = "{\"category\": \"news\", \"count\": 12, \"summary\": \"A train to Manchester is delayed by \
                about twenty minutes, and the nurses are vaccinating children against measles.\"}";
    let json = |model: &LlamaModel| Guide::json(model, &schema);
    follow("JSON schema", &model, json, fits)?;
    let regex = |model: &LlamaModel| Guide::regex(model, "[0-9]{3}-[0-9]{4}");
    follow("expression", &model, regex, "555-0199")?;
    let words = |model: &LlamaModel| Guide::regex(model, r"(\w+ ){3,40}\.");
    follow("words", &model, words, "the train to Manchester is late .")?;

    let began = Instant::now();
    let mut grammar = Grammar::new(std::sync::Arc::clone(&model), DIGITS)?;
    let compiled = ms(began);
    let mut each = Vec::new();
    for token in model.tokenise("12, 345, 6789, 10", false)? {
        let began = Instant::now();
        grammar.allowed();
        grammar.accept(token);
        each.push(ms(began));
    }
    show("GBNF", compiled, each);
    Ok(())
}

fn follow<E: Error + 'static>(
    name: &str,
    model: &LlamaModel,
    make: impl Fn(&LlamaModel) -> Result<Guide, E>,
    fits: &str,
) -> Result<(), Box<dyn Error>> {
    for turn in ["", " again"] {
        let began = Instant::now();
        let mut guide = make(model)?;
        let compiled = ms(began);
        let tokens: Vec<Token> = model.tokenise(fits, false)?;
        let mut each = Vec::new();
        for token in tokens {
            let began = Instant::now();
            guide.allowed()?;
            guide.accept(token)?;
            each.push(ms(began));
        }
        show(&format!("{name}{turn}"), compiled, each);
    }
    Ok(())
}

fn show(name: &str, compiled: f64, mut each: Vec<f64>) {
    each.sort_by(f64::total_cmp);
    let (median, most) = (each[each.len() / 2], each.last().copied().unwrap_or(f64::NAN));
    println!(
        "{name}: compiled in {compiled:.2} ms; mask and step {median:.3} ms in the median, {most:.3} at most, {} tokens",
        each.len()
    );
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}
