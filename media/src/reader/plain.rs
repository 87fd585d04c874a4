//! Subtitle markup to plain text. Pure.

/// Longest text of one entry, in bytes; a longer one is cut (a subtitle track may carry anything).
const TEXT_MAX: usize = 4_096;

/// Text of one ASS dialogue line as ffmpeg's text decoders write it: eight fields, then the text.
pub(super) fn from_ass(line: &str) -> String {
    let text = line.splitn(9, ',').nth(8).unwrap_or(line);
    let mut plain = String::with_capacity(text.len().min(TEXT_MAX));
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if plain.len() >= TEXT_MAX {
            break;
        }
        match c {
            // An override block; one that never closes is text.
            '{' => match rest.as_str().find('}') {
                Some(close) => rest = rest.as_str()[close + 1..].chars(),
                None => plain.push(c),
            },
            '\\' => match rest.clone().next() {
                Some('N' | 'n') => {
                    rest.next();
                    plain.push('\n');
                }
                Some('h') => {
                    rest.next();
                    plain.push(' ');
                }
                _ => plain.push(c),
            },
            '\r' => {}
            c if c.is_control() && c != '\n' => plain.push(' '),
            c => plain.push(c),
        }
    }
    let lines = plain.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_goes_and_words_stay() {
        for (line, want) in [
            ("0,0,Default,,0,0,0,,Hello, world", "Hello, world"),
            (
                r"1,0,Default,,0,0,0,,{\i1}To the left{\i0}\NTo the right",
                "To the left\nTo the right",
            ),
            (r"2,0,Default,,0,0,0,,a\hb \N \N c", "a b\nc"),
            ("3,0,Default,,0,0,0,,brace { left open", "brace { left open"),
            ("no fields", "no fields"),
            ("4,0,Default,,0,0,0,,bell\u{7}\r", "bell"),
            (r"5,0,Default,,0,0,0,,C:\temp", r"C:\temp"),
        ] {
            assert_eq!(from_ass(line), want);
        }
    }

    #[test]
    fn text_is_bounded() {
        let long = format!("0,0,D,,0,0,0,,{}", "ж".repeat(10_000));
        assert!(from_ass(&long).len() <= TEXT_MAX + 4);
    }
}
