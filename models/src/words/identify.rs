//! Which language a written text is in: letters and trigrams (`whatlang`), with a hand for short English.

use whatlang::{Lang, detect};

use super::text::{is_stop_word, words};

/// Below this many letters, only scripts of a single language tell anything.
const LETTERS_MIN: usize = 12;

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
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let found = detect(text);
    let one_language = found.as_ref().is_some_and(|f| f.confidence() >= 1.0) && !is_latin(text);
    if letters < LETTERS_MIN && !one_language {
        return None;
    }
    // Trigrams of a short sentence say little; its little words say a lot.
    let (mut total, mut little) = (0u32, 0u32);
    for word in words(text).filter(|w| w.is_ascii()) {
        total += 1;
        little += u32::from(is_stop_word(word));
    }
    let share = if total >= 3 { little as f32 / total as f32 } else { 0.0 };
    match found {
        Some(f) if f.lang() == Lang::Eng => {
            let confidence = (f.confidence() as f32).max(share);
            Some(TextLanguage { language: "en", confidence: confidence.min(1.0) })
                .filter(|l| f.is_reliable() || l.confidence >= 0.3)
        }
        Some(f) if f.is_reliable() && share < 0.5 => {
            Some(TextLanguage { language: code(f.lang()), confidence: f.confidence() as f32 })
        }
        _ if share >= 0.4 => Some(TextLanguage { language: "en", confidence: share }),
        _ => None,
    }
}

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
