//! Which language a written text is in: letters and trigrams (`whatlang`), and for short texts the little words
//! that every sentence of a language has.

use whatlang::{Lang, detect};

use super::stop::is_stop_word;
use super::text::words;

/// Below this many letters, only scripts of a single language tell anything.
const LETTERS_MIN: usize = 12;
/// Share of little words that tells a language by itself …
const LITTLE_ALONE: f32 = 0.4;
/// … and when trigrams guess the same.
const LITTLE_AGREEING: f32 = 0.2;

/// A language with how sure that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextLanguage {
    /// ISO 639-1; ISO 639-3 for the few languages without such a code.
    pub language: &'static str,
    /// 0..1.
    pub confidence: f32,
}

/// The language of `text`; none when it can't be told, as with a name or a number.
pub fn language_of_text(text: &str) -> Option<TextLanguage> {
    let found = detect(text)?;
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    if letters < LETTERS_MIN && (is_latin(text) || found.confidence() < 1.0) {
        return None;
    }
    let (trigrams, confidence) = (code(found.lang()), found.confidence() as f32);
    let little = by_little_words(text);
    let enough = |share: f32| share >= LITTLE_ALONE;
    let agree = |language: &str, share: f32| share >= LITTLE_AGREEING && language == trigrams;
    match little {
        Some((language, share)) if enough(share) || agree(language, share) => {
            let sure = if language == trigrams { share.max(confidence) } else { share };
            Some(TextLanguage { language, confidence: sure.clamp(0.0, 1.0) })
        }
        _ if found.is_reliable() => {
            Some(TextLanguage { language: trigrams, confidence: confidence.clamp(0.0, 1.0) })
        }
        _ => None,
    }
}

/// The language with most little words, with their share of all words.
fn by_little_words(text: &str) -> Option<(&'static str, f32)> {
    let words: Vec<String> = words(text).map(str::to_lowercase).collect();
    if words.len() < 3 {
        return None;
    }
    let share = |known: &dyn Fn(&str) -> bool| {
        words.iter().filter(|w| known(w)).count() as f32 / words.len() as f32
    };
    let mut best = ("en", share(&is_stop_word));
    for (language, little) in LITTLE_WORDS {
        let share = share(&|w: &str| little.contains(&w));
        if share > best.1 {
            best = (language, share);
        }
    }
    Some(best)
}

/// Most frequent words of languages that are easily confused in short texts; English has its stop words.
const LITTLE_WORDS: &[(&str, &[&str])] = &[
    (
        "de",
        &[
            "der", "die", "das", "und", "ist", "nicht", "ein", "eine", "einen", "zu", "mit", "auf",
            "von", "im", "den", "dem", "für", "sich", "auch", "es", "ich", "sie", "wir", "hat",
            "um", "am", "bei",
        ],
    ),
    (
        "fr",
        &[
            "le", "la", "les", "de", "des", "du", "un", "une", "et", "est", "en", "à", "que",
            "qui", "dans", "pour", "pas", "sur", "il", "elle", "nous", "vous", "je", "ce", "ne",
            "au", "avec", "plus",
        ],
    ),
    (
        "es",
        &[
            "el", "la", "los", "las", "de", "del", "un", "una", "y", "es", "en", "que", "por",
            "para", "con", "no", "se", "su", "al", "lo", "como", "más", "está", "ha", "muy",
        ],
    ),
    (
        "it",
        &[
            "il", "la", "lo", "gli", "le", "di", "del", "della", "un", "una", "e", "è", "in",
            "che", "per", "con", "non", "si", "al", "sono", "ha", "anche", "più", "nel", "da",
        ],
    ),
    (
        "pt",
        &[
            "o", "os", "as", "de", "do", "da", "dos", "um", "uma", "e", "é", "em", "que", "por",
            "para", "com", "não", "se", "ao", "no", "na", "mais", "está", "seu",
        ],
    ),
    (
        "nl",
        &[
            "de", "het", "een", "en", "van", "is", "in", "op", "te", "dat", "niet", "met", "voor",
            "zijn", "aan", "er", "maar", "ook", "naar", "bij", "wij", "ik", "uit",
        ],
    ),
];

