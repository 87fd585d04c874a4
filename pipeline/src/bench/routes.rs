//! Categories by the light route, by the heavy one, and by how hard the text is: time, share and agreement.

use std::sync::Arc;

use actors::stages::{CategoryScorer, UnderstandSettings};
use engine::language::{
    ChildArgs, EmbeddedBackend, LanguageBackend, TextInputs, Understander, category_by_embedding,
    label_sentence,
};
use media::{Clock, SystemClock};
use models::words::Embedder;
use models::{Catalogue, Model, Runtime};

use super::report::Report;
use super::stats::{Times, ratio};
use texts::{TEXTS, TOPICS};

#[path = "../../../engine/tests/language_texts/mod.rs"]
#[expect(dead_code, reason = "shared with tests that use the rest")]
mod texts;

const MODEL: &str = "smollm2-135m";
/// Words that are left of a text to make it hard.
const WORDS_HARD: usize = 4;

/// What one route says of each text, and how long it took.
#[derive(Default)]
struct Route {
    topics: Vec<Option<usize>>,
    times: Times,
}

impl Route {
    fn right(&self, topics: &[&str]) -> usize {
        let said = self.topics.iter().map(|at| at.map(|at| TOPICS[at]));
        said.zip(topics).filter(|(said, topic)| *said == Some(**topic)).count()
    }
}

pub(super) async fn measure(report: &mut Report) -> Result<(), String> {
    let catalogue = Catalogue::builtin();
    let dir = |name: &str| catalogue.dir(name).map_err(|e| e.to_string());
    let child = ChildArgs::new(dir(MODEL)?.join("smollm2-135m-q8_0.gguf"));
    let backend = EmbeddedBackend::start(crate::run::embedded(child, MODEL.to_owned())?);
    backend.ready().await;
    let heavy = Understander::new(Arc::new(backend) as Arc<dyn LanguageBackend>);
    let runtime = Runtime::open(&dir("onnxruntime")?.join("libonnxruntime.so"));
    let runtime = runtime.map_err(|e| e.to_string())?;
    let light = Embedder::open(&runtime, &dir("minilm-l6-v2")?).map_err(|e| e.to_string())?;
    let mut light = light;
    let spec = UnderstandSettings {
        categories: TOPICS.map(String::from).to_vec(),
        category_by: CategoryScorer::Routed,
        ..UnderstandSettings::default()
    }
    .spec();
    heavy.prepare(&spec.asked).await.map_err(|e| e.to_string())?;
    let labels = light.run(&TOPICS.map(label_sentence)).map_err(|e| e.to_string())?;

    // Each text whole, and what is left when only its first words were heard.
    let short = |text: &str| text.split(' ').take(WORDS_HARD).collect::<Vec<_>>().join(" ");
    let whole = TEXTS.iter().map(|(topic, text)| (*topic, (*text).to_owned()));
    let texts = whole.chain(TEXTS.iter().map(|(topic, text)| (*topic, short(text))));
    let texts: Vec<(&str, String)> = texts.collect();
    let topics: Vec<&str> = texts.iter().map(|(topic, _)| *topic).collect();
    let (mut by_light, mut by_heavy, mut routed) =
        (Route::default(), Route::default(), Route::default());
    let (clock, mut easy, mut agree) = (SystemClock::new(), 0_usize, 0_usize);
    for (_, text) in &texts {
        let inputs = TextInputs { transcript: text.clone(), ..TextInputs::default() };
        let began = clock.now();
        let vector = light.run(std::slice::from_ref(text)).map_err(|e| e.to_string())?;
        let scores = category_by_embedding(&vector[0], &labels);
        let light_ms = clock.now().ms_since(began);
        let by_vector = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        let began = clock.now();
        let answer = heavy.category(&inputs, &spec.asked, None).await.map_err(|e| e.to_string())?;
        let heavy_ms = clock.now().ms_since(began);
        let of = |topic: &str| answer.scores.get(topic).copied().unwrap_or_default();
        let by_model = (0..TOPICS.len()).max_by(|a, b| of(TOPICS[*a]).total_cmp(&of(TOPICS[*b])));
        let is_easy = spec.is_embedded(&inputs);
        easy += usize::from(is_easy);
        agree += usize::from(is_easy && by_vector == by_model);
        let (topic, ms) = if is_easy { (by_vector, light_ms) } else { (by_model, heavy_ms) };
        for (route, topic, ms) in [
            (&mut by_light, by_vector, light_ms),
            (&mut by_heavy, by_model, heavy_ms),
            (&mut routed, topic, ms),
        ] {
            route.topics.push(topic);
            route.times.add(ms);
        }
    }
    let count = texts.len() as f64;
    report.tell("route_texts", texts.len());
    report.tell("route_light_share", easy as f64 / count);
    report.tell("route_light_agrees_with_heavy", ratio(Some(agree as f64), Some(easy as f64)));
    for (name, route) in [("light", &by_light), ("heavy", &by_heavy), ("routed", &routed)] {
        report.tell(&format!("route_{name}_right"), route.right(&topics) as f64 / count);
        report.tell_times(&format!("route_{name}"), &route.times);
    }
    Ok(())
}
