//! Reads safetensors: eight bytes of header length, a JSON header, then the raw tensors.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ConvertError;
use super::layers::Tensor;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The tensors of one file.
pub(super) struct Tensors<'a> {
    entries: BTreeMap<String, Entry>,
    data: &'a [u8],
}

impl<'a> Tensors<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ConvertError> {
        let (length, rest) =
            bytes.split_first_chunk().ok_or_else(|| bad("fewer than eight bytes"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (header, data) =
            rest.split_at_checked(length).ok_or_else(|| bad("a header longer than the file"))?;
        let mut all: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(header).map_err(|e| bad(&e.to_string()))?;
        all.remove("__metadata__");
        let entries = all
            .into_iter()
            .map(|(name, value)| Ok((name, serde_json::from_value(value)?)))
            .collect::<Result<_, serde_json::Error>>()
            .map_err(|e| bad(&e.to_string()))?;
        Ok(Tensors { entries, data })
    }

    /// The f32 tensor `name`, which must have `shape`.
    pub(super) fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor, ConvertError> {
        let entry = self.entries.get(name).ok_or_else(|| ConvertError::Format {
            what: "safetensors".into(),
            found: format!("{} tensors, none called `{name}`", self.entries.len()),
            expected: "the tensors of the model".into(),
        })?;
        let bytes = self.data.get(entry.data_offsets.0..entry.data_offsets.1).unwrap_or_default();
        let size = shape.iter().product::<usize>() * 4;
        if entry.dtype != "F32" || entry.shape != shape || bytes.len() != size {
            return Err(ConvertError::Format {
                what: name.to_owned(),
                found: format!("{} {:?} in {} bytes", entry.dtype, entry.shape, bytes.len()),
                expected: format!("F32 {shape:?} in {size} bytes"),
            });
        }
        let (floats, _) = bytes.as_chunks();
        Ok(Tensor {
            shape: shape.to_vec(),
            data: floats.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        })
    }
}

fn bad(found: &str) -> ConvertError {
    ConvertError::Format {
        what: "safetensors".into(),
        found: found.to_owned(),
        expected: "a length, a JSON header and tensors".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn reads_a_tensor_and_refuses_the_wrong_shape() {
        let header = r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let bytes = file(header, &[1.0_f32.to_le_bytes(), (-2.5_f32).to_le_bytes()].concat());
        let tensors = Tensors::parse(&bytes).unwrap();
        assert_eq!(tensors.get("w", &[2]).unwrap().data, [1.0, -2.5]);
        assert!(tensors.get("w", &[3]).unwrap_err().to_string().contains("[2]"));
        assert!(tensors.get("v", &[2]).unwrap_err().to_string().contains("`v`"));
    }

    #[test]
    fn a_cut_file_is_an_error() {
        let header = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let bytes = file(header, &[0; 8]);
        for end in 0..bytes.len() {
            let cut = Tensors::parse(&bytes[..end]).and_then(|t| t.get("w", &[2]));
            assert!(cut.is_err(), "{end} bytes");
        }
    }
}
