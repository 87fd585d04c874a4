use media::result::SeenObject;
use media::{Polarity, Rect, Scored, ScreenLine, SpeechSegment};
use proptest::prelude::*;

use super::*;

fn taxonomy() -> Taxonomy {
    Taxonomy::builtin().expect("the built-in taxonomy is sound")
}

fn seen(label: &str, score: f32) -> SeenObject {
    SeenObject {
        label: label.into(),
        score,
        rect: Rect(0.0, 0.0, 0.1, 0.1),
        track: None,
        pts_ms: 0,
        first_ms: 0,
        last_ms: 0,
    }
}

fn read(text: &str, score: f32) -> ScreenLine {
    ScreenLine { text: text.into(), score, rect: Rect(0.0, 0.0, 0.1, 0.1), pts_ms: 0 }
}

fn said(text: &str, confidence: f32) -> SpeechSegment {
    SpeechSegment {
        utterance: 0,
        text: text.into(),
        start_ms: 0,
        end_ms: 1,
        is_final: true,
        language: "en".into(),
        confidence,
    }
}

fn understood(scores: &[(&str, f32)], sentiment: Option<Tone>) -> Understanding {
    Understanding {
        category: None,
        scores: scores.iter().map(|(c, s)| (Arc::from(*c), *s)).collect(),
        summary: None,
        summary_from: None,
        summary_age_ms: 0,
        sentiment,
        flags: vec![],
        keywords: vec![],
        language: None,
        model: "m".into(),
        backend: "b".into(),
        age_ms: 0,
        truncated: false,
    }
}

fn score(pooled: &[PooledLabel], label: &str) -> f32 {
    pooled.iter().find(|l| &*l.label == label).map_or(0.0, |l| l.score)
}

#[test]
fn modalities_that_agree_are_surer_than_each_alone() {
    let taxonomy = taxonomy();
    let vision = Vision { objects: vec![seen("train", 0.8)], ..Vision::default() };
    let audio = Audio { speech: vec![said("The train is late.", 0.9)], sentiment: None };
    let text = understood(&[("transport", 0.7), ("news", 0.1)], None);
    let all =
        taxonomy.pool(Evidence { vision: Some(&vision), audio: Some(&audio), text: Some(&text) });
    assert_eq!(&*all[0].label, "transport");
    assert_eq!(all[0].evidence.len(), 3);
    for alone in [
        Evidence { vision: Some(&vision), ..Evidence::default() },
        Evidence { audio: Some(&audio), ..Evidence::default() },
        Evidence { text: Some(&text), ..Evidence::default() },
    ] {
        assert!(all[0].score > score(&taxonomy.pool(alone), "transport"));
    }
    assert!(score(&all, "news") < 0.02, "a category below its even share is no evidence");
}

#[test]
fn ten_cars_are_no_ten_proofs() {
    let taxonomy = taxonomy();
    let pool = |n| {
        let vision = Vision { objects: vec![seen("car", 0.8); n], ..Vision::default() };
        taxonomy.pool(Evidence { vision: Some(&vision), ..Evidence::default() })
    };
    assert_eq!(pool(1), pool(10));
}

#[test]
fn words_count_in_any_form_and_script() {
    let taxonomy = taxonomy();
    let pool = |text: &str| {
        let vision = Vision { text: vec![read(text, 0.95)], ..Vision::default() };
        taxonomy.pool(Evidence { vision: Some(&vision), ..Evidence::default() })
    };
    assert!(score(&pool("TRAINS to London"), "transport") > 0.2);
    assert!(score(&pool("今天天气预报"), "weather") > 0.2);
    assert!(pool("restraint constrained").is_empty(), "`train` inside another word is none");
    assert!(pool("").is_empty());
}

#[test]
fn a_category_of_the_users_own_is_a_label_of_its_own() {
    let text = understood(&[("beekeeping", 0.8), ("Sport", 0.5)], None);
    let pooled = taxonomy().pool(Evidence { text: Some(&text), ..Evidence::default() });
    assert_eq!(&*pooled[0].label, "beekeeping");
    assert_eq!(&*pooled[1].label, "sports");
}

#[test]
fn sentiment_is_the_mean_of_voice_and_words_or_the_one_there_is() {
    let taxonomy = taxonomy();
    let tone = |label, score| Some(Tone { label, score });
    let audio = Audio { speech: vec![], sentiment: tone(Polarity::Negative, 0.8) };
    let text = understood(&[], tone(Polarity::Positive, 0.2));
    let both = Evidence { audio: Some(&audio), text: Some(&text), vision: None };
    let fused = taxonomy.sentiment(both).expect("two sentiments");
    assert_eq!(fused.label, Polarity::Negative);
    assert!((fused.score - 0.3).abs() < 1e-6);
    let alone = Evidence { audio: Some(&audio), ..Evidence::default() };
    assert_eq!(taxonomy.sentiment(alone), audio.sentiment);
    assert_eq!(taxonomy.sentiment(Evidence::default()), None);
}

