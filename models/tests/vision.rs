//! The vision models on real pictures, against answers recorded from plain ONNX Runtime calls (Python, version
//! 1.32, pictures scaled by Pillow's antialiased bilinear filter).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fail it"
)]

mod pictures;

use std::sync::LazyLock;

use media::{Detection, Frame, Rect};
use models::vision::{
    Detector, ReadText, Safety, SceneClassifier, TextCrop, TextDetector, TextRecognizer, Tracker,
    TrackerSettings,
};
use models::{Catalogue, Model, ModelError, Runtime};

use pictures::{drawn_text, photograph, vtest_frame, vtest_frames};

/// Scaling differs by a byte here and there between programs.
const SCORE_TOLERANCE: f32 = 0.03;
const BOX_TOLERANCE: f32 = 0.02;

/// One for the process: ONNX Runtime allows no second.
fn runtime() -> Runtime {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        let dir = Catalogue::builtin().dir("onnxruntime").unwrap();
        Runtime::open(&dir.join("libonnxruntime.so")).unwrap()
    });
    RUNTIME.clone()
}

fn detector(score_min: f32) -> Detector {
    let dir = Catalogue::builtin().dir("ssdlite-300").unwrap();
    Detector::open(&runtime(), &dir, score_min).unwrap()
}

fn near(a: Rect, b: Rect) -> bool {
    let parts = [a.0 - b.0, a.1 - b.1, a.2 - b.2, a.3 - b.3];
    parts.iter().all(|d| d.abs() <= BOX_TOLERANCE)
}

