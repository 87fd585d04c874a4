//! Objects of one window: one entry per tracked object, with its best frame; untracked ones are joined by label
//! and place.

use std::collections::BTreeMap;
use std::sync::Arc;

use media::result::SeenObject;
use media::{Detection, Pts, Rect};

/// Objects kept in one window; when full, the weakest gives way to a stronger one.
const OBJECTS_MAX: usize = 256;
/// Overlap from which two boxes of one label are taken for the same object a moment later.
const SAME_IOU_MIN: f32 = 0.4;

#[derive(Clone, Debug)]
struct Sighting {
    best: SeenObject,
    first_rect: Rect,
    last_rect: Rect,
}

impl Sighting {
    fn new(ms: i64, object: &Detection) -> Self {
        Sighting {
            best: SeenObject {
                label: object.label.clone(),
                score: object.score,
                rect: object.rect,
                track: object.track,
                pts_ms: ms,
                first_ms: ms,
                last_ms: ms,
            },
            first_rect: object.rect,
            last_rect: object.rect,
        }
    }

    fn extend(&mut self, ms: i64, object: &Detection) {
        if ms < self.best.first_ms {
            (self.best.first_ms, self.first_rect) = (ms, object.rect);
        }
        if ms >= self.best.last_ms {
            (self.best.last_ms, self.last_rect) = (ms, object.rect);
        }
        if object.score > self.best.score {
            self.best.label = object.label.clone();
            (self.best.score, self.best.rect, self.best.pts_ms) = (object.score, object.rect, ms);
        }
    }
}

/// Objects of one window.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    tracked: BTreeMap<u64, Sighting>,
    untracked: Vec<Sighting>,
}

impl Objects {
    /// Takes in one frame's detections.
    pub(super) fn add(&mut self, pts: Pts, objects: Vec<Detection>) {
        let ms = pts.ms();
        let mut taken = vec![false; self.untracked.len()];
        for mut object in objects {
            let Rect(x, y, w, h) = object.rect;
            if !object.score.is_finite() || ![x, y, w, h].iter().all(|v| v.is_finite()) {
                continue;
            }
            object.score = object.score.clamp(0.0, 1.0);
            match object.track {
                Some(track) => {
                    if let Some(have) = self.tracked.get_mut(&track) {
                        have.extend(ms, &object);
                    } else if self.make_room(object.score) {
                        self.tracked.insert(track, Sighting::new(ms, &object));
                    }
                }
                None => match self.same_untracked(&object, &taken) {
                    Some(i) => {
                        self.untracked[i].extend(ms, &object);
                        taken[i] = true;
                    }
                    None if self.tracked.len() + self.untracked.len() < OBJECTS_MAX => {
                        self.untracked.push(Sighting::new(ms, &object));
                        taken.push(true);
                    }
                    None => self.replace_weakest_untracked(ms, &object),
                },
            }
        }
    }

    /// All of them, best first.
    pub(super) fn seen(&self) -> Vec<SeenObject> {
        let mut seen: Vec<Sighting> = self.tracked.values().cloned().collect();
        for loose in &self.untracked {
            // A tracker confirms an object only after some frames: what was seen before belongs to it.
            let confirmed = seen.iter_mut().find(|s| {
                s.best.track.is_some()
                    && s.best.label == loose.best.label
                    && loose.best.last_ms < s.best.first_ms
                    && s.first_rect.iou(loose.last_rect) >= SAME_IOU_MIN
            });
            match confirmed {
                Some(s) => {
                    s.best.first_ms = loose.best.first_ms;
                    s.first_rect = loose.first_rect;
                    if loose.best.score > s.best.score {
                        (s.best.score, s.best.rect) = (loose.best.score, loose.best.rect);
                        s.best.pts_ms = loose.best.pts_ms;
                    }
                }
                None => seen.push(loose.clone()),
            }
        }
        let mut seen: Vec<SeenObject> = seen.into_iter().map(|s| s.best).collect();
        seen.sort_by(|a, b| b.score.total_cmp(&a.score));
        seen
    }

