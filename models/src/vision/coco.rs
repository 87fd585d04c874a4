//! The 80 object classes of COCO (Lin et al. 2014), and the 91 numbers that they were given.

use std::sync::Arc;

const NAMES: [&str; 80] = [
    "person",
    "bicycle",
    "car",
    "motorcycle",
    "airplane",
    "bus",
    "train",
    "truck",
    "boat",
    "traffic light",
    "fire hydrant",
    "stop sign",
    "parking meter",
    "bench",
    "bird",
    "cat",
    "dog",
    "horse",
    "sheep",
    "cow",
    "elephant",
    "bear",
    "zebra",
    "giraffe",
    "backpack",
    "umbrella",
    "handbag",
    "tie",
    "suitcase",
    "frisbee",
    "skis",
    "snowboard",
    "sports ball",
    "kite",
    "baseball bat",
    "baseball glove",
    "skateboard",
    "surfboard",
    "tennis racket",
    "bottle",
    "wine glass",
    "cup",
    "fork",
    "knife",
    "spoon",
    "bowl",
    "banana",
    "apple",
    "sandwich",
    "orange",
    "broccoli",
    "carrot",
    "hot dog",
    "pizza",
    "donut",
    "cake",
    "chair",
    "couch",
    "potted plant",
    "bed",
    "dining table",
    "toilet",
    "tv",
    "laptop",
    "mouse",
    "remote",
    "keyboard",
    "cell phone",
    "microwave",
    "oven",
    "toaster",
    "sink",
    "refrigerator",
    "book",
    "clock",
    "vase",
    "scissors",
    "teddy bear",
    "hair drier",
    "toothbrush",
];

/// Numbers of 1..=90 that have no class.
const GAPS: [usize; 10] = [12, 26, 29, 30, 45, 66, 68, 69, 71, 83];

/// Names by number - 1, as networks with 90 classes answer; none where the number has no class.
pub(super) fn by_number() -> Vec<Option<Arc<str>>> {
    let mut names = NAMES.iter();
    (1..=90)
        .map(|n| if GAPS.contains(&n) { None } else { names.next().map(|name| Arc::from(*name)) })
        .collect()
}

/// Names in order, as networks with 80 classes answer.
pub(super) fn in_order() -> Vec<Option<Arc<str>>> {
    NAMES.iter().map(|name| Some(Arc::from(*name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_number() {
        let all = by_number();
        assert_eq!(all.iter().flatten().count(), 80);
        for (number, name) in [
            (1, "person"),
            (3, "car"),
            (13, "stop sign"),
            (44, "bottle"),
            (67, "dining table"),
            (90, "toothbrush"),
        ] {
            assert_eq!(all[number - 1].as_deref(), Some(name));
        }
    }
}
