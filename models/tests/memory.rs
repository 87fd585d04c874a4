//! Sessions share their working memory: what one has used and let go serves the next. In a process of its own, since
//! it looks at the size of the process.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use media::{Frame, Mono, Pts};
use models::vision::TextDetector;
use models::{Catalogue, Model, Runtime};

#[test]
fn a_further_session_needs_little_working_memory_of_its_own() {
    let catalogue = Catalogue::builtin();
    let library = catalogue.dir("onnxruntime").unwrap().join("libonnxruntime.so");
    let runtime = Runtime::open(&library).unwrap();
    let dir = catalogue.dir("ppocr-v5").unwrap();
    let (width, height) = (1280, 1280);
    let pixels = vec![127; (width * height * 3) as usize].into();
    let frame =
        Frame { pts: Pts::ZERO, arrival: Mono::default(), width, height, pixels, cut: false };

    let mut sessions = Vec::new();
    let mut resident = vec![resident_mb()];
    for _ in 0..3 {
        let mut session = TextDetector::open(&runtime, &dir, width).unwrap();
        session.run(std::slice::from_ref(&frame)).unwrap();
        sessions.push(session);
        resident.push(resident_mb());
    }
    let (first, further) = (resident[1] - resident[0], resident[3] - resident[1]);
    assert!(further < first, "two further ones took more than the first: {resident:?} MB");
}

fn resident_mb() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    (pages * 4096) >> 20
}
