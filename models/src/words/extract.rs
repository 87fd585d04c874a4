//! What a text is about, in its own words: keywords, its most telling sentence, and the check that a summary
//! says nothing that its source does not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::stop::is_stop_word;
use super::text::{sentences, stem, words};

/// Longest keyword, in words.
const PHRASE_WORDS_MAX: usize = 3;
/// Share of a summary's content words that its source must hold.
const SUPPORT_MIN: f64 = 0.8;

/// At most `max` words and phrases that tell most about `text`, best first: RAKE (Rose and others, 2010) over
/// stems. A phrase is a run of content words; it scores by how often and with how many others its words occur.
pub fn keywords(text: &str, max: usize) -> Vec<String> {
    let phrases = phrases(text);
    let mut frequency: HashMap<&str, f64> = HashMap::new();
    let mut degree: HashMap<&str, f64> = HashMap::new();
    for phrase in &phrases {
        for stem in &phrase.stems {
            *frequency.entry(stem).or_default() += 1.0;
            *degree.entry(stem).or_default() += phrase.stems.len() as f64;
        }
    }
    // Same stems, same keyword: the first form that was seen stands for all.
    let mut distinct: BTreeMap<&[String], (f64, usize)> = BTreeMap::new();
    for (i, phrase) in phrases.iter().enumerate() {
        distinct.entry(&phrase.stems).or_insert((0.0, i)).0 += 1.0;
    }
    let mut scored: Vec<(f64, usize)> = distinct
        .into_iter()
        .map(|(stems, (times, first))| {
            let sum: f64 = stems
                .iter()
                .map(|s| {
                    let (f, d) = (frequency.get(s.as_str()), degree.get(s.as_str()));
                    let (f, d) = (f.copied().unwrap_or(1.0), d.copied().unwrap_or(1.0));
                    // Plain RAKE divides once more by the frequency and so forgets what is said often.
                    d / f.sqrt()
                })
                .sum();
            // Long phrases are not better for being long.
            (sum / (stems.len() as f64).sqrt() * times.sqrt(), first)
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));

    let mut chosen: Vec<&Phrase> = Vec::new();
    for (_, i) in scored {
        let Some(phrase) = phrases.get(i) else { continue };
        if chosen.len() == max {
            break;
        }
        let known = chosen.iter().any(|c| phrase.stems.iter().all(|s| c.stems.contains(s)));
        if !known {
            chosen.push(phrase);
        }
    }
    chosen.into_iter().map(|phrase| phrase.text.clone()).collect()
}

struct Phrase {
    /// As written first, lower case unless it is a name.
    text: String,
    stems: Vec<String>,
}

fn phrases(text: &str) -> Vec<Phrase> {
    let mut phrases = Vec::new();
    for sentence in sentences(text) {
        for (clause_index, clause) in
            sentence.split([',', ';', ':', '(', ')', '"', '“', '”', '–', '—']).enumerate()
        {
            let mut run: Vec<String> = Vec::new();
            for (i, word) in words(clause).enumerate() {
                let number = word.chars().all(|c| c.is_ascii_digit());
                if is_stop_word(word) || number || word.chars().count() < 2 {
                    flush(&mut run, &mut phrases);
                } else {
                    let first = clause_index == 0 && i == 0;
                    run.push(if first && !is_upper(word) {
                        word.to_lowercase()
                    } else {
                        word.to_owned()
                    });
                }
            }
            flush(&mut run, &mut phrases);
        }
    }
    phrases
}

fn flush(run: &mut Vec<String>, phrases: &mut Vec<Phrase>) {
    for part in run.chunks(PHRASE_WORDS_MAX) {
        phrases
            .push(Phrase { text: part.join(" "), stems: part.iter().map(|w| stem(w)).collect() });
    }
    run.clear();
}

fn is_upper(word: &str) -> bool {
    word.chars().filter(|c| c.is_alphabetic()).all(char::is_uppercase)
}

/// The sentence of `text` that says most of what the others say too; none without words. Of equals the first.
pub fn best_sentence(text: &str) -> Option<&str> {
    let sentences = sentences(text);
    let contents: Vec<BTreeSet<String>> = sentences.iter().map(|s| content(s)).collect();
    let mut spread: HashMap<&str, f64> = HashMap::new();
    for stem in contents.iter().flatten() {
        *spread.entry(stem).or_default() += 1.0;
    }
    let score = |content: &BTreeSet<String>| -> f64 {
        let sum: f64 = content.iter().filter_map(|s| spread.get(s.as_str())).sum();
        // Dampens length: a sentence of four content words is as good as one of twelve.
        sum / (content.len() as f64 + 3.0)
    };
    let mut best: Option<(f64, &str)> = None;
    for (sentence, content) in sentences.iter().zip(&contents) {
        let score = score(content);
        if best.is_none_or(|(b, _)| score > b) {
            best = Some((score, *sentence));
        }
    }
    best.map(|(_, sentence)| sentence)
}

