//! Gives objects ids that stay the same from frame to frame: ByteTrack (Zhang et al. 2022).
//!
//! Confident detections are matched first, by overlap with where each track should be by now; then uncertain
//! ones continue tracks that would otherwise break (people half hidden, blurred). Pure: time is the frames' pts.

use std::time::Duration;

use media::{Detection, Pts, Rect};
use pathfinding::prelude::{Matrix, kuhn_munkres};

use super::kalman::Coordinate;

/// Overlap that continues a track with a confident detection.
const IOU_CONFIDENT: f32 = 0.2;
/// Overlap that continues a track with an uncertain detection.
const IOU_UNCERTAIN: f32 = 0.5;
/// Overlap that confirms a track seen only once.
const IOU_CONFIRM: f32 = 0.3;
/// A new track needs this much more than `score_min`.
const SCORE_NEW_ABOVE: f32 = 0.05;
/// Tracks kept at once; further objects stay without id until one ends.
const TRACKS_MAX: usize = 256;

/// How far off a detected edge is, speed and change of speed per second, as shares of the box's mean side.
const DEVIATION: f32 = 0.05;
const SPEED: f32 = 1.5;
const UNREST: f32 = 1.0;

/// Settings of a [`Tracker`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackerSettings {
    /// Detections from here on are confident: all of them are answered.
    pub score_min: f32,
    /// Detections from here on may continue a track; only those that do are answered. What the detector
    /// before it should be opened with.
    pub score_low: f32,
    /// Media time an object may be out of sight and keep its id.
    pub gap_max: Duration,
}

impl Default for TrackerSettings {
    fn default() -> Self {
        TrackerSettings { score_min: 0.4, score_low: 0.15, gap_max: Duration::from_secs(1) }
    }
}

/// Follows the objects of one stream.
#[derive(Debug)]
pub struct Tracker {
    settings: TrackerSettings,
    tracks: Vec<Track>,
    ids: u64,
    /// Time of the frame before, and how long after its predecessor it came.
    last: Option<(Pts, i64)>,
}

#[derive(Debug)]
struct Track {
    /// Given when it was seen a second time.
    id: Option<u64>,
    label: std::sync::Arc<str>,
    /// Centre and size.
    state: [Coordinate; 4],
    seen: Pts,
}

impl Tracker {
    /// A tracker that has seen nothing.
    pub fn new(settings: TrackerSettings) -> Self {
        Tracker { settings, tracks: Vec::new(), ids: 0, last: None }
    }

    /// The detections of the frame at `pts`, with `track` set on those whose track is confirmed (seen in two
    /// frames, or in the stream's first). A detection below `score_min` is left out unless it continues a track.
    pub fn update(&mut self, pts: Pts, mut detections: Vec<Detection>) -> Vec<Detection> {
        let step = self.last.map_or(0, |(last, _)| (pts - last).max(0));
        let first = self.last.is_none();
        self.predict(pts, step);
        detections.iter_mut().for_each(|d| d.track = None);
        let confident = |d: &Detection| d.score >= self.settings.score_min;
        let low = self.settings.score_low;
        let (mut sure, mut unsure): (Vec<_>, Vec<_>) =
            detections.into_iter().filter(|d| d.score >= low).partition(confident);

        let confirmed = |t: &Track| t.id.is_some();
        let mut kept = self.continue_tracks(pts, &mut sure, confirmed, IOU_CONFIDENT);
        let last_seen = self.last.map_or(pts, |(last, _)| last);
        let in_sight = move |t: &Track| t.id.is_some() && t.seen == last_seen && t.seen != pts;
        kept.extend(self.continue_tracks(pts, &mut unsure, in_sight, IOU_UNCERTAIN));
        kept.extend(self.continue_tracks(pts, &mut sure, |t| t.id.is_none(), IOU_CONFIRM));
        // What was seen once and not again was no object.
        self.tracks.retain(|t| t.id.is_some() || t.seen == pts);

        for mut detection in sure {
            let good = detection.score >= self.settings.score_min + SCORE_NEW_ABOVE;
            if (first || good) && self.tracks.len() < TRACKS_MAX {
                detection.track = first.then(|| self.next_id());
                self.tracks.push(Track::new(&detection, pts));
            }
            kept.push(detection);
        }
        self.last = Some((pts, step));
        kept
    }

