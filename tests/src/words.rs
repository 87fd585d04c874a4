//! Comparing what was said with what was heard.

/// What is said in `jfk.wav`.
pub const JFK: &str = "And so my fellow Americans, ask not what your country can do for you, \
                       ask what you can do for your country.";

/// Lower-case words without punctuation.
pub fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Upper-case letters and digits only: recognisers differ in where they put spaces.
pub fn glyphs(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_uppercase).collect()
}

/// Word errors (substitutions, deletions, insertions) of `heard` against `said`, and the number of words said.
pub fn word_errors(said: &str, heard: &str) -> (usize, usize) {
    let (said, heard) = (words(said), words(heard));
    let mut row: Vec<usize> = (0..=heard.len()).collect();
    for (i, s) in said.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, h) in heard.iter().enumerate() {
            let substituted = diagonal + usize::from(s != h);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    (row[heard.len()], said.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_substitutions_deletions_and_insertions() {
        assert_eq!(word_errors("ask not what", "Ask, not what!"), (0, 3));
        assert_eq!(word_errors("ask not what", "ask now what"), (1, 3));
        assert_eq!(word_errors("ask not what", "ask what"), (1, 3));
        assert_eq!(word_errors("ask not what", "so ask not what"), (1, 3));
        assert_eq!(word_errors("ask not what", ""), (3, 3));
        assert_eq!(word_errors("", "ask not"), (2, 0));
    }

    #[test]
    fn glyphs_ignore_spacing_and_case() {
        assert_eq!(glyphs("Gate 7"), "GATE7");
        assert_eq!(glyphs("请勿 靠近"), "请勿靠近");
    }
}
