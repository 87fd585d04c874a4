//! What others need for the same work on this machine: the ffmpeg program for decoding, Python's onnxruntime for
//! forward passes. A bare loop that is slower than these is no bar to be measured against.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use actors::Library;
use bytes::Bytes;
use media::{Clock, Frame, Mono, Pts};
use models::vision::{Detector, Safety, SceneClassifier};
use models::{Model, ModelError};

use super::recorder::Names;

/// Decodes the clips with `processes` ffmpeg processes of one thread, each a part of them; how long that took.
pub(super) fn ffmpeg(
    clips: &[&Path],
    clock: &dyn Clock,
    processes: usize,
) -> Result<Duration, String> {
    let failed = |e: std::io::Error| format!("ffmpeg can't be started ({e}); run `make setup`");
    let lists: Vec<String> = (0..processes)
        .map(|process| {
            let own = clips.iter().skip(process).step_by(processes);
            own.map(|clip| format!("file 'file:{}'\n", clip.display())).collect()
        })
        .collect();
    let from = clock.now();
    let mut running = Vec::new();
    for list in &lists {
        let mut ffmpeg = Command::new("ffmpeg")
            .args(["-v", "error", "-threads", "1", "-f", "concat", "-safe", "0"])
            .args(["-protocol_whitelist", "file,pipe", "-i", "-", "-f", "null", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = ffmpeg.stdin.take() {
            std::io::Write::write_all(&mut stdin, list.as_bytes()).map_err(failed)?;
        }
        running.push(ffmpeg);
    }
    for mut ffmpeg in running {
        let status = ffmpeg.wait().map_err(failed)?;
        if !status.success() {
            return Err(format!("ffmpeg decoding the clips: {status}"));
        }
    }
    Ok(clock.now().since(from))
}

/// One network: its name, file, side of its picture, and ms of one forward pass here and in Python.
pub(super) struct Pass {
    pub(super) name: String,
    pub(super) ours_ms: f64,
    pub(super) python_ms: f64,
}

const RUNS: u32 = 30;

const PYTHON: &str = "
import sys, time, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
path, side, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
feeds = {}
for node in session.get_inputs():
    sizes = [1 if i == 0 else size if isinstance(size, int) else side for i, size in enumerate(node.shape)]
    kind = numpy.uint8 if 'uint8' in node.type else numpy.float32
    feeds[node.name] = numpy.full(sizes, 100, kind)
for _ in range(3):
    session.run(None, feeds)
times = []
for _ in range(runs):
    start = time.perf_counter()
    session.run(None, feeds)
    times.append(time.perf_counter() - start)
print(sorted(times)[len(times) // 2] * 1e3)
";

/// Median forward passes on one thread, ours with making the tensor and reading the answer. None when `python`
/// has no onnxruntime.
pub(super) fn python(
    python: &str,
    library: &Arc<Library>,
    names: &Names,
    clock: &dyn Clock,
) -> Result<Option<Vec<Pass>>, String> {
    let there = Command::new(python)
        .args(["-c", "import onnxruntime, numpy"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let said = |e: ModelError| e.to_string();
    let runtime = &library.runtime;
    let mut passes = Vec::new();
    for (name, side) in [(&names.objects, 300), (&names.scenes, 224), (&names.safety, 224)] {
        let dir = (library.dir)(name).map_err(said)?;
        let ours_ms = if *name == names.objects {
            median_ms(Detector::open(runtime, &dir, 0.1).map_err(said)?, side, clock)
        } else if *name == names.scenes {
            median_ms(SceneClassifier::open(runtime, &dir, 20).map_err(said)?, side, clock)
        } else {
            median_ms(Safety::open(runtime, &dir).map_err(said)?, side, clock)
        }
        .map_err(said)?;
        let files = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|file| file.path());
        let Some(file) = files.into_iter().find(|f| f.extension().is_some_and(|e| e == "onnx"))
        else {
            continue;
        };
        let output = Command::new(python)
            .args(["-c", PYTHON])
            .arg(&file)
            .args([side.to_string(), RUNS.to_string()])
            .output()
            .map_err(|e| format!("{python}: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let python_ms = text.trim().parse().map_err(|_| {
            format!("{python}: {name}: {}", String::from_utf8_lossy(&output.stderr).trim())
        })?;
        passes.push(Pass { name: name.clone(), ours_ms, python_ms });
    }
    Ok(Some(passes))
}

fn median_ms<M: Model<Input = Frame>>(
    mut model: M,
    side: u32,
    clock: &dyn Clock,
) -> Result<f64, ModelError> {
    let pixels = Bytes::from(vec![100; (side * side * 3) as usize]);
    let frame =
        [Frame { pts: Pts::ZERO, arrival: Mono(0), width: side, height: side, pixels, cut: false }];
    for _ in 0..3 {
        model.run(&frame)?;
    }
    let mut times = super::stats::Times::default();
    for _ in 0..RUNS {
        let from = clock.now();
        model.run(&frame)?;
        times.add(clock.now().ms_since(from));
    }
    Ok(times.at(0.5).unwrap_or_default())
}