    /// Moves all tracks to `pts` and lets go of those out of sight for too long.
    fn predict(&mut self, pts: Pts, step: i64) {
        // At few frames a second two frames' distance may be longer than the gap.
        let interval = self.last.map_or(0, |(_, interval)| interval);
        let gap_max = (self.settings.gap_max.as_micros() as i64).max(2 * interval);
        self.tracks.retain(|t| pts - t.seen <= gap_max);
        let seconds = step as f32 / 1e6;
        let previous = self.last.map_or(pts, |(last, _)| last);
        for track in &mut self.tracks {
            let unrest = track.side() * UNREST;
            if track.seen != previous {
                // Unseen boxes keep their size: only their place is guessed.
                track.state[2].halt();
                track.state[3].halt();
            }
            for coordinate in &mut track.state {
                coordinate.predict(seconds, unrest);
            }
        }
    }

    /// Matches `detections` with the tracks that `wanted` names and takes the matched ones out.
    fn continue_tracks(
        &mut self,
        pts: Pts,
        detections: &mut Vec<Detection>,
        wanted: impl Fn(&Track) -> bool,
        iou_min: f32,
    ) -> Vec<Detection> {
        let tracks: Vec<usize> =
            (0..self.tracks.len()).filter(|&i| wanted(&self.tracks[i])).collect();
        let likeness = |track: usize, detection: &Detection| {
            let track = &self.tracks[track];
            let iou = track.rect().iou(detection.rect);
            if track.label == detection.label && iou >= iou_min {
                iou * detection.score
            } else {
                0.0
            }
        };
        let mut pairs =
            assign(tracks.len(), detections.len(), |t, d| likeness(tracks[t], &detections[d]));
        pairs.sort_by_key(|(_, detection)| std::cmp::Reverse(*detection));
        let mut matched = Vec::with_capacity(pairs.len());
        for (track, detection) in pairs {
            let mut detection = detections.swap_remove(detection);
            let track = tracks[track];
            if self.tracks[track].id.is_none() {
                self.tracks[track].id = Some(self.next_id());
            }
            self.tracks[track].correct(&detection, pts);
            detection.track = self.tracks[track].id;
            matched.push(detection);
        }
        matched
    }

    fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

impl Track {
    fn new(detection: &Detection, pts: Pts) -> Self {
        let side = (detection.rect.2 + detection.rect.3) / 2.0;
        let state = centre_and_size(detection.rect)
            .map(|v| Coordinate::new(v, side * DEVIATION, side * SPEED));
        Track { id: detection.track, label: detection.label.clone(), state, seen: pts }
    }

    fn correct(&mut self, detection: &Detection, pts: Pts) {
        let deviation = (detection.rect.2 + detection.rect.3) / 2.0 * DEVIATION;
        for (coordinate, seen) in self.state.iter_mut().zip(centre_and_size(detection.rect)) {
            coordinate.correct(seen, deviation);
        }
        self.seen = pts;
    }

    fn rect(&self) -> Rect {
        let [x, y, w, h] = self.state.map(|c| c.position);
        let (w, h) = (w.max(0.0), h.max(0.0));
        Rect(x - w / 2.0, y - h / 2.0, w, h)
    }

