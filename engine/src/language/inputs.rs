//! What text there is, and what of it is put to a model or shown to a user. Pure.

use models::words;

use super::prompt::quoted;

/// Words of the text that decide its category: few, because each costs about 6 ms on one core.
const CATEGORY_WORDS_MAX: usize = 32;
/// A text shorter than this is its own summary.
pub(super) const SUMMARY_SOURCE_WORDS_MIN: usize = 7;
/// Words of the text that are summarised.
const SUMMARY_WORDS_MAX: usize = 160;

/// All text there is about a window or clip. All of it is data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextInputs {
    /// Given with the source.
    pub title: Option<String>,
    /// Ditto.
    pub description: Option<String>,
    /// What is said, finals in order.
    pub transcript: String,
    /// What is read on the screen.
    pub screen: String,
    /// Subtitle track.
    pub subtitles: String,
    /// ISO 639-1, when known.
    pub language: Option<String>,
}

impl TextInputs {
    /// All of it, one sentence after the other.
    pub fn whole(&self) -> String {
        let given = [self.title.as_deref(), self.description.as_deref()];
        let seen = [self.transcript.as_str(), &self.subtitles, &self.screen];
        let parts = given.into_iter().flatten().chain(seen).map(str::trim);
        let mut whole = String::new();
        for part in parts.filter(|p| !p.is_empty()) {
            if !whole.is_empty() {
                whole.push_str(if ends_a_sentence(&whole) { " " } else { ". " });
            }
            whole.push_str(part);
        }
        whole
    }

    /// Whether there is any word in it.
    pub fn is_empty(&self) -> bool {
        !self.whole().chars().any(char::is_alphanumeric)
    }
}

/// The newest words, with the title before them if it fits.
pub(super) fn category_text(inputs: &TextInputs) -> String {
    let title = quoted(inputs.title.as_deref().unwrap_or_default(), CATEGORY_WORDS_MAX / 2);
    let rest = TextInputs { title: None, ..inputs.clone() }.whole();
    let room = CATEGORY_WORDS_MAX - title.split_whitespace().count();
    let rest = quoted(&rest, room);
    match (title.is_empty(), rest.is_empty()) {
        (true, _) => rest,
        (false, true) => title,
        (false, false) if ends_a_sentence(&title) => format!("{title} {rest}"),
        (false, false) => format!("{title}. {rest}"),
    }
}

/// What a summary is made from: what is said, or what is read on the screen when that is more and little is said.
/// Never both, because a small model makes one story of what people say and of the signs behind them.
pub(super) fn summary_source(inputs: &TextInputs) -> String {
    let said = TextInputs { screen: String::new(), ..inputs.clone() }.whole();
    let (transcript, subtitles) = Default::default();
    let read = TextInputs { transcript, subtitles, ..inputs.clone() }.whole();
    let words = |text: &str| text.split_whitespace().count();
    let is_enough = words(&said) >= SUMMARY_SOURCE_WORDS_MIN || words(&said) >= words(&read);
    if is_enough { said } else { read }
}

/// The newest words, and whether others were left out.
pub(super) fn summary_text(source: &str) -> (String, bool) {
    let cut = source.split_whitespace().count() > SUMMARY_WORDS_MAX;
    (quoted(source, SUMMARY_WORDS_MAX), cut)
}

/// As it may be shown: one line, without controls that reach beyond it (text direction among them).
pub(super) fn shown(text: &str) -> String {
    let hidden = |c: &char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !hidden(c)).collect()
}

/// An answer that was cut off: up to its last sentence, else its last whole word.
pub(super) fn shortened(said: &str) -> String {
    let said = said.trim();
    if ends_a_sentence(said) {
        return said.to_owned();
    }
    if let Some(first) = words::sentences(said).first().filter(|s| ends_a_sentence(s)) {
        let end = said.find(first).map_or(0, |at| at + first.len());
        return said[..end].to_owned();
    }
    match said.rsplit_once(char::is_whitespace) {
        Some((whole_words, _)) => format!("{}…", whole_words.trim_end_matches([',', ';', ':'])),
        None => String::new(),
    }
}

fn ends_a_sentence(text: &str) -> bool {
    text.ends_with(['.', '!', '?', '…', '。', '！', '？'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_ends_at_a_whole_word() {
        for (said, want) in [
            (" A train is late. It will arr", "A train is late."),
            (" A train is late", "A train is…"),
            ("A train is late.", "A train is late."),
            ("A", ""),
        ] {
            assert_eq!(shortened(said), want);
        }
    }

    #[test]
    fn the_newest_words_decide_and_the_title_stays() {
        let inputs = TextInputs {
            title: Some("Street \"interview\"".into()),
            transcript: (0..100).map(|i| format!("w{i} ")).collect(),
            ..TextInputs::default()
        };
        let text = category_text(&inputs);
        assert!(text.starts_with("Street 'interview'. w70 ") && text.ends_with("w99"), "{text}");
        let (text, cut) = summary_text(&summary_source(&inputs));
        assert!(!cut && text.contains("w0"));
        assert!(TextInputs { screen: " … ".into(), ..TextInputs::default() }.is_empty());
    }

    #[test]
    fn signs_are_no_part_of_what_people_say() {
        let sign = TextInputs { screen: "TRAIN DELAYED".into(), ..TextInputs::default() };
        assert_eq!(summary_source(&sign), "TRAIN DELAYED");
        for (short, from) in
            [("My fellow Americans.", "My fellow Americans."), ("So.", "TRAIN DELAYED")]
        {
            let short = TextInputs { transcript: short.into(), ..sign.clone() };
            assert_eq!(summary_source(&short), from);
        }
        let transcript = "Ask what you can do for your country.".to_owned();
        let long = TextInputs { transcript: transcript.clone(), ..sign };
        assert_eq!(summary_source(&long), transcript);
    }

    #[test]
    fn parts_are_joined_as_sentences() {
        let inputs = TextInputs {
            title: Some("Gate".into()),
            transcript: "We wait.".into(),
            screen: "GATE 7".into(),
            ..TextInputs::default()
        };
        assert_eq!(inputs.whole(), "Gate. We wait. GATE 7");
    }
}