    /// The untracked object of an earlier frame that this one continues.
    fn same_untracked(&self, object: &Detection, taken: &[bool]) -> Option<usize> {
        let near = |s: &Sighting| {
            label_eq(&s.best.label, &object.label).then(|| s.last_rect.iou(object.rect))
        };
        self.untracked
            .iter()
            .enumerate()
            .filter(|(i, _)| !taken.get(*i).copied().unwrap_or(false))
            .filter_map(|(i, s)| Some((i, near(s)?)))
            .filter(|(_, iou)| *iou >= SAME_IOU_MIN)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(i, _)| i)
    }

    /// Whether a new tracked object of this score finds a place, if need be a weaker one's.
    fn make_room(&mut self, score: f32) -> bool {
        if self.tracked.len() + self.untracked.len() < OBJECTS_MAX {
            return true;
        }
        let weakest = self
            .tracked
            .iter()
            .map(|(track, s)| (*track, s.best.score))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, weakest)| *weakest < score);
        match weakest {
            Some((track, _)) => self.tracked.remove(&track).is_some(),
            None => false,
        }
    }

    fn replace_weakest_untracked(&mut self, ms: i64, object: &Detection) {
        let weakest = self
            .untracked
            .iter_mut()
            .min_by(|a, b| a.best.score.total_cmp(&b.best.score))
            .filter(|s| s.best.score < object.score);
        if let Some(weakest) = weakest {
            *weakest = Sighting::new(ms, object);
        }
    }
}

/// Labels are interned by the detector, so the pointer usually decides.
fn label_eq(a: &Arc<str>, b: &Arc<str>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(label: &str, score: f32, x: f32, track: Option<u64>) -> Detection {
        Detection { label: label.into(), score, rect: Rect(x, 0.1, 0.2, 0.4), track }
    }

    fn ms(ms: i64) -> Pts {
        Pts::from_ms(ms)
    }

    #[test]
    fn a_track_is_one_object_with_its_best_frame() {
        let mut objects = Objects::default();
        objects.add(ms(200), vec![object("person", 0.6, 0.1, Some(3))]);
        objects.add(
            ms(400),
            vec![object("person", 0.9, 0.3, Some(3)), object("dog", 0.7, 0.5, Some(4))],
        );
        objects.add(ms(600), vec![object("person", 0.7, 0.5, Some(3))]);
        let seen = objects.seen();
        assert_eq!(seen.len(), 2);
        let person = &seen[0];
        assert_eq!((person.score, person.rect.0, person.pts_ms), (0.9, 0.3, 400));
        assert_eq!((person.first_ms, person.last_ms), (200, 600));
    }

    #[test]
    fn untracked_objects_are_joined_by_label_and_place() {
        let mut objects = Objects::default();
        objects.add(ms(0), vec![object("car", 0.5, 0.10, None), object("car", 0.6, 0.6, None)]);
        objects.add(ms(100), vec![object("car", 0.7, 0.12, None), object("bus", 0.6, 0.6, None)]);
        objects.add(ms(200), vec![object("car", 0.4, 0.14, None)]);
        let seen = objects.seen();
        let found: Vec<_> =
            seen.iter().map(|o| (&*o.label, o.score, o.first_ms, o.last_ms)).collect();
        assert_eq!(found, [("car", 0.7, 0, 200), ("car", 0.6, 0, 0), ("bus", 0.6, 100, 100)]);
    }

    #[test]
    fn two_objects_of_one_frame_are_never_joined() {
        let mut objects = Objects::default();
        objects
            .add(ms(0), vec![object("person", 0.5, 0.1, None), object("person", 0.6, 0.11, None)]);
        assert_eq!(objects.seen().len(), 2);
        objects
            .add(ms(50), vec![object("person", 0.5, 0.1, None), object("person", 0.6, 0.11, None)]);
        assert_eq!(objects.seen().len(), 2);
    }

    #[test]
    fn an_object_confirmed_later_is_not_seen_twice() {
        let mut objects = Objects::default();
        objects.add(ms(0), vec![object("person", 0.95, 0.1, None)]);
        objects.add(ms(200), vec![object("person", 0.8, 0.12, Some(7))]);
        let seen = objects.seen();
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].track, seen[0].score, seen[0].first_ms, seen[0].pts_ms),
            (Some(7), 0.95, 0, 0)
        );
    }

    #[test]
    fn what_is_no_number_is_left_out_and_the_count_is_bounded() {
        let mut objects = Objects::default();
        objects.add(
            ms(0),
            vec![object("car", f32::NAN, 0.1, Some(1)), object("car", 0.5, f32::INFINITY, None)],
        );
        assert!(objects.seen().is_empty());
        let crowd = |score: f32, base: u64| {
            (0..300).map(|i| object("person", score, 0.0, Some(base + i))).collect::<Vec<_>>()
        };
        objects.add(ms(1), crowd(0.4, 0));
        objects.add(ms(2), crowd(0.8, 1_000));
        assert_eq!(objects.seen().len(), OBJECTS_MAX);
        assert!(objects.seen().iter().all(|o| o.score == 0.8), "stronger ones take the place");
        let loose = (0..300).map(|i| object("car", 0.9, i as f32, None)).collect();
        objects.add(ms(3), loose);
        assert_eq!(objects.seen().len(), OBJECTS_MAX);
    }
}
