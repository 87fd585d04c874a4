//! `ocr`: text on the screen

use std::sync::{Arc, Mutex, PoisonError};

use ::models::vision::{ReadText, TextArea, TextCrop};
use engine::{Answered, Class, JobEnd, Ticket};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use media::{Frame, Observation, Pts, Rect, ScreenLine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::Asked;

use super::ordered::FrameStage;
use super::thin::Thinner;
use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "ocr",
    about: "text on the screen",
    inputs: &[PortType::Frames],
    many: false,
    output: PortType::Screen,
    class: Class::TextInput,
    schema: schema_of::<OcrSettings>,
    parse: |value| parse(value, Settings::Ocr),
};

/// Settings of `ocr`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OcrSettings {
    /// Catalogue name.
    pub model: String,
    /// At most this many frames per second of media time.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: Option<f64>,
    /// Longest side the text detector sees, in pixels.
    #[schemars(range(min = 128, max = 1920))]
    pub side_max: u32,
    /// Lines below this mean character probability are left out.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub score_min: f32,
    /// At most this many lines of a frame, largest first.
    #[schemars(range(min = 1, max = 200))]
    pub lines_max: usize,
}

impl Default for OcrSettings {
    fn default() -> Self {
        OcrSettings {
            model: "ppocr-v5".into(),
            fps: Some(1.0),
            side_max: 480,
            score_min: 0.6,
            lines_max: 12,
        }
    }
}

/// Reading the screen: finds lines, and reads those that changed since the last frame.
pub(crate) struct ReadingText {
    reader: Reader,
    thin: Thinner,
}

#[derive(Clone)]
struct Reader {
    detector: Asked<Frame, Vec<TextArea>>,
    recognizer: Asked<TextCrop, ReadText>,
    score_min: f32,
    lines_max: usize,
    /// Lines of the last frame, with what they looked like.
    known: Arc<Mutex<Vec<Known>>>,
}

/// A line that was read, and how it looked.
#[derive(Clone)]
struct Known {
    rect: Rect,
    look: Look,
    read: ReadText,
}

/// Brightness of a line in 64 x 8 cells: the same text at the same place looks the same.
#[derive(Clone, PartialEq)]
struct Look([[u8; 64]; 8]);

/// Mean difference of an eighth of a line, in 0..255, up to which it has not changed. Compression moves it by two or
/// three; another letter among five by about ten.
const CHANGE_MAX: f32 = 6.0;
/// Overlap from which two boxes are the same place.
const PLACE_IOU_MIN: f32 = 0.7;

impl ReadingText {
    pub(crate) fn new(
        settings: &OcrSettings,
        detector: Asked<Frame, Vec<TextArea>>,
        recognizer: Asked<TextCrop, ReadText>,
    ) -> Self {
        ReadingText {
            reader: Reader {
                detector,
                recognizer,
                score_min: settings.score_min,
                lines_max: settings.lines_max,
                known: Arc::default(),
            },
            thin: Thinner::new(settings.fps),
        }
    }
}

impl FrameStage for ReadingText {
    type Answer = Vec<ScreenLine>;

    fn wants(&mut self, frame: &Frame) -> bool {
        self.thin.wants(frame)
    }

    fn ask(&mut self, ticket: Ticket, frame: Frame) -> BoxFuture<'static, JobEnd<Self::Answer>> {
        self.reader.clone().read(ticket, frame).boxed()
    }

    fn settle(&mut self, pts: Pts, lines: Vec<ScreenLine>) -> Observation {
        Observation::Screen { pts, lines }
    }
}

impl Reader {
    /// Two pieces of work with a lease each: where text is, then its lines, which batch with those of others.
    async fn read(self, ticket: Ticket, frame: Frame) -> JobEnd<Vec<ScreenLine>> {
        let mut found = match self.detector.ask(ticket.clone(), frame.clone()).await.answered() {
            Ok(found) => found,
            Err(end) => return end,
        };
        let areas = std::mem::take(&mut found.output);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut seen: Vec<Known> = Vec::with_capacity(areas.len());
        let mut asked = Vec::new();
        for area in areas.into_iter().take(self.lines_max) {
            let look = Look::of(&frame, area.rect);
            let same = known.iter().find(|known| {
                known.rect.iou(area.rect) >= PLACE_IOU_MIN
                    && known.look.differs(&look) <= CHANGE_MAX
            });
            match same {
                Some(known) => seen.push(Known { rect: area.rect, look, read: known.read.clone() }),
                None => asked.push((area.rect, look)),
            }
        }
        let answers = join_all(asked.iter().map(|(rect, _)| {
            let crop = TextCrop { frame: frame.clone(), rect: *rect };
            self.recognizer.ask(ticket.clone(), crop)
        }))
        .await;
        for ((rect, look), end) in asked.into_iter().zip(answers) {
            // Half a screen would look like a change of text: no answer rather than a part of one.
            let read = match end.answered() {
                Ok(read) => read,
                Err(end) => return end,
            };
            found.queue = found.queue.max(read.queue);
            found.compute += read.compute / read.batch.max(1);
            seen.push(Known { rect, look, read: read.output });
        }
        in_reading_order(&mut seen);
        let lines = seen
            .iter()
            .filter(|line| line.read.score >= self.score_min && !line.read.text.trim().is_empty())
            .map(|line| ScreenLine {
                text: line.read.text.clone(),
                score: line.read.score,
                rect: line.rect,
                pts_ms: frame.pts.ms(),
            })
            .collect();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        let Answered { queue, compute, batch, .. } = found;
        JobEnd::Done { output: lines, queue, compute, batch }
    }
}