    fn side(&self) -> f32 {
        (self.state[2].position + self.state[3].position).max(0.0) / 2.0
    }
}

fn centre_and_size(Rect(x, y, w, h): Rect) -> [f32; 4] {
    [x + w / 2.0, y + h / 2.0, w, h]
}

/// Pairs (row, column) with the greatest sum of `likeness`; pairs without likeness are left out.
fn assign(
    rows: usize,
    columns: usize,
    likeness: impl Fn(usize, usize) -> f32,
) -> Vec<(usize, usize)> {
    if rows == 0 || columns == 0 {
        return Vec::new();
    }
    // The solver wants whole numbers and no more rows than columns.
    let weight = |row, column| (likeness(row, column) * 1e6) as i64;
    let flip = rows > columns;
    let (short, long) = if flip { (columns, rows) } else { (rows, columns) };
    let matrix =
        Matrix::from_fn(short, long, |(s, l)| if flip { weight(l, s) } else { weight(s, l) });
    let (_, choice) = kuhn_munkres(&matrix);
    let pairs = choice.into_iter().enumerate().filter(|&(s, l)| matrix[(s, l)] > 0);
    pairs.map(|(s, l)| if flip { (l, s) } else { (s, l) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(label: &str, score: f32, x: f32, y: f32) -> Detection {
        Detection { label: label.into(), score, rect: Rect(x, y, 0.06, 0.2), track: None }
    }

    /// Track ids by label, in the order of x.
    fn ids(mut seen: Vec<Detection>) -> Vec<Option<u64>> {
        seen.sort_by(|a, b| a.rect.0.total_cmp(&b.rect.0));
        seen.iter().map(|d| d.track).collect()
    }

    fn at(frame: i64) -> Pts {
        Pts::from_ms(frame * 200)
    }

    #[test]
    fn two_people_who_walk_past_each_other_keep_their_ids() {
        let mut tracker = Tracker::new(TrackerSettings::default());
        for frame in 0..40 {
            let t = frame as f32 * 0.02;
            let left = object("person", 0.9, 0.1 + t, 0.40);
            let right = object("person", 0.9, 0.9 - t, 0.46);
            let seen = tracker.update(at(frame), vec![left.clone(), right]);
            let id = |rect: Rect| seen.iter().find(|d| d.rect == rect).and_then(|d| d.track);
            assert_eq!(id(left.rect), Some(1), "frame {frame}: {seen:?}");
        }
    }

    #[test]
    fn an_object_hidden_for_less_than_a_second_keeps_its_id_and_loses_it_after() {
        let mut tracker = Tracker::new(TrackerSettings::default());
        let walk = |frame: i64| vec![object("person", 0.8, 0.1 + frame as f32 * 0.01, 0.4)];
        for frame in 0..10 {
            assert_eq!(ids(tracker.update(at(frame), walk(frame))), [Some(1)]);
        }
        for frame in 10..14 {
            assert!(tracker.update(at(frame), vec![]).is_empty());
        }
        assert_eq!(ids(tracker.update(at(14), walk(14))), [Some(1)]);
        for frame in 15..22 {
            tracker.update(at(frame), vec![]);
        }
        assert_eq!(ids(tracker.update(at(22), walk(22))), [None], "not yet confirmed");
        assert_eq!(ids(tracker.update(at(23), walk(23))), [Some(2)]);
    }

    #[test]
    fn an_uncertain_detection_continues_a_track_but_starts_none() {
        let mut tracker = Tracker::new(TrackerSettings::default());
        tracker.update(at(0), vec![object("person", 0.9, 0.1, 0.4)]);
        let both = vec![object("person", 0.2, 0.1, 0.4), object("person", 0.3, 0.7, 0.4)];
        let seen = tracker.update(at(1), both);
        assert_eq!(ids(seen), [Some(1)]);
    }

    #[test]
    fn a_false_alarm_of_one_frame_never_gets_an_id() {
        let mut tracker = Tracker::new(TrackerSettings::default());
        tracker.update(at(0), vec![]);
        assert_eq!(ids(tracker.update(at(1), vec![object("dog", 0.9, 0.5, 0.5)])), [None]);
        assert!(tracker.update(at(2), vec![]).is_empty());
        assert_eq!(ids(tracker.update(at(3), vec![object("dog", 0.9, 0.5, 0.5)])), [None]);
        assert_eq!(ids(tracker.update(at(4), vec![object("dog", 0.9, 0.5, 0.5)])), [Some(1)]);
    }

    #[test]
    fn a_car_does_not_become_the_person_in_front_of_it() {
        let mut tracker = Tracker::new(TrackerSettings::default());
        tracker.update(at(0), vec![object("car", 0.9, 0.1, 0.4)]);
        let seen = tracker.update(at(1), vec![object("person", 0.9, 0.1, 0.4)]);
        assert_eq!(ids(seen), [None]);
    }

    #[test]
    fn one_frame_in_two_seconds_still_makes_tracks() {
        let mut tracker = Tracker::new(TrackerSettings::default());
        for second in 0..5 {
            let seen =
                tracker.update(Pts::from_ms(second * 2_000), vec![object("car", 0.9, 0.3, 0.3)]);
            if second > 1 {
                assert_eq!(ids(seen).len(), 1);
            }
        }
        let seen = tracker.update(Pts::from_ms(10_000), vec![object("car", 0.9, 0.3, 0.3)]);
        assert!(ids(seen)[0].is_some());
    }

    #[test]
    fn the_best_sum_wins_over_the_best_single_pair() {
        let likeness = [[0.9, 0.8], [0.85, 0.0]];
        let mut pairs = assign(2, 2, |r, c| likeness[r][c]);
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 1), (1, 0)]);
        assert_eq!(assign(3, 1, |r, _| r as f32), [(2, 0)]);
        assert_eq!(assign(1, 3, |_, _| 0.0), []);
    }

    #[test]
    fn a_crowd_beyond_the_limit_is_answered_without_ids() {
        let mut tracker = Tracker::new(TrackerSettings::default());
        let crowd: Vec<Detection> =
            (0..300).map(|i| object("person", 0.9, i as f32, 0.0)).collect();
        let seen = tracker.update(at(0), crowd);
        assert_eq!(seen.len(), 300);
        assert_eq!(seen.iter().filter(|d| d.track.is_some()).count(), TRACKS_MAX);
    }
}
