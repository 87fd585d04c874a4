//! On-screen text of one window: each line once, in reading order.

use media::{Rect, ScreenLine};

/// Lines kept in one window.
const LINES_MAX: usize = 128;
/// Characters kept of one line: nobody writes a longer one on a screen.
const CHARS_MAX: usize = 512;
/// Overlap from which the same words in two frames are the same line.
const SAME_IOU_MIN: f32 = 0.2;

#[derive(Clone, Debug)]
struct Line {
    /// The words, folded.
    key: String,
    last_rect: Rect,
    best: ScreenLine,
}

/// Lines of one window.
#[derive(Clone, Debug, Default)]
pub(super) struct Screen(Vec<Line>);

impl Screen {
    /// Takes in one frame's lines.
    pub(super) fn add(&mut self, lines: Vec<ScreenLine>) {
        for mut line in lines {
            let Rect(x, y, w, h) = line.rect;
            let finite = [x, y, w, h, line.score].iter().all(|v| v.is_finite());
            if let Some((cut, _)) = line.text.char_indices().nth(CHARS_MAX) {
                line.text.truncate(cut);
            }
            let key = line.folded();
            if !finite || key.is_empty() {
                continue;
            }
            line.score = line.score.clamp(0.0, 1.0);
            let same =
                |have: &&mut Line| have.key == key && have.last_rect.iou(line.rect) >= SAME_IOU_MIN;
            let room = self.0.len() < LINES_MAX;
            match self.0.iter_mut().find(same) {
                Some(have) => {
                    have.last_rect = line.rect;
                    if line.score > have.best.score {
                        have.best = line;
                    }
                }
                None if room => {
                    self.0.push(Line { key, last_rect: line.rect, best: line });
                }
                None => {}
            }
        }
    }

    /// Top to bottom, and left to right where lines stand side by side.
    pub(super) fn lines(&self) -> Vec<ScreenLine> {
        let mut lines: Vec<ScreenLine> = self.0.iter().map(|line| line.best.clone()).collect();
        lines.sort_by(|a, b| middle(a).total_cmp(&middle(b)).then(a.pts_ms.cmp(&b.pts_ms)));
        let mut from = 0;
        while from < lines.len() {
            let row = &lines[from];
            let reach = middle(row) + row.rect.3 / 2.0;
            let to = from + 1 + lines[from + 1..].iter().take_while(|l| middle(l) < reach).count();
            lines[from..to]
                .sort_by(|a, b| a.rect.0.total_cmp(&b.rect.0).then(a.pts_ms.cmp(&b.pts_ms)));
            from = to;
        }
        lines
    }
}

fn middle(line: &ScreenLine) -> f32 {
    line.rect.1 + line.rect.3 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, score: f32, x: f32, y: f32, pts_ms: i64) -> ScreenLine {
        ScreenLine { text: text.into(), score, rect: Rect(x, y, 0.2, 0.05), pts_ms }
    }

    fn texts(screen: &Screen) -> Vec<String> {
        screen.lines().into_iter().map(|l| l.text).collect()
    }

    #[test]
    fn a_line_that_stays_is_one_line_in_its_best_reading() {
        let mut screen = Screen::default();
        screen.add(vec![line("GATE 7", 0.8, 0.1, 0.1, 0)]);
        screen.add(vec![line("GATE7", 0.95, 0.11, 0.1, 500), line("...", 0.9, 0.5, 0.1, 500)]);
        screen.add(vec![line("Gate 7.", 0.7, 0.13, 0.1, 900)]);
        let lines = screen.lines();
        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].text.as_str(), lines[0].pts_ms), ("GATE7", 500));
    }

    #[test]
    fn the_same_words_in_two_places_are_two_lines() {
        let mut screen = Screen::default();
        screen.add(vec![line("EXIT", 0.9, 0.1, 0.1, 0), line("EXIT", 0.9, 0.7, 0.1, 0)]);
        assert_eq!(texts(&screen), ["EXIT", "EXIT"]);
    }

    #[test]
    fn lines_come_in_reading_order() {
        let mut screen = Screen::default();
        screen.add(vec![
            line("below", 0.9, 0.0, 0.8, 0),
            line("right", 0.9, 0.6, 0.09, 0),
            line("left", 0.9, 0.1, 0.10, 0),
            line("中文", 0.9, 0.1, 0.5, 0),
        ]);
        assert_eq!(texts(&screen), ["left", "right", "中文", "below"]);
    }

    #[test]
    fn lines_are_bounded_in_number_and_length() {
        let mut screen = Screen::default();
        screen.add((0..500).map(|i| line(&format!("line {i}"), 0.9, 0.0, i as f32, 0)).collect());
        assert_eq!(screen.lines().len(), LINES_MAX);
        let mut long = Screen::default();
        long.add(vec![
            line(&"é".repeat(2_000), 0.9, 0.0, 0.0, 0),
            line("x", f32::NAN, 0.0, 0.0, 0),
        ]);
        assert_eq!(long.lines().len(), 1);
        assert_eq!(long.lines()[0].text.chars().count(), CHARS_MAX);
    }
}
