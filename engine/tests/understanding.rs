//! What the small model can tell about short texts, measured with real weights. Without weights in the cache each
//! test says so and passes, unless `CI` asks for them.

mod language_support;

use engine::language::*;
use language_support::texts::*;
use language_support::{cache, start};
use models::words::Embedder;
use models::{Model, Runtime};

fn embedder() -> Option<Embedder> {
    let (library, dir) = (cache("onnxruntime").join("libonnxruntime.so"), cache("minilm-l6-v2"));
    if !dir.join("model.onnx").exists() || !library.exists() {
        assert!(std::env::var_os("CI").is_none(), "{} is not there", dir.display());
        eprintln!("skipped: {} is not there; run `pipeline models pull minilm-l6-v2`", dir.display());
        return None;
    }
    Some(Embedder::open(&Runtime::open(&library).unwrap(), &dir).unwrap())
}

#[tokio::test]
async fn experiment() {
    let Some(backend) = start().await else { return };
    let Some(mut embedder) = embedder() else { return };
    let mut embed = |texts: &[String]| -> Vec<Vec<f32>> {
        texts.chunks(16).flat_map(|c| embedder.run(c).unwrap()).collect()
    };
    let labels: Vec<String> = TOPICS.iter().map(|t| format!(" {t}")).collect();
    let score = async |prefix: Prompt, conts: &[String]| {
        backend.score(ScoreRequest { prefix, continuations: conts.to_vec(), priority: 0, time_limit_ms: None }).await.unwrap()
    };
    for (name, open, close) in [
        ("topic", "Text: \"", "\"\nThe topic of this text is"),
        ("topic2", "\"", "\"\nThe topic of this text is"),
        ("about", "Text: \"", "\"\nThis text is about"),
        ("short", "\"", "\" This is about"),
        ("cat", "Text: \"", "\"\nTopic:"),
    ] {
        let prompt = |t: &str| Prompt { parts: vec![Part::Template(open.into()), Part::Data(t.into()), Part::Template(close.into())], reuse: 1 };
        for empties in [&["..."][..], &["N/A"], &[""], &["Well, you know."], &["...", "Well, you know."], &["...", "N/A", "", "Well, you know."]] {
            let mut rows = Vec::new();
            for e in empties { rows.push(score(prompt(e), &labels).await); }
            let cal = Calibration::new(&rows);
            let mut ok = 0; let mut raw = 0; let mut wrong = String::new();
            for (topic, text) in TEXTS {
                let s = score(prompt(text), &labels).await;
                let g = cal.gains(&s);
                let best = (0..8).max_by(|&a, &b| g[a].total_cmp(&g[b])).unwrap();
                let bestr = (0..8).max_by(|&a, &b| s[a].log_likelihood.total_cmp(&s[b].log_likelihood)).unwrap();
                if TOPICS[best] == topic { ok += 1 } else { wrong += &format!(" {topic}>{}", TOPICS[best]); }
                if TOPICS[bestr] == topic { raw += 1 }
            }
            eprintln!("{name:8} {empties:?}: calibrated {ok}/40 raw {raw}/40 wrong{wrong}");
        }
    }
    // flags
    let texts: Vec<String> = FLAGGED.iter().map(|f| f.1.to_owned()).chain(TEXTS.iter().map(|t| t.1.to_owned())).collect();
    let vecs = embed(&texts);
    let mean = embed(&["This is about something else.".to_owned(), "Somebody says something.".to_owned()]);
    for (fi, (flag, meaning)) in FLAGS.iter().enumerate() {
        let pos = |i: usize| i < 20 && FLAGGED[i].0 == *flag;
        let report = |name: &str, vals: &[f64]| {
            let may = |i: usize| MAY_BE_FLAGGED.iter().any(|m| m.0 == *flag && texts[i].contains(m.1));
            let negmax = (0..texts.len()).filter(|&i| !pos(i) && !may(i)).map(|i| vals[i]).fold(f64::MIN, f64::max);
            let p: Vec<String> = (0..20).filter(|&i| pos(i)).map(|i| format!("{:.2}", vals[i])).collect();
            let mut auc = 0; let mut n = 0;
            for i in 0..texts.len() { for j in 0..texts.len() { if pos(i) && !pos(j) && !may(j) { n += 1; if vals[i] > vals[j] { auc += 1 } } } }
            let at = (0..texts.len()).filter(|&i| !pos(i) && !may(i)).max_by(|&a,&b| vals[a].total_cmp(&vals[b])).unwrap();
            eprintln!("{flag:12} {name:14} auc {:.3} negmax {negmax:.2} pos {p:?} worst: {}", auc as f64 / n as f64, texts[at]);
        };
        for (name, sent) in [("emb plain", meaning.to_string()), ("emb that", format!("This text says that {meaning}.")), ("emb flag+", format!("{}: {meaning}", flag.replace('_', " ")))] {
            let v = &embed(&[sent])[0];
            let vals: Vec<f64> = vecs.iter().map(|t| f64::from(models::words::similarity(t, v))).collect();
            report(name, &vals);
        }
        let _ = (fi, &mean);
        for (name, q) in [("yesno that", "\"\nQuestion: Does this text say that {}?\nAnswer:"), ("yesno is", "\"\nIs it true that {}? Answer yes or no:"), ("true", "\"\nIn this text, {}. True or false? Answer:")] {
            let conts: Vec<String> = if name == "true" { vec![" True".into(), " False".into()] } else { vec![" Yes".into(), " No".into()] };
            let (a, b) = q.split_once("{}").unwrap();
            let prompt = |t: &str| Prompt { parts: vec![Part::Template("Text: \"".into()), Part::Data(t.into()), Part::Template(format!("{a}{meaning}{b}"))], reuse: 2 };
            let cal = Calibration::new(&[score(prompt("..."), &conts).await, score(prompt("Well, you know."), &conts).await]);
            let mut vals = Vec::new();
            for t in &texts { let g = cal.gains(&score(prompt(t), &conts).await); vals.push(g[0] - g[1]); }
            report(name, &vals);
        }
        // conditional likelihood of the meaning itself
        let prompt = |t: &str| Prompt { parts: vec![Part::Template("Text: \"".into()), Part::Data(t.into()), Part::Template("\"\nThis text says that".into())], reuse: 2 };
        let conts = vec![format!(" {meaning}")];
        let cal = Calibration::new(&[score(prompt("..."), &conts).await, score(prompt("Well, you know."), &conts).await]);
        let mut vals = Vec::new();
        for t in &texts { vals.push(cal.gains(&score(prompt(t), &conts).await)[0]); }
        report("meaning|text", &vals);
    }
    // embedding categories
    for f in ["This is about {}.", "{}", "This text is about {}.", "The topic is {}."] {
        let lv = embed(&TOPICS.map(|t| f.replace("{}", t)));
        let tv = embed(&TEXTS.map(|t| t.1.to_owned()));
        let mut ok = 0; let mut wrong = String::new();
        for (i, (topic, _)) in TEXTS.iter().enumerate() {
            let s = category_by_embedding(&tv[i], &lv);
            let best = (0..8).max_by(|&a, &b| s[a].total_cmp(&s[b])).unwrap();
            if TOPICS[best] == *topic { ok += 1 } else { wrong += &format!(" {topic}>{}", TOPICS[best]); }
        }
        eprintln!("embedding {f:24} {ok}/40 wrong{wrong}");
    }
}