/// Recorded: label, score, x, y, width, height.
type Recorded = (&'static str, f32, [f32; 4]);

const VTEST_AT_10_S: [Recorded; 7] = [
    ("person", 0.925, [0.482, 0.321, 0.038, 0.149]),
    ("person", 0.906, [0.756, 0.261, 0.044, 0.155]),
    ("person", 0.892, [0.649, 0.261, 0.039, 0.125]),
    ("car", 0.823, [0.943, 0.082, 0.057, 0.086]),
    ("person", 0.808, [0.454, 0.344, 0.037, 0.131]),
    ("car", 0.685, [0.834, 0.073, 0.099, 0.101]),
    ("person", 0.638, [0.291, 0.103, 0.018, 0.059]),
];

fn assert_recorded(found: &[Detection], recorded: &[Recorded]) {
    for &(label, score, [x, y, w, h]) in recorded {
        let rect = Rect(x, y, w, h);
        let same = found.iter().find(|d| *d.label == *label && near(d.rect, rect));
        let same = same.unwrap_or_else(|| panic!("no {label} at {rect:?} in {found:?}"));
        assert!((same.score - score).abs() < SCORE_TOLERANCE, "{same:?} was {score}");
    }
    assert_eq!(found.len(), recorded.len(), "{found:?}");
}

#[test]
fn the_detector_finds_what_was_recorded_alone_and_in_a_batch() {
    let mut detector = detector(0.5);
    let batch =
        [photograph("astronaut"), photograph("chelsea"), photograph("coffee"), vtest_frame(10.0)];
    let together = detector.run(&batch).unwrap();
    assert_recorded(&together[0], &[("person", 0.650, [0.053, 0.016, 0.666, 0.921])]);
    assert_recorded(&together[1], &[("cat", 0.939, [0.002, 0.009, 0.892, 0.983])]);
    let cup = ("cup", 0.961, [0.289, 0.058, 0.403, 0.578]);
    assert_recorded(&together[2], &[cup, ("dining table", 0.716, [0.0, 0.008, 1.0, 0.981])]);
    assert_recorded(&together[3], &VTEST_AT_10_S);
    for (frame, together) in batch.iter().zip(&together) {
        let alone = detector.run(std::slice::from_ref(frame)).unwrap().remove(0);
        assert_eq!(alone.len(), together.len());
        for (a, b) in alone.iter().zip(together) {
            assert!(a.label == b.label && (a.score - b.score).abs() < 1e-4, "{a:?} {b:?}");
        }
    }
    assert_eq!(detector.run(&[]).unwrap(), Vec::<Vec<Detection>>::new());
}

#[test]
#[ignore = "needs the optional model: pipeline models pull nanodet-416"]
fn the_finer_detector_finds_what_was_recorded() {
    let dir = Catalogue::builtin().dir("nanodet-416").unwrap();
    let mut detector = Detector::open(&runtime(), &dir, 0.5).unwrap();
    let found = detector.run(&[photograph("astronaut"), vtest_frame(10.0)]).unwrap();
    assert_recorded(&found[0], &[("person", 0.734, [0.028, 0.027, 0.683, 0.963])]);
    let recorded = [
        ("person", 0.796, [0.447, 0.344, 0.051, 0.130]),
        ("person", 0.765, [0.487, 0.309, 0.046, 0.135]),
        ("person", 0.757, [0.765, 0.273, 0.041, 0.134]),
        ("person", 0.687, [0.640, 0.259, 0.034, 0.120]),
        ("person", 0.641, [0.667, 0.262, 0.037, 0.119]),
        ("person", 0.596, [0.287, 0.106, 0.021, 0.058]),
        ("truck", 0.580, [0.846, 0.073, 0.100, 0.097]),
        ("car", 0.521, [0.953, 0.090, 0.047, 0.073]),
    ];
    assert_recorded(&found[1], &recorded);
}

#[test]
fn scenes_are_groups_of_what_the_classes_say() {
    let dir = Catalogue::builtin().dir("efficientnet-lite0").unwrap();
    let mut scenes = SceneClassifier::open(&runtime(), &dir, 3).unwrap();
    let names = ["coffee", "camera", "chelsea", "rocket"];
    let answers = scenes.run(&names.map(photograph)).unwrap();
    let recorded =
        [("food", 0.987), ("photography", 0.956), ("animals", 0.953), ("air and space", 0.678)];
    for ((answer, name), (label, score)) in answers.iter().zip(names).zip(recorded) {
        assert_eq!(&*answer[0].label, label, "{name}: {answer:?}");
        assert!((answer[0].score - score).abs() < SCORE_TOLERANCE, "{name}: {answer:?}");
        assert!(answer.len() <= 3);
    }
}

#[test]
fn harmless_pictures_are_safe() {
    let dir = Catalogue::builtin().dir("open-nsfw").unwrap();
    let mut safety = Safety::open(&runtime(), &dir).unwrap();
    let batch =
        [photograph("coffee"), photograph("astronaut"), photograph("chelsea"), vtest_frame(10.0)];
    let scores = safety.run(&batch).unwrap();
    for (score, recorded) in scores.iter().zip([0.0128, 0.0152, 0.0001, 0.0]) {
        assert!((score - recorded).abs() < 0.01, "{scores:?}");
    }
}

fn read_all(frame: &Frame, side_max: u32) -> Vec<(Rect, ReadText)> {
    let dir = Catalogue::builtin().dir("ppocr-v5").unwrap();
    let runtime = runtime();
    let mut finder = TextDetector::open(&runtime, &dir, side_max).unwrap();
    let areas = finder.run(std::slice::from_ref(frame)).unwrap().remove(0);
    let crops: Vec<TextCrop> =
        areas.iter().map(|a| TextCrop { frame: frame.clone(), rect: a.rect }).collect();
    let texts = TextRecognizer::open(&runtime, &dir).unwrap().run(&crops).unwrap();
    areas.iter().map(|a| a.rect).zip(texts).collect()
}

#[test]
fn drawn_text_is_found_and_read_in_latin_and_chinese() {
    let lines = read_all(&drawn_text(), 480);
    let found: Vec<&str> = lines.iter().map(|(_, t)| t.text.as_str()).collect();
    assert_eq!(found, ["PLATFORM 7 CLOSES", "欢迎光临北京"]);
    for ((rect, text), recorded) in
        lines.iter().zip([Rect(0.066, 0.090, 0.695, 0.099), Rect(0.330, 0.742, 0.487, 0.134)])
    {
        assert!(text.score > 0.9, "{text:?}");
        assert!((rect.1 - recorded.1).abs() < BOX_TOLERANCE, "{rect:?}");
        assert!((rect.3 - recorded.3).abs() < BOX_TOLERANCE, "{rect:?}");
        assert!((rect.0 - recorded.0).abs() < BOX_TOLERANCE, "{rect:?}");
    }
}

#[test]
fn a_line_that_runs_down_is_read() {
    let upright = drawn_text();
    let picture = image::RgbImage::from_raw(600, 400, upright.pixels.to_vec()).unwrap();
    let turned = image::imageops::rotate90(&picture);
    let frame = Frame { width: 400, height: 600, pixels: turned.into_raw().into(), ..upright };
    let lines = read_all(&frame, 640);
    let mut found: Vec<&str> = lines.iter().flat_map(|(_, t)| t.text.split(' ')).collect();
    found.sort_unstable();
    assert_eq!(found, ["7", "CLOSES", "PLATFORM", "欢迎光临北京"]);
}

#[test]
fn a_scanned_page_is_read_line_by_line_from_the_top() {
    let lines = read_all(&photograph("page"), 480);
    let text: Vec<&str> = lines.iter().map(|(_, t)| t.text.as_str()).collect();
    let place = |wanted: &str| {
        text.iter().position(|t| t.contains(wanted)).unwrap_or_else(|| panic!("{wanted}: {text:?}"))
    };
    let order = [
        place("Region-based segmentation"),
        place("Let us first determine markers of the coins"),
        place("background. These markers are pixels that we can label"),
    ];
    assert!(order.is_sorted(), "{text:?}");
}

#[test]
fn lines_read_in_one_batch_read_as_they_do_alone() {
    let dir = Catalogue::builtin().dir("ppocr-v5").unwrap();
    let mut reader = TextRecognizer::open(&runtime(), &dir).unwrap();
    let frame = drawn_text();
    let crops: Vec<TextCrop> = [
        Rect(0.066, 0.090, 0.70, 0.099),
        Rect(2.0, 0.0, 1.0, 1.0),
        Rect(0.33, 0.742, 0.487, 0.134),
    ]
    .map(|rect| TextCrop { frame: frame.clone(), rect })
    .into();
    let together = reader.run(&crops).unwrap();
    assert_eq!(together[1], ReadText { text: String::new(), score: 0.0 });
    for (crop, together) in crops.iter().zip(&together) {
        let alone = reader.run(std::slice::from_ref(crop)).unwrap().remove(0);
        assert_eq!(alone.text, together.text);
    }
}

#[test]
fn people_walking_keep_their_ids() {
    let settings = TrackerSettings::default();
    let mut detector = detector(settings.score_low);
    let mut tracker = Tracker::new(settings);
    let (mut same, mut changed, mut most) = (0, 0, 0);
    let mut ids = std::collections::BTreeMap::<u64, usize>::new();
    let mut before: Vec<Detection> = Vec::new();
    let frames = vtest_frames(5, 12);
    assert_eq!(frames.len(), 60);
    for batch in frames.chunks(4) {
        for (frame, found) in batch.iter().zip(detector.run(batch).unwrap()) {
            let now = tracker.update(frame.pts, found);
            let tracked: Vec<Detection> = now.into_iter().filter(|d| d.track.is_some()).collect();
            for object in &tracked {
                *ids.entry(object.track.unwrap()).or_default() += 1;
                // The same object by any measure: nothing else of the frame before is near it.
                let near: Vec<_> =
                    before.iter().filter(|b| b.rect.iou(object.rect) > 0.1).collect();
                if let [only] = near[..]
                    && only.label == object.label
                    && only.rect.iou(object.rect) > 0.5
                {
                    if only.track == object.track { same += 1 } else { changed += 1 }
                }
            }
            most = most.max(tracked.len());
            before = tracked;
        }
    }
    assert!(same > 150, "{same} same, {changed} changed");
    assert!(changed * 100 <= same, "{same} same, {changed} changed");
    let long = ids.values().filter(|&&frames| frames >= 20).count();
    assert!(long >= 5, "{long} of {} tracks live 4 s, at most {most} at once", ids.len());
    assert!(ids.len() <= most * 3, "{} ids for at most {most} at once", ids.len());
}

#[test]
fn a_model_of_another_shape_is_refused_by_name() {
    let catalogue = Catalogue::builtin();
    let safety = catalogue.dir("open-nsfw").unwrap().join("open_nsfw.onnx");
    let scenes = SceneClassifier::open_file(&runtime(), "mine", &safety, 3);
    let error = scenes.and_then(|mut s| s.run(&[photograph("coffee")])).unwrap_err();
    assert!(matches!(error, ModelError::Run { .. }), "{error}");
    let error = Detector::open_file(&runtime(), "mine", &safety, 300, 0.4).map(drop).unwrap_err();
    assert!(error.to_string().contains("1 outputs, expected 1 and 2"), "{error}");
    let error = Safety::open(&runtime(), "/nowhere".as_ref()).map(drop).unwrap_err();
    assert!(matches!(error, ModelError::Absent { .. }), "{error}");
}

#[test]
#[ignore = "a measurement, not a test; its result is on standard output"]
#[expect(clippy::print_stdout, reason = "its result")]
fn cost_of_each_model() {
    /// Processor time of this thread in milliseconds, which other programs do not disturb as they do the clock.
    fn spent_ms() -> f64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
    }
    fn measure<M: Model>(name: &str, model: &mut M, input: &M::Input)
    where
        M::Input: Clone,
    {
        for size in [1, 4] {
            let batch = vec![input.clone(); size];
            model.run(&batch).unwrap();
            let mut best = f64::MAX;
            for _ in 0..10 {
                let start = spent_ms();
                model.run(&batch).unwrap();
                best = best.min(spent_ms() - start);
            }
            println!("{name} x{size}: {best:.1} ms, {:.1} ms each", best / size as f64);
        }
    }
    let catalogue = Catalogue::builtin();
    let runtime = runtime();
    let dir = |name: &str| catalogue.dir(name).unwrap();
    let frame = vtest_frame(10.0);
    measure("ssdlite-300", &mut detector(0.4), &frame);
    if let Ok(dir) = catalogue.dir("nanodet-416") {
        measure("nanodet-416", &mut Detector::open(&runtime, &dir, 0.4).unwrap(), &frame);
    }
    let mut scenes = SceneClassifier::open(&runtime, &dir("efficientnet-lite0"), 3).unwrap();
    measure("efficientnet-lite0", &mut scenes, &frame);
    measure("open-nsfw", &mut Safety::open(&runtime, &dir("open-nsfw")).unwrap(), &frame);
    let ocr = dir("ppocr-v5");
    let mut finder = TextDetector::open(&runtime, &ocr, 480).unwrap();
    measure("ppocr-v5 det 480", &mut finder, &frame);
    let mut reader = TextRecognizer::open(&runtime, &ocr).unwrap();
    let frame = drawn_text();
    let line = |rect| TextCrop { frame: frame.clone(), rect };
    measure("ppocr-v5 rec short", &mut reader, &line(Rect(0.33, 0.742, 0.487, 0.134)));
    measure("ppocr-v5 rec long", &mut reader, &line(Rect(0.066, 0.09, 0.70, 0.099)));
}