/// Whether `source` holds what `summary` says: four fifths of its content words, every number, every name and
/// every denial. Word forms may differ. A summary without content words is not supported.
pub fn supported_by(summary: &str, source: &str) -> bool {
    let known = content(source);
    let said = content(summary);
    if said.is_empty() {
        return false;
    }
    let held = said.iter().filter(|s| known.contains(*s)).count();
    let must = |word: &str| known.contains(&stem(word));
    let numbers = words(summary).filter(|w| w.chars().any(|c| c.is_ascii_digit())).all(must);
    let names = names(summary).all(must);
    let denial = !denies(summary) || denies(source);
    held as f64 >= said.len() as f64 * SUPPORT_MIN && numbers && names && denial
}

/// Stems of the words that mean something.
fn content(text: &str) -> BTreeSet<String> {
    words(text).filter(|w| !is_stop_word(w)).map(stem).filter(|s| !s.is_empty()).collect()
}

/// Words with a capital that do not begin a sentence.
fn names(text: &str) -> impl Iterator<Item = &str> {
    sentences(text).into_iter().flat_map(|s| {
        words(s)
            .skip(1)
            .filter(|w| w.chars().next().is_some_and(char::is_uppercase) && !is_stop_word(w))
    })
}

fn denies(text: &str) -> bool {
    words(text).any(|w| {
        let w = w.to_lowercase().replace('’', "'");
        w.ends_with("n't")
            || matches!(
                w.as_str(),
                "not" | "no" | "never" | "none" | "nobody" | "without" | "cannot"
            )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEWS: &str = "Good evening. The city council announced a new plan for the central train station. \
        The train station will be closed for two weeks in March. Passengers are asked to use the buses instead. \
        The council said that the old roof of the station is dangerous. Ms. Rivera, the mayor, thanked everyone.";

    #[test]
    fn keywords_are_what_it_is_about() {
        let found = keywords(NEWS, 5);
        assert_eq!(found.len(), 5);
        assert!(found.iter().any(|k| k.contains("train station")), "{found:?}");
        assert!(found.iter().any(|k| k.contains("council")), "{found:?}");
        assert_eq!(found, keywords(NEWS, 5));
        assert_eq!(keywords(NEWS, 2), found[..2]);
        assert!(keywords("and so it is what it is", 5).is_empty());
        assert!(keywords("", 5).is_empty());
        assert!(keywords(NEWS, 0).is_empty());
    }

    #[test]
    fn forms_of_a_word_are_one_keyword() {
        let found = keywords("Trains, and the train. A train is what they all want.", 5);
        assert_eq!(found, ["trains"]);
    }

    #[test]
    fn the_best_sentence_says_what_others_say_too() {
        let best = best_sentence(NEWS).expect("sentences");
        assert!(best.contains("station") && best.contains("announced"), "{best}");
        assert_eq!(best_sentence("Hello there"), Some("Hello there"));
        assert_eq!(best_sentence(" … "), None);
    }

    #[test]
    fn a_summary_may_say_only_what_was_said() {
        for good in [
            "The train station closes for two weeks in March.",
            "The mayor Rivera thanked everyone.",
            "The council announces a plan for the station.",
        ] {
            assert!(supported_by(good, NEWS), "{good}");
        }
        for (bad, why) in [
            ("The airport was destroyed by a storm.", "other content"),
            ("The train station will be closed for 3 weeks in March.", "another number"),
            ("The mayor Gonzalez thanked the council for the station plan.", "another name"),
            ("The train station will not be closed.", "a denial"),
            ("It is what it is.", "nothing"),
            ("", "nothing"),
        ] {
            assert!(!supported_by(bad, NEWS), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC{0,200}", max in 0usize..8) {
            let found = keywords(&text, max);
            prop_assert!(found.len() <= max);
            prop_assert!(found.iter().all(|k| !k.is_empty()));
            if let Some(best) = best_sentence(&text) {
                prop_assert!(text.contains(best));
            }
            supported_by(&text, &text);
        }
    }
}