/// Top to bottom; what overlaps in height by half is one row, left to right.
fn in_reading_order(lines: &mut [Known]) {
    lines.sort_by(|a, b| a.rect.1.total_cmp(&b.rect.1));
    let mut start = 0;
    while start < lines.len() {
        let row = lines[start].rect;
        let mut end = start + 1;
        while end < lines.len() && lines[end].rect.1 < row.1 + row.3 / 2.0 {
            end += 1;
        }
        lines[start..end].sort_by(|a, b| a.rect.0.total_cmp(&b.rect.0));
        start = end;
    }
}

impl Look {
    fn of(frame: &Frame, rect: Rect) -> Look {
        let (width, height) = (frame.width as usize, frame.height as usize);
        let at = |start: f32, size: f32, cell: usize, cells: usize, max: usize| {
            let place = (start + size * (cell as f32 + 0.5) / cells as f32) * max as f32;
            (place.max(0.0) as usize).min(max.saturating_sub(1))
        };
        let mut look = [[0; 64]; 8];
        for (row, cells) in look.iter_mut().enumerate() {
            let y = at(rect.1, rect.3, row, 8, height);
            for (column, cell) in cells.iter_mut().enumerate() {
                let x = at(rect.0, rect.2, column, 64, width);
                let pixel = (y * width + x) * 3;
                // Green is most of what is seen as brightness.
                *cell = frame.pixels.get(pixel + 1).copied().unwrap_or_default();
            }
        }
        Look(look)
    }

    /// Of the eighth of the line that differs most.
    fn differs(&self, other: &Look) -> f32 {
        let mut sums = [0_u32; 8];
        for (row, others) in self.0.iter().zip(&other.0) {
            for (column, (a, b)) in row.iter().zip(others).enumerate() {
                sums[column / 8] += u32::from(a.abs_diff(*b));
            }
        }
        sums.into_iter().max().unwrap_or_default() as f32 / 64.0
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use media::Mono;

    use super::*;

    /// A 640 x 48 picture whose columns come from `shade`.
    fn frame(shade: impl Fn(usize) -> u8) -> Frame {
        let pixels: Vec<u8> = (0..48).flat_map(|_| (0..640).flat_map(|x| [shade(x); 3])).collect();
        Frame {
            pts: Pts::ZERO,
            arrival: Mono(0),
            width: 640,
            height: 48,
            pixels: Bytes::from(pixels),
            cut: false,
        }
    }

    #[test]
    fn noise_is_no_change_and_one_other_letter_is() {
        let whole = Rect(0.0, 0.0, 1.0, 1.0);
        // Strokes 4 pixels wide, 16 apart: forty letters.
        let letters = |x: usize| if x % 16 < 4 { 230 } else { 20 };
        let before = Look::of(&frame(letters), whole);
        let noisy = Look::of(&frame(|x| letters(x).saturating_add((x % 5) as u8)), whole);
        assert!(before.differs(&noisy) <= CHANGE_MAX, "{}", before.differs(&noisy));
        let other = |x: usize| if (320..336).contains(&x) { 230 - letters(x) } else { letters(x) };
        let changed = Look::of(&frame(other), whole);
        assert!(before.differs(&changed) > CHANGE_MAX, "{}", before.differs(&changed));
    }

    #[test]
    fn lines_come_top_to_bottom_and_left_to_right() {
        let known = |x, y| Known {
            rect: Rect(x, y, 0.2, 0.1),
            look: Look([[0; 64]; 8]),
            read: ReadText { text: String::new(), score: 1.0 },
        };
        let mut lines = vec![known(0.1, 0.5), known(0.6, 0.11), known(0.1, 0.13)];
        in_reading_order(&mut lines);
        let at: Vec<(f32, f32)> = lines.iter().map(|l| (l.rect.0, l.rect.1)).collect();
        assert_eq!(at, [(0.1, 0.13), (0.6, 0.11), (0.1, 0.5)]);
    }
}
