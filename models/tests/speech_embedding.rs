//! Sentence embeddings with the real weights.

#![expect(clippy::print_stdout, reason = "figures for people")]

mod speech_support;

use models::Model;
use models::words::{EMBEDDING_WIDTH, Embedder, similarity};
use speech_support::{model, runtime};

#[test]
fn texts_that_mean_alike_point_alike() {
    let mut embedder = Embedder::open(&runtime(), &model("minilm-l6-v2")).expect("weights");
    let texts = [
        "The train to the airport is late.",
        "Our railway journey is delayed.",
        "Add two spoons of sugar and stir.",
        "",
    ]
    .map(String::from);
    let all = embedder.run(&texts).expect("embeds");
    assert_eq!(all.len(), texts.len());
    for e in &all {
        assert_eq!(e.len(), EMBEDDING_WIDTH);
        assert!((similarity(e, e) - 1.0).abs() < 1e-3, "of length one");
    }
    let (alike, apart) = (similarity(&all[0], &all[1]), similarity(&all[0], &all[2]));
    println!("alike {alike:.2}, apart {apart:.2}");
    assert!(alike > 0.5 && apart < 0.2, "{alike} {apart}");

    let alone = embedder.run(&texts[..1]).expect("embeds");
    assert!(similarity(&alone[0], &all[0]) > 0.999, "padding changes nothing");
    assert!(embedder.run(&[]).expect("nothing to do").is_empty());
    let long = "railway station ".repeat(2_000);
    assert_eq!(embedder.run(&[long]).expect("is cut").len(), 1);
}
