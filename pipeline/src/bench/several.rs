//! Many known models of which few fit, with and without loading the next one ahead; repeated requests with and without
//! the answer cache.

use std::path::PathBuf;

use models::Catalogue;

use super::load::{Target, Wish, text};
use super::report::{Aim, Report};
use super::served::{Server, Sizes};
use super::stats::{Times, ratio};

const KNOWN: usize = 32;
/// Room for three of them.
const MEMORY_MB: &str = "1300";
/// The same request, so many times.
const REPEATS: usize = 40;

/// One after the other in the same order, twice: the first round teaches the order, the second is measured.
pub(super) async fn models(report: &mut Report, sizes: Sizes) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let weights = Catalogue::builtin().dir("smollm2-135m").map_err(|e| e.to_string())?;
    let weights = weights.join("smollm2-135m-q8_0.gguf");
    let mut names = Vec::new();
    let mut arguments = vec!["--memory-mb".to_owned(), MEMORY_MB.to_owned()];
    for number in 0..KNOWN {
        let name = format!("known-{number:02}");
        let file: PathBuf = folder.path().join(format!("{name}.gguf"));
        // The same weights under many names: each is loaded for itself.
        std::os::unix::fs::symlink(&weights, &file).map_err(|e| e.to_string())?;
        arguments.extend(["--model".to_owned(), file.display().to_string()]);
        names.push(name);
    }
    let mut whole = Vec::new();
    for (name, more) in [("preloaded", None), ("not_preloaded", Some("--no-preload"))] {
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(more).chain(["--cache-mb", "0"]).collect();
        let server = Server::own(sizes, &arguments).await?;
        round(&server.target, &names).await?;
        let times = round(&server.target, &names).await?;
        server.end().await;
        report.tell_times(&format!("models_{KNOWN}_{name}"), &times);
        whole.push(times);
    }
    let of = |fraction| ratio(whole[0].at(fraction), whole[1].at(fraction));
    report.tell("preload_p50_ratio", of(0.5));
    report.tell("preload_p99_ratio", of(0.99));
    Ok(())
}

async fn round(target: &Target, names: &[String]) -> Result<Times, String> {
    let mut times = Times::default();
    for (number, name) in names.iter().enumerate() {
        let prompt = text(32, 7_000 + number as u64);
        let wish = Wish { prompt, answer_tokens: 16, priority: None };
        times.add(target.with_model(name).ask(&wish).await?.whole_ms);
    }
    Ok(times)
}

/// One request again and again.
pub(super) async fn answers(report: &mut Report, sizes: Sizes) -> Result<(), String> {
    let wish = Wish { prompt: text(200, 8_000), answer_tokens: 32, priority: None };
    for (name, mb) in [("cached", "16"), ("not_cached", "0")] {
        let server = Server::own(sizes, &["--cache-mb", mb]).await?;
        server.target.ask(&wish).await?;
        let mut times = Times::default();
        for _ in 0..REPEATS {
            times.add(server.target.ask(&wish).await?.whole_ms);
        }
        server.end().await;
        report.tell_times(&format!("repeated_{name}"), &times);
        if mb != "0" {
            report.hold("repeated_cached_over_http_p50_ms", times.at(0.5), Aim::AtMost(1.0));
        }
    }
    Ok(())
}
