//! Speech in other languages must not come out as invented English. Prints a confusion table.
//!
//! Voices: espeak-ng, English as a fair control. People, where the cache holds them: telephone prompts in
//! `media/prompts-{en,es,fr,it,ru}` (Debian `asterisk-core-sounds-*-g722`, CC-BY-SA), English and Spanish by the
//! same speaker. The thresholds were chosen on other recordings of the same voices.

#![expect(clippy::print_stdout, reason = "figures for people")]

mod speech_support;

use std::collections::BTreeMap;
use std::fs;

use models::speech::LanguageTracker;
use speech_support::{Ears, cache, decoded, jfk, librivox, spoken};

/// Of one group of recordings.
#[derive(Default)]
struct Row {
    /// Each a stream of its own: nothing to remember.
    alone: Count,
    /// All as one stream.
    together: Count,
}

/// Utterances with text, by verdict.
#[derive(Default)]
struct Count {
    supported: usize,
    refused: usize,
}

impl Count {
    fn share_supported(&self) -> f64 {
        self.supported as f64 / (self.supported + self.refused).max(1) as f64
    }

    fn add(&mut self, supported: bool) {
        if supported {
            self.supported += 1;
        } else {
            self.refused += 1;
        }
    }
}

#[test]
fn speech_in_another_language_is_never_published_as_english() {
    let mut ears = Ears::open();
    let mut table: BTreeMap<String, Row> = BTreeMap::new();
    for (group, clips) in groups() {
        let row = table.entry(group.clone()).or_default();
        let mut together = LanguageTracker::new("en", None);
        for clip in &clips {
            for (_, transcript, verdict) in ears.hear(clip) {
                if transcript.text.is_empty() {
                    continue;
                }
                row.alone.add(verdict.supported);
                row.together.add(together.observe(&transcript).supported);
                if verdict.supported != group.starts_with("en") {
                    println!("{group}: {:.2} {}", transcript.confidence, transcript.text);
                }
            }
        }
    }

    println!("{:<22} {:>16} {:>16}", "", "alone", "one stream");
    println!("{:<22} {:>8}{:>8} {:>8}{:>8}", "", "as en", "refused", "as en", "refused");
    let mut english = Row::default();
    let mut other = Row::default();
    for (group, row) in &table {
        let (a, t) = (&row.alone, &row.together);
        println!(
            "{group:<22} {:>8}{:>8} {:>8}{:>8}",
            a.supported, a.refused, t.supported, t.refused
        );
        let sum = if group.starts_with("en") { &mut english } else { &mut other };
        sum.alone.supported += a.supported;
        sum.alone.refused += a.refused;
        sum.together.supported += t.supported;
        sum.together.refused += t.refused;
    }
    for (name, row) in [("English", &english), ("other", &other)] {
        println!(
            "{name}: {:.1} % taken for English alone, {:.1} % in one stream",
            row.alone.share_supported() * 100.0,
            row.together.share_supported() * 100.0,
        );
    }
    assert!(english.alone.share_supported() >= 0.97);
    assert!(english.together.share_supported() >= 0.98);
    assert!(other.alone.share_supported() <= 0.03);
    assert!(other.together.share_supported() <= 0.01);
}

/// Group name, beginning with the language, and its clips.
fn groups() -> Vec<(String, Vec<Vec<f32>>)> {
    let mut groups = vec![
        ("en LibriVox".to_owned(), librivox().into_iter().map(|(_, pcm, _)| pcm).collect()),
        ("en jfk".to_owned(), vec![jfk()]),
    ];
    for (language, voices, sentences) in SENTENCES {
        let mut clips = Vec::new();
        for voice in *voices {
            for sentence in *sentences {
                clips.push(spoken(voice, 155, sentence));
            }
        }
        groups.push((format!("{language} espeak-ng"), clips));
    }
    for language in ["en", "es", "fr", "it", "ru"] {
        let dir = cache().join(format!("media/prompts-{language}"));
        let Ok(entries) = fs::read_dir(&dir) else {
            println!("{} is not there: left out", dir.display());
            continue;
        };
        let mut files: Vec<_> = entries.flatten().map(|e| e.path()).collect();
        files.sort();
        groups.push((format!("{language} prompts"), files.iter().map(|f| decoded(f)).collect()));
    }
    groups
}

/// Language, voices, sentences.
type Spoken = (&'static str, &'static [&'static str], &'static [&'static str]);

const SENTENCES: &[Spoken] = &[
    (
        "en",
        &["en-us", "en-gb"],
        &[
            "The weather will be sunny in the morning, with some rain in the evening.",
            "Our neighbours bought a house near the river because they like to fish.",
            "Please send the letter to the main office before the end of the month.",
            "The museum is open every day except Monday and entrance is free for children.",
        ],
    ),
    (
        "de",
        &["de", "de+f2"],
        &[
            "Das Wetter wird am Morgen sonnig, am Abend gibt es etwas Regen.",
            "Unsere Nachbarn haben ein Haus am Fluss gekauft, weil sie gerne angeln.",
            "Bitte schicken Sie den Brief vor Ende des Monats an das Hauptbüro.",
        ],
    ),
    (
        "fr",
        &["fr", "fr+f2"],
        &[
            "Le temps sera ensoleillé le matin, avec un peu de pluie le soir.",
            "Nos voisins ont acheté une maison près de la rivière parce qu'ils aiment pêcher.",
            "Veuillez envoyer la lettre au bureau principal avant la fin du mois.",
        ],
    ),
    (
        "es",
        &["es", "es+f2"],
        &[
            "El tiempo será soleado por la mañana, con algo de lluvia por la noche.",
            "Nuestros vecinos compraron una casa cerca del río porque les gusta pescar.",
            "Por favor, envíe la carta a la oficina principal antes de fin de mes.",
        ],
    ),
    (
        "it",
        &["it", "it+f2"],
        &[
            "Il tempo sarà soleggiato al mattino, con un po' di pioggia la sera.",
            "I nostri vicini hanno comprato una casa vicino al fiume perché amano pescare.",
            "Si prega di inviare la lettera all'ufficio principale entro la fine del mese.",
        ],
    ),
    (
        "ru",
        &["ru", "ru+f2"],
        &[
            "Утром будет солнечно, а вечером пройдёт небольшой дождь.",
            "Наши соседи купили дом у реки, потому что любят рыбачить.",
            "Пожалуйста, отправьте письмо в главный офис до конца месяца.",
        ],
    ),
    (
        "zh",
        &["cmn", "cmn+f2"],
        &[
            "早上天气晴朗,晚上有小雨。",
            "我们的邻居在河边买了一栋房子,因为他们喜欢钓鱼。",
            "请在月底之前把信寄到总办公室。",
        ],
    ),
    (
        "tr",
        &["tr", "tr+f2"],
        &[
            "Hava sabah güneşli, akşam ise biraz yağmurlu olacak.",
            "Komşularımız balık tutmayı sevdikleri için nehrin yanında bir ev aldılar.",
        ],
    ),
];
