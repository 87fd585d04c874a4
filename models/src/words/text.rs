//! Sentences, words and stems: what the rest of this folder is built on.

/// Sentences of `text` in order, trimmed, none empty. Ends are `.`, `!`, `?`, `…` and their full-width forms, and
/// line breaks; points inside numbers, abbreviations and initials are none.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = at + c.len_utf8();
        let ends = match c {
            '\n' | '。' | '！' | '？' => true,
            '.' | '!' | '?' | '…' => {
                // Closing quotes and further marks belong to it.
                let next = text.get(after..).unwrap_or_default().chars().next();
                let more = matches!(next, Some('.' | '!' | '?' | '…' | '"' | '”' | '’' | ')'));
                !more && ends_sentence(text.get(start..at).unwrap_or_default(), c, next)
            }
            '"' | '”' | ')' => {
                let before = text.get(start..at).unwrap_or_default();
                let next = text.get(after..).unwrap_or_default().chars().next();
                before.ends_with(['.', '!', '?', '…']) && next.is_none_or(char::is_whitespace)
            }
            _ => false,
        };
        if ends || chars.peek().is_none() {
            let sentence = text.get(start..after).unwrap_or_default().trim();
            if sentence.chars().any(char::is_alphanumeric) {
                found.push(sentence);
            }
            start = after;
        }
    }
    found
}

fn ends_sentence(before: &str, mark: char, next: Option<char>) -> bool {
    if next.is_some_and(|n| !n.is_whitespace()) {
        return false;
    }
    if mark != '.' {
        return true;
    }
    let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase) && word != "I";
    !(initial || ABBREVIATIONS.contains(&word.to_lowercase().as_str()))
}

const ABBREVIATIONS: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "no", "e.g", "i.e", "approx", "gen",
    "sen", "rep", "gov", "capt", "lt", "col", "sgt", "inc", "ltd", "co", "fig", "vol",
];

/// Words in order, with apostrophes and hyphens inside them.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '’' | '-')))
        .map(|w| w.trim_matches(['\'', '’', '-']))
        .filter(|w| !w.is_empty())
}

/// A word as it is compared: lower case, without plural, tense and adverb endings. Not a word itself.
pub(super) fn stem(word: &str) -> String {
    let mut word = word.to_lowercase().replace('’', "'");
    if let Some(i) = word.find('\'') {
        word.truncate(i);
    }
    // News is not the plural of new.
    if !word.is_ascii() || word.len() <= 3 || word == "news" {
        return word;
    }
    for (ending, instead) in [("sses", "ss"), ("ies", "i"), ("ied", "i"), ("ily", "i"), ("ly", "")]
    {
        if word.len() >= ending.len() + 2 && word.ends_with(ending) {
            word.truncate(word.len() - ending.len());
            word.push_str(instead);
            return finished(word);
        }
    }
    if word.ends_with('s')
        && !word.ends_with("ss")
        && !word.ends_with("us")
        && !word.ends_with("is")
    {
        word.pop();
    }
    for ending in ["ing", "ed", "er"] {
        let Some(root) = word.strip_suffix(ending) else { continue };
        if root.len() >= 3 && root.contains(['a', 'e', 'i', 'o', 'u', 'y']) {
            let root = root.to_owned();
            return finished(single(root));
        }
    }
    finished(word)
}

/// `runn` → `run`, but `fall`, `miss` and `buzz` stay.
fn single(mut root: String) -> String {
    let mut last = root.bytes().rev();
    if let (Some(a), Some(b)) = (last.next(), last.next())
        && a == b
        && !matches!(a, b'l' | b's' | b'z')
    {
        root.pop();
    }
    root
}

/// Without the letters that come and go with endings: `leave` and `leav`, `city` and `citi`.
fn finished(mut word: String) -> String {
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    if word.len() > 2
        && word.ends_with('y')
        && !word.ends_with("ay")
        && !word.ends_with("ey")
        && !word.ends_with("oy")
    {
        word.pop();
        word.push('i');
    }
    word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sentences_end_where_people_end_them() {
        assert_eq!(
            sentences(
                "Mr. Smith paid 3.50 dollars. \"Why?\" he said. J. F. Kennedy came (late!) Then left…"
            ),
            [
                "Mr. Smith paid 3.50 dollars.",
                "\"Why?\"",
                "he said.",
                "J. F. Kennedy came (late!)",
                "Then left…",
            ]
        );
        assert_eq!(sentences("no point at the end"), ["no point at the end"]);
        assert_eq!(sentences("今天下雨。明天晴天！"), ["今天下雨。", "明天晴天！"]);
        assert_eq!(sentences("GATE 7\n\nBOARDING"), ["GATE 7", "BOARDING"]);
        assert_eq!(sentences("So do I. And you?"), ["So do I.", "And you?"]);
        assert!(sentences(" ... !\n").is_empty());
    }

    #[test]
    fn stems_join_forms_of_a_word() {
        for forms in [
            &["announce", "announced", "announcing", "announces"][..],
            &["city", "cities", "city's"],
            &["run", "running", "runs"],
            &["leave", "leaves", "leaving"],
            &["quick", "quickly"],
            &["play", "played", "playing", "plays", "player"],
            &["study", "studied", "studies"],
            &["happy", "happily"],
        ] {
            for form in forms {
                assert_eq!(stem(form), stem(forms[0]), "{form}");
            }
        }
        assert_ne!(stem("news"), stem("new"), "short roots stay apart");
        assert_eq!(stem("bus"), "bus");
    }

    proptest! {
        #[test]
        fn sentences_lose_no_word(text in "[a-zA-Z0-9 .!?\"”)…。\n'’é-]{0,120}") {
            let joined = sentences(&text).join(" ");
            let before: String = text.chars().filter(|c| c.is_alphanumeric()).collect();
            let after: String = joined.chars().filter(|c| c.is_alphanumeric()).collect();
            prop_assert_eq!(before, after);
        }

        #[test]
        fn any_word_has_a_stem(word in "\\PC{0,20}") {
            stem(&word);
        }
    }
}