#[test]
fn all_eighty_classes_of_the_detector_are_weighed() {
    let taxonomy = taxonomy();
    assert_eq!(taxonomy.objects.labels.len(), 80);
}

#[test]
fn mistakes_in_the_file_are_named() {
    let good = include_str!("../../data/taxonomy.json");
    let wrong = good.replace("\"person\": {\"people\": 0.3}", "\"person\": {\"peopel\": 0.3}");
    let error = Taxonomy::from_json(&wrong).expect_err("unknown label").to_string();
    assert!(error.contains("objects.person.peopel") && error.contains("people"), "{error}");
    let wrong = good.replace("\"person\": {\"people\": 0.3}", "\"person\": {\"people\": 1.3}");
    let error = Taxonomy::from_json(&wrong).expect_err("weight").to_string();
    assert!(error.contains("objects.person.people is 1.3"), "{error}");
    assert!(Taxonomy::from_json("{}").is_err());
}

#[derive(Clone, Debug)]
enum Piece {
    Object(&'static str, f32),
    Scene(&'static str, f32),
    Line(&'static str, f32),
    Said(&'static str, f32),
    Category(&'static str, f32),
}

fn any_score() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => 0.0..=1.0_f32,
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -3.0, 7.0]),
    ]
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    use prop::sample::select;
    let objects = select(vec!["person", "car", "train", "dog", "tv", "unheard-of"]);
    let scenes = select(vec!["street", "animals", "food", "sports", "unheard-of"]);
    let texts = || select(vec!["train station", "goal!", "天气", "", "recipe with garlic and oil"]);
    let categories = select(vec!["news", "sports", "sport", "football", "own", "transport"]);
    let piece = prop_oneof![
        (objects, any_score()).prop_map(|(l, s)| Piece::Object(l, s)),
        (scenes, any_score()).prop_map(|(l, s)| Piece::Scene(l, s)),
        (texts(), any_score()).prop_map(|(l, s)| Piece::Line(l, s)),
        (texts(), any_score()).prop_map(|(l, s)| Piece::Said(l, s)),
        (categories, any_score()).prop_map(|(l, s)| Piece::Category(l, s)),
    ];
    prop::collection::vec(piece, 0..16)
}

/// Pools some pieces; a modality without any is missing.
fn pool(taxonomy: &Taxonomy, pieces: &[Piece]) -> Vec<PooledLabel> {
    let (mut vision, mut audio, mut scores) = (Vision::default(), Audio::default(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Object(label, score) => vision.objects.push(seen(label, *score)),
            Piece::Scene(label, score) => {
                vision.scenes.push(Scored { label: (*label).into(), score: *score });
            }
            Piece::Line(text, score) => vision.text.push(read(text, *score)),
            Piece::Said(text, score) => audio.speech.push(said(text, *score)),
            // A later answer replaces an earlier one, so the first score of a category stays.
            Piece::Category(category, score) => {
                if scores.iter().all(|(have, _)| have != category) {
                    scores.push((*category, *score));
                }
            }
        }
    }
    let text = understood(&scores, None);
    taxonomy.pool(Evidence {
        vision: (vision != Vision::default()).then_some(&vision),
        audio: (audio != Audio::default()).then_some(&audio),
        text: (!scores.is_empty()).then_some(&text),
    })
}

proptest! {
    #[test]
    fn more_evidence_never_lowers_a_score(some in pieces(), more in pieces()) {
        let taxonomy = taxonomy();
        let before = pool(&taxonomy, &some);
        let all: Vec<Piece> = some.into_iter().chain(more).collect();
        let after = pool(&taxonomy, &all);
        for label in &before {
            prop_assert!(
                score(&after, &label.label) >= label.score - 1e-6,
                "{} fell from {} in {:?}", label.label, label.score, after
            );
        }
    }

    #[test]
    fn scores_are_bounded_whatever_the_models_say(some in pieces()) {
        let pooled = pool(&taxonomy(), &some);
        prop_assert!(pooled.len() <= 16);
        for label in &pooled {
            prop_assert!((0.0..=1.0).contains(&label.score), "{label:?}");
            for (modality, belief) in &label.evidence {
                prop_assert!((0.0..=1.0).contains(belief));
                prop_assert!(label.score >= 0.7 * belief - 1e-6, "{modality:?} {label:?}");
            }
        }
        prop_assert!(pooled.windows(2).all(|pair| pair[0].score >= pair[1].score));
    }
}

#[test]
fn every_scene_group_that_can_be_seen_says_something() {
    let taxonomy = Taxonomy::builtin().unwrap();
    for group in models::vision::SceneClassifier::groups() {
        assert!(taxonomy.scenes.labels.contains_key(&*group), "{group} stands for no label");
    }
}
