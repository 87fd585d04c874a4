//! Finds stop texts in streamed text. Holds back what may yet become one, so that none is ever shown in part.

/// Watches a stream for stop texts.
#[derive(Clone, Debug, Default)]
pub(super) struct StopScanner {
    stops: Vec<String>,
    held: String,
}

impl StopScanner {
    /// Empty stop texts are left out.
    pub(super) fn new(stops: Vec<String>) -> Self {
        StopScanner {
            stops: stops.into_iter().filter(|s| !s.is_empty()).collect(),
            held: String::new(),
        }
    }

    /// Takes more text; gives what can be shown, and whether a stop text ended it.
    pub(super) fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Takes more text that nothing in can end: gives all of it, after what was held back.
    pub(super) fn pass(&mut self, text: &str) -> String {
        self.held.push_str(text);
        self.finish()
    }

    /// The text ended otherwise: what was held back belongs to it.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length of the longest end of `text` with which `stop` begins.
fn overlap(text: &str, stop: &str) -> usize {
    (1..stop.len().min(text.len() + 1))
        .rev()
        .find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stop_text_in_pieces_is_never_shown() {
        let mut scanner = StopScanner::new(vec!["\nText:".into(), String::new()]);
        assert_eq!(scanner.push("late.\nTe"), ("late.".into(), false));
        assert_eq!(scanner.push("a\nT"), ("\nTea".into(), false));
        assert_eq!(scanner.push("ext: more"), (String::new(), true));
    }

    #[test]
    fn a_stop_text_in_what_must_be_said_ends_nothing() {
        let mut scanner = StopScanner::new(vec!["ab".into()]);
        assert_eq!(scanner.push("xa"), ("x".into(), false));
        assert_eq!(scanner.pass("b, ab"), "ab, ab");
        assert_eq!(scanner.push("ab"), (String::new(), true));
    }

    proptest! {
        #[test]
        fn streaming_equals_searching_the_whole(text in "[abé\n]{0,30}", stop in "[abé\n]{1,3}", cut in 0usize..30) {
            let want = text.find(&stop).map_or(text.as_str(), |at| &text[..at]).to_owned();
            let cut = (0..=cut.min(text.len())).rev().find(|&c| text.is_char_boundary(c)).unwrap();
            let mut scanner = StopScanner::new(vec![stop]);
            let mut out = String::new();
            let mut stopped = false;
            for piece in [&text[..cut], &text[cut..]] {
                if !stopped {
                    let (more, end) = scanner.push(piece);
                    out += &more;
                    stopped = end;
                }
            }
            if !stopped { out += &scanner.finish(); }
            prop_assert_eq!(out, want);
        }
    }
}