fn is_latin(text: &str) -> bool {
    text.chars().filter(|c| c.is_alphabetic()).all(|c| (c as u32) < 0x250)
}

/// ISO 639-1 of the languages that have one.
fn code(language: Lang) -> &'static str {
    let three = language.code();
    CODES.iter().find(|(from, _)| *from == three).map_or(three, |(_, two)| two)
}

const CODES: &[(&str, &str)] = &[
    ("epo", "eo"),
    ("eng", "en"),
    ("rus", "ru"),
    ("cmn", "zh"),
    ("spa", "es"),
    ("por", "pt"),
    ("ita", "it"),
    ("ben", "bn"),
    ("fra", "fr"),
    ("deu", "de"),
    ("ukr", "uk"),
    ("kat", "ka"),
    ("ara", "ar"),
    ("hin", "hi"),
    ("jpn", "ja"),
    ("heb", "he"),
    ("yid", "yi"),
    ("pol", "pl"),
    ("amh", "am"),
    ("jav", "jv"),
    ("kor", "ko"),
    ("nob", "nb"),
    ("dan", "da"),
    ("swe", "sv"),
    ("fin", "fi"),
    ("tur", "tr"),
    ("nld", "nl"),
    ("hun", "hu"),
    ("ces", "cs"),
    ("ell", "el"),
    ("bul", "bg"),
    ("bel", "be"),
    ("mar", "mr"),
    ("kan", "kn"),
    ("ron", "ro"),
    ("slv", "sl"),
    ("hrv", "hr"),
    ("srp", "sr"),
    ("mkd", "mk"),
    ("lit", "lt"),
    ("lav", "lv"),
    ("est", "et"),
    ("tam", "ta"),
    ("vie", "vi"),
    ("urd", "ur"),
    ("tha", "th"),
    ("guj", "gu"),
    ("uzb", "uz"),
    ("pan", "pa"),
    ("aze", "az"),
    ("ind", "id"),
    ("tel", "te"),
    ("pes", "fa"),
    ("mal", "ml"),
    ("ori", "or"),
    ("mya", "my"),
    ("nep", "ne"),
    ("sin", "si"),
    ("khm", "km"),
    ("tuk", "tk"),
    ("aka", "ak"),
    ("zul", "zu"),
    ("sna", "sn"),
    ("afr", "af"),
    ("lat", "la"),
    ("slk", "sk"),
    ("cat", "ca"),
    ("tgl", "tl"),
    ("hye", "hy"),
    ("cym", "cy"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_told_apart() {
        for (text, language) in [
            ("The train is late.", "en"),
            (
                "Ask not what your country can do for you, ask what you can do for your country.",
                "en",
            ),
            (
                "Gestern hat die Regierung einen neuen Plan angekündigt, um die Kosten zu senken.",
                "de",
            ),
            (
                "Hier, le gouvernement a annoncé un nouveau plan pour réduire le coût de l'énergie.",
                "fr",
            ),
            ("Ayer el gobierno anunció un nuevo plan para reducir el coste de la energía.", "es"),
            ("Вчера правительство объявило новый план по снижению стоимости энергии.", "ru"),
            ("今天政府宣布了一项新计划", "zh"),
            ("こんにちは、元気ですか", "ja"),
            ("안녕하세요", "ko"),
        ] {
            let found = language_of_text(text).unwrap_or_else(|| panic!("{text}: none"));
            assert_eq!(found.language, language, "{text}");
            assert!((0.0..=1.0).contains(&found.confidence));
        }
    }

    #[test]
    fn too_little_tells_nothing() {
        for text in ["", "GATE 7", "12:45", "Rivera"] {
            assert_eq!(language_of_text(text), None, "{text}");
        }
    }

    #[test]
    fn every_language_has_a_code() {
        for language in Lang::all() {
            assert_eq!(code(*language).len(), 2, "{language:?}");
        }
    }
}
