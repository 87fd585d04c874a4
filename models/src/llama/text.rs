//! Tokens are bytes; readers want characters. Holds back a character until all its bytes are there.

/// Turns a stream of byte pieces into valid UTF-8 without ever splitting a character.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Nothing pending.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a piece, gives what is complete. Bytes that can't become a character turn into U+FFFD.
    pub fn push(&mut self, piece: &[u8]) -> String {
        self.pending.extend_from_slice(piece);
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    rest = &[];
                    break;
                }
                Err(e) => {
                    let (good, bad) = rest.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(good));
                    match e.error_len() {
                        Some(n) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = &bad[n..];
                        }
                        None => {
                            rest = bad;
                            break;
                        }
                    }
                }
            }
        }
        self.pending = rest.to_vec();
        text
    }

    /// Ends the stream: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self) -> String {
        let unfinished = !std::mem::take(&mut self.pending).is_empty();
        if unfinished { char::REPLACEMENT_CHARACTER.to_string() } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cutting_of_valid_text_gives_the_text(text in "\\PC{0,40}", cuts in prop::collection::vec(0usize..200, 0..8)) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let mut stream = Utf8Stream::new();
            let mut out = String::new();
            for pair in at.windows(2) {
                out += &stream.push(&bytes[pair[0]..pair[1]]);
            }
            out += &stream.finish();
            prop_assert_eq!(out, text);
        }

        #[test]
        fn any_bytes_are_taken(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..8)) {
            let whole: Vec<u8> = pieces.concat();
            let mut stream = Utf8Stream::new();
            let mut out: String = pieces.iter().map(|p| stream.push(p)).collect();
            out += &stream.finish();
            prop_assert_eq!(out, String::from_utf8_lossy(&whole));
        }
    }
}
