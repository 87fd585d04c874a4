//! One ONNX session with one picture input: runs it and hands out checked answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ort::session::builder::GraphOptimizationLevel;
use ort::session::{RunOptions, Session};
use ort::value::TensorRef;

use crate::model::{Interrupt, ModelError};
use crate::runtime::{Provider, Runtime};

pub(super) struct Net {
    name: String,
    session: Session,
    halt: Arc<Halt>,
}

/// Ends a forward pass between two of its operators.
struct Halt {
    options: RunOptions,
    is_asked: AtomicBool,
}

impl Interrupt for Halt {
    fn stop(&self) {
        self.is_asked.store(true, Ordering::Release);
        if let Err(error) = self.options.terminate() {
            tracing::warn!(%error, "a forward pass goes on although it is to end");
        }
    }

    fn reset(&self) {
        self.is_asked.store(false, Ordering::Release);
        if let Err(error) = self.options.unterminate() {
            tracing::warn!(%error, "forward passes stay interrupted");
        }
    }
}

/// One output: shape and finite values.
pub(super) struct Answer<'a> {
    name: &'a str,
    pub(super) shape: Vec<usize>,
    pub(super) values: &'a [f32],
}

impl Net {
    /// Opens `file`, which must have one input and at least `outputs` outputs.
    pub(super) fn open(
        runtime: &Runtime,
        name: &str,
        file: &Path,
        outputs: usize,
    ) -> Result<Net, ModelError> {
        Self::open_at(runtime, name, file, outputs, GraphOptimizationLevel::All)
    }

    /// The same with the graph optimised only so far.
    pub(super) fn open_at(
        runtime: &Runtime,
        name: &str,
        file: &Path,
        outputs: usize,
        level: GraphOptimizationLevel,
    ) -> Result<Net, ModelError> {
        if !file.is_file() {
            let path = file.display().to_string();
            return Err(ModelError::Absent { name: name.to_owned(), path });
        }
        let session = runtime.session_at(name, file, Provider::Cpu, level)?;
        let (inputs, found) = (session.inputs().len(), session.outputs().len());
        if inputs != 1 || found < outputs {
            return Err(ModelError::Load {
                name: name.to_owned(),
                detail: format!(
                    "{} has {inputs} inputs and {found} outputs, expected 1 and {outputs}",
                    file.display()
                ),
            });
        }
        let options = RunOptions::new()
            .map_err(|e| ModelError::Load { name: name.to_owned(), detail: e.to_string() })?;
        let halt = Arc::new(Halt { options, is_asked: AtomicBool::new(false) });
        Ok(Net { name: name.to_owned(), session, halt })
    }

    pub(super) fn interrupt(&self) -> Arc<dyn Interrupt> {
        self.halt.clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs the network on `values` of `shape` and gives its outputs in the graph's order to `read`.
    pub(super) fn run<R>(
        &mut self,
        shape: [usize; 4],
        values: &[f32],
        read: impl FnOnce(&[Answer]) -> Result<R, ModelError>,
    ) -> Result<R, ModelError> {
        let Net { name, session, halt } = self;
        let failed = |e: ort::Error| ModelError::Run { name: name.clone(), detail: e.to_string() };
        let input = TensorRef::from_array_view((shape, values)).map_err(failed)?;
        let outputs = session.run_with_options(ort::inputs![input], &halt.options);
        let outputs = outputs.map_err(|e| {
            if halt.is_asked.load(Ordering::Acquire) {
                ModelError::Interrupted { name: name.clone() }
            } else {
                failed(e)
            }
        })?;
        let mut answers = Vec::new();
        for index in 0..outputs.len() {
            let (shape, values) = outputs[index].try_extract_tensor::<f32>().map_err(failed)?;
            let shape = shape.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
            if let Some(odd) = values.iter().find(|v| !v.is_finite()) {
                return Err(wrong(name, format!("{odd}"), "finite numbers".into()));
            }
            answers.push(Answer { name, shape, values });
        }
        read(&answers)
    }
}

impl Answer<'_> {
    /// Refuses another shape.
    pub(super) fn expect(&self, shape: &[usize]) -> Result<(), ModelError> {
        if self.shape != shape {
            return Err(self.wrong(format!("shape {:?}", self.shape), format!("{shape:?}")));
        }
        Ok(())
    }

    pub(super) fn wrong(&self, found: String, expected: String) -> ModelError {
        wrong(self.name, found, expected)
    }
}

fn wrong(name: &str, found: String, expected: String) -> ModelError {
    ModelError::Answer { name: name.to_owned(), found, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;
    use crate::convert::onnx::{Dim, Element, Graph};

    /// A network that answers the logarithm of its input.
    fn logarithm(dir: &Path) -> Net {
        let mut graph = Graph::new("logarithm");
        let shape = [Dim::Fixed(1), Dim::Fixed(1), Dim::Fixed(1), Dim::Free("w")];
        let x = graph.input("x", Element::Float, &shape);
        let y = graph.node("Log", &[&x], &[]);
        graph.output(&y, "y", Element::Float, &shape);
        let file = dir.join("log.onnx");
        std::fs::write(&file, graph.encode("test")).unwrap();
        let library = Catalogue::builtin().dir("onnxruntime").unwrap().join("libonnxruntime.so");
        Net::open(&Runtime::open(&library).unwrap(), "logarithm", &file, 1).unwrap()
    }

    #[test]
    fn an_answer_that_is_no_number_or_of_another_shape_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut net = logarithm(dir.path());
        let fits = net.run([1, 1, 1, 2], &[1.0, 1.0], |a| {
            a[0].expect(&[1, 1, 1, 2])?;
            Ok(a[0].values.to_vec())
        });
        assert_eq!(fits, Ok(vec![0.0, 0.0]));
        net.interrupt().stop();
        let stopped = net.run([1, 1, 1, 2], &[1.0, 1.0], |_| Ok(()));
        assert_eq!(stopped, Err(ModelError::Interrupted { name: "logarithm".into() }));
        net.interrupt().reset();
        let other = net.run([1, 1, 1, 2], &[1.0, 1.0], |a| a[0].expect(&[1, 2])).unwrap_err();
        assert_eq!(
            other.to_string(),
            "model `logarithm` answered shape [1, 1, 1, 2], expected [1, 2]"
        );
        for (input, found) in [(-1.0, "NaN"), (0.0, "-inf")] {
            let error = net.run([1, 1, 1, 2], &[1.0, input], |_| Ok(())).unwrap_err();
            assert!(matches!(&error, ModelError::Answer { found: f, .. } if f == found), "{error}");
        }
    }
}
