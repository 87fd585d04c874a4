//! One ONNX session with one picture input: runs it and hands out checked answers.

use std::path::Path;

use ort::session::Session;
use ort::value::TensorRef;

use crate::model::ModelError;
use crate::runtime::{Provider, Runtime};

pub(super) struct Net {
    name: String,
    session: Session,
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
        if !file.is_file() {
            let path = file.display().to_string();
            return Err(ModelError::Absent { name: name.to_owned(), path });
        }
        let session = runtime.session(name, file, Provider::Cpu)?;
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
        Ok(Net { name: name.to_owned(), session })
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
        let Net { name, session } = self;
        let failed = |e: ort::Error| ModelError::Run { name: name.clone(), detail: e.to_string() };
        let input = TensorRef::from_array_view((shape, values)).map_err(failed)?;
        let outputs = session.run(ort::inputs![input]).map_err(failed)?;
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
