//! Non-maximum suppression: of boxes of one class that overlap, the best stays.

use media::Rect;

/// A candidate of a detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) class: usize,
    pub(super) score: f32,
    pub(super) rect: Rect,
}

/// At most `count_max` candidates, best first, none of which overlaps a better one of its class by more than
/// `iou_max`.
pub(super) fn suppress(
    mut candidates: Vec<Candidate>,
    iou_max: f32,
    count_max: usize,
) -> Vec<Candidate> {
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        if kept.len() == count_max {
            break;
        }
        let hidden =
            kept.iter().any(|k| k.class == candidate.class && k.rect.iou(candidate.rect) > iou_max);
        if !hidden {
            kept.push(candidate);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(class: usize, score: f32, x: f32) -> Candidate {
        Candidate { class, score, rect: Rect(x, 0.0, 1.0, 1.0) }
    }

    #[test]
    fn the_best_of_overlapping_boxes_of_one_class_stays() {
        let kept = suppress(
            vec![
                candidate(0, 0.5, 0.1),
                candidate(0, 0.9, 0.0),
                candidate(1, 0.4, 0.0),
                candidate(0, 0.3, 0.9),
            ],
            0.5,
            10,
        );
        let scores: Vec<f32> = kept.iter().map(|k| k.score).collect();
        assert_eq!(scores, [0.9, 0.4, 0.3]);
    }

    #[test]
    fn no_more_than_asked_for() {
        let many = (0..50).map(|i| candidate(0, 0.5, i as f32 * 2.0)).collect();
        assert_eq!(suppress(many, 0.5, 7).len(), 7);
    }
}
