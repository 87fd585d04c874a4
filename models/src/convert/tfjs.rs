//! Reads TF.js graph models and writes their convolutional part to ONNX.
//!
//! `ssd` adds what is particular to a detector. One rule: normalisation and biases are folded into the
//! convolution before them, pictures are kept channels first.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::ConvertError;
use super::layers::{Convolution, Padding, Picture, Tensor, batch_norm, relu6};
use super::onnx::Graph;

/// Longest chain of nodes followed; the networks converted here have about 200.
const DEPTH_MAX: usize = 1_000;

/// A graph model: its nodes and its weights.
pub(super) struct Model {
    nodes: HashMap<String, Node>,
    weights: HashMap<String, Tensor>,
}

/// A node of the TensorFlow graph.
#[derive(Deserialize)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) op: String,
    #[serde(default)]
    pub(super) input: Vec<String>,
    #[serde(default)]
    attr: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    model_topology: Topology,
    weights_manifest: Vec<Group>,
}

#[derive(Deserialize)]
struct Topology {
    node: Vec<Node>,
}

#[derive(Deserialize)]
struct Group {
    paths: Vec<String>,
    weights: Vec<Weight>,
}

#[derive(Deserialize)]
struct Weight {
    name: String,
    shape: Vec<usize>,
    dtype: String,
    quantization: Option<Quantization>,
}

#[derive(Deserialize)]
struct Quantization {
    dtype: String,
    #[serde(default)]
    scale: f32,
    #[serde(default)]
    min: f32,
}

impl Model {
    /// Reads `model.json` and the shards it names, which lie beside it.
    pub(super) fn read(path: &Path) -> Result<Model, ConvertError> {
        let file: File = serde_json::from_slice(&super::read(path)?).map_err(|e| {
            let what = path.display().to_string();
            ConvertError::Format { what, found: e.to_string(), expected: "a graph model".into() }
        })?;
        let dir = path.parent().unwrap_or(Path::new("."));
        let mut weights = HashMap::new();
        for group in file.weights_manifest {
            let mut bytes = Vec::new();
            for shard in &group.paths {
                let shard = dir.join(Path::new(shard).file_name().unwrap_or_default());
                bytes.extend(fs::read(&shard).map_err(|e| ConvertError::File {
                    path: shard.display().to_string(),
                    detail: e.to_string(),
                })?);
            }
            let mut rest = &bytes[..];
            for weight in group.weights {
                let data = weight.decode(&mut rest)?;
                weights.insert(weight.name, Tensor { shape: weight.shape, data });
            }
        }
        let nodes = file.model_topology.node.into_iter().map(|n| (n.name.clone(), n)).collect();
        Ok(Model { nodes, weights })
    }

    pub(super) fn node(&self, name: &str) -> Result<&Node, ConvertError> {
        let name = name.split(':').next().unwrap_or(name);
        self.nodes.get(name).ok_or_else(|| ConvertError::Format {
            what: "graph model".into(),
            found: format!("{} nodes, none called `{name}`", self.nodes.len()),
            expected: "the nodes of the known network".into(),
        })
    }

    /// The node `name`, which must be one of `ops`.
    pub(super) fn node_of(&self, name: &str, ops: &[&str]) -> Result<&Node, ConvertError> {
        let node = self.node(name)?;
        if !ops.contains(&node.op.as_str()) {
            return Err(node.refused(&format!("one of {}", ops.join(", "))));
        }
        Ok(node)
    }

    pub(super) fn constant(&self, name: &str) -> Option<&Tensor> {
        self.weights.get(name)
    }

    /// The constant whose path ends with `last`.
    pub(super) fn constant_ending(&self, last: &str) -> Option<&Tensor> {
        self.weights.iter().find(|(name, _)| name.rsplit('/').next() == Some(last)).map(|(_, t)| t)
    }

    /// The constant `name`, which must have `shape`.
    pub(super) fn constant_of(&self, name: &str, shape: &[usize]) -> Result<&Tensor, ConvertError> {
        match self.constant(name) {
            Some(tensor) if tensor.shape == shape => Ok(tensor),
            other => Err(ConvertError::Format {
                what: format!("node `{name}`"),
                found: other.map_or("no constant".into(), |t| format!("shape {:?}", t.shape)),
                expected: format!("a constant of shape {shape:?}"),
            }),
        }
    }

    /// A constant without dimensions.
    pub(super) fn scalar(&self, name: &str) -> Result<f32, ConvertError> {
        Ok(self.constant_of(name, &[])?.data[0])
    }
}

impl Node {
    pub(super) fn refused(&self, expected: &str) -> ConvertError {
        ConvertError::Format {
            what: format!("node `{}`", self.name),
            found: format!("{} with inputs {:?}", self.op, self.input),
            expected: expected.to_owned(),
        }
    }

    pub(super) fn inputs<const N: usize>(&self) -> Result<[&str; N], ConvertError> {
        let names: Vec<&str> = self.input.iter().map(String::as_str).collect();
        names.try_into().map_err(|_| self.refused(&format!("{N} inputs")))
    }

    fn attribute(&self, path: &str) -> Option<&Value> {
        self.attr.pointer(path)
    }

    /// Step of a convolution, the same in both directions.
    fn stride(&self) -> Result<usize, ConvertError> {
        let known = || self.refused("strides [1, n, n, 1], \"SAME\" padding, no dilation");
        let list = |name: &str| -> Option<Vec<i64>> {
            let list = self.attribute(&format!("/{name}/list/i"))?.as_array()?;
            list.iter().map(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok())).collect()
        };
        let padding = self.attribute("/padding/s");
        let same = [serde_json::json!([83, 65, 77, 69]), serde_json::json!("U0FNRQ==")];
        let undilated = list("dilations").is_none_or(|d| d.is_empty() || d == [1, 1, 1, 1]);
        match list("strides").as_deref() {
            Some(&[1, s, t, 1])
                if s == t && undilated && padding.is_some_and(|p| same.contains(p)) =>
            {
                usize::try_from(s).map_err(|_| known())
            }
            _ => Err(known()),
        }
    }
}

impl Weight {
    /// Takes this weight's bytes off `rest` and gives its values, dequantised.
    fn decode(&self, rest: &mut &[u8]) -> Result<Vec<f32>, ConvertError> {
        let count = self.shape.iter().try_fold(1_usize, |n, &s| n.checked_mul(s));
        let stored = self.quantization.as_ref().map_or(&self.dtype, |q| &q.dtype);
        let width = match stored.as_str() {
            "float32" | "int32" => 4,
            "float16" | "uint16" => 2,
            "uint8" | "bool" => 1,
            other => return Err(self.bad(format!("type {other}"), "numbers".into())),
        };
        let size = count.and_then(|c| c.checked_mul(width)).unwrap_or(usize::MAX);
        let Some((bytes, after)) = rest.split_at_checked(size) else {
            return Err(self.bad(format!("{} bytes", rest.len()), format!("{size} bytes")));
        };
        *rest = after;
        let (pairs, fours) = (bytes.as_chunks::<2>().0, bytes.as_chunks::<4>().0);
        let raw: Vec<f32> = match stored.as_str() {
            "float32" => fours.iter().map(|&b| f32::from_le_bytes(b)).collect(),
            "int32" => fours.iter().map(|&b| i32::from_le_bytes(b) as f32).collect(),
            "float16" => pairs.iter().map(|&b| half(u16::from_le_bytes(b))).collect(),
            "uint16" => pairs.iter().map(|&b| f32::from(u16::from_le_bytes(b))).collect(),
            _ => bytes.iter().map(|&b| f32::from(b)).collect(),
        };
        Ok(match &self.quantization {
            Some(q) if q.dtype != "float16" => raw.iter().map(|v| v * q.scale + q.min).collect(),
            _ => raw,
        })
    }

    fn bad(&self, found: String, expected: String) -> ConvertError {
        ConvertError::Format { what: format!("weight `{}`", self.name), found, expected }
    }
}

/// IEEE 754 half precision to single.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f32::from(bits & 0x3ff) / 1024.0;
    match (bits >> 10) & 0x1f {
        0 => sign * fraction * 2.0_f32.powi(-14),
        31 if bits & 0x3ff == 0 => sign * f32::INFINITY,
        31 => f32::NAN,
        exponent => sign * (1.0 + fraction) * 2.0_f32.powi(i32::from(exponent) - 15),
    }
}

/// Writes pictures of a model into a graph, each once.
pub(super) struct Pictures<'a> {
    model: &'a Model,
    done: HashMap<&'a str, Picture>,
}

impl<'a> Pictures<'a> {
    /// `input` stands for the node `name`.
    pub(super) fn new(model: &'a Model, name: &'a str, input: Picture) -> Self {
        Pictures { model, done: HashMap::from([(name, input)]) }
    }

    /// The picture that the node `name` makes.
    pub(super) fn get(
        &mut self,
        graph: &mut Graph,
        name: &'a str,
    ) -> Result<Picture, ConvertError> {
        self.write(graph, name, 0)
    }

    fn write(
        &mut self,
        graph: &mut Graph,
        name: &'a str,
        depth: usize,
    ) -> Result<Picture, ConvertError> {
        if let Some(picture) = self.done.get(name) {
            return Ok(picture.clone());
        }
        let node = self.model.node(name)?;
        if depth > DEPTH_MAX {
            return Err(node.refused("a graph without cycles"));
        }
        let picture = match (node.op.as_str(), &node.input[..]) {
            ("Relu6", [x]) => {
                let x = self.write(graph, x, depth + 1)?;
                Picture { value: relu6(graph, &x.value), ..x }
            }
            ("Add" | "AddV2" | "AddN", [a, b]) if !self.is_constant(a) && !self.is_constant(b) => {
                let a = self.write(graph, a, depth + 1)?;
                let b = self.write(graph, b, depth + 1)?;
                sum(graph, node, a, b)?
            }
            _ => self.convolution(graph, node, None, depth)?,
        };
        self.done.insert(name, picture.clone());
        Ok(picture)
    }

    fn is_constant(&self, name: &str) -> bool {
        self.model.constant(name).is_some()
    }

    /// A convolution and the factors and shifts per channel that follow it, from the last one up.
    fn convolution(
        &mut self,
        graph: &mut Graph,
        last: &'a Node,
        mut shift: Option<Vec<f32>>,
        depth: usize,
    ) -> Result<Picture, ConvertError> {
        // The value wanted is `scale * node + shift` for the node reached so far.
        let mut scale = None::<Vec<f32>>;
        let mut node = last;
        for _ in 0..DEPTH_MAX {
            let (factor, offset) = match node.op.as_str() {
                "Conv2D" | "DepthwiseConv2dNative" => {
                    let [x, weight] = node.inputs()?;
                    let x = self.write(graph, x, depth + 1)?;
                    let weight = self.model.constant(weight);
                    let weight = weight.ok_or_else(|| node.refused("constant weights"))?;
                    let mut layer = layer(node, weight)?;
                    if let Some(scale) = scale {
                        layer.weight.scale_outputs(&scale);
                    }
                    layer.bias = shift.unwrap_or_else(|| vec![0.0; layer.weight.shape[0]]);
                    return layer.write(graph, &x);
                }
                "Add" | "AddV2" | "AddN" if !node.input.iter().any(|i| self.is_constant(i)) => {
                    // A shortcut joins before the bias: the bias goes to the convolution's side of it.
                    let [a, b] = node.inputs()?;
                    if scale.is_some() || depth > DEPTH_MAX {
                        return Err(node.refused("a sum that only a bias follows"));
                    }
                    let a = self.convolution(graph, self.model.node(a)?, shift, depth + 1)?;
                    let b = self.write(graph, b, depth + 1)?;
                    return sum(graph, node, a, b);
                }
                "Add" | "AddV2" | "BiasAdd" => (None, Some(self.per_channel(node)?)),
                "Mul" => (Some(self.per_channel(node)?), None),
                "FusedBatchNorm" | "FusedBatchNormV2" | "FusedBatchNormV3" => {
                    let (factor, offset) = self.batch_norm(node)?;
                    (Some(factor), Some(offset))
                }
                _ => return Err(node.refused("a convolution, its normalisation or its bias")),
            };
            if let Some(offset) = offset {
                let scaled = product(&offset, scale.as_deref());
                shift = Some(match shift {
                    Some(shift) => shift.iter().zip(&scaled).map(|(a, b)| a + b).collect(),
                    None => scaled,
                });
            }
            if let Some(factor) = factor {
                scale = Some(product(&factor, scale.as_deref()));
            }
            let before = node.input.iter().find(|i| !self.is_constant(i));
            let before = before.ok_or_else(|| node.refused("an input"))?;
            node = self.model.node(before)?;
        }
        Err(node.refused("a graph without cycles"))
    }

    /// The constant that the node adds to or multiplies each channel with.
    fn per_channel(&self, node: &Node) -> Result<Vec<f32>, ConvertError> {
        match node.input.iter().find_map(|name| self.model.constant(name)) {
            Some(t) if t.shape.iter().filter(|&&s| s > 1).count() <= 1 => Ok(t.data.clone()),
            _ => Err(node.refused("a constant per channel")),
        }
    }

    fn batch_norm(&self, node: &Node) -> Result<(Vec<f32>, Vec<f32>), ConvertError> {
        let [_, gamma, beta, mean, variance] = node.inputs()?;
        let epsilon = node.attribute("/epsilon/f").and_then(Value::as_f64);
        let epsilon = epsilon.ok_or_else(|| node.refused("an epsilon"))? as f32;
        let channels = self.model.constant(gamma).map_or(0, |g| g.data.len());
        let part = |name| Ok(&self.model.constant_of(name, &[channels])?.data);
        Ok(batch_norm(part(gamma)?, part(beta)?, part(mean)?, part(variance)?, epsilon))
    }
}

fn sum(graph: &mut Graph, node: &Node, a: Picture, b: Picture) -> Result<Picture, ConvertError> {
    if (a.channels, a.height, a.width) != (b.channels, b.height, b.width) {
        return Err(node.refused("two pictures of one shape"));
    }
    Ok(Picture { value: graph.node("Add", &[&a.value, &b.value], &[]), ..a })
}

fn product(values: &[f32], factors: Option<&[f32]>) -> Vec<f32> {
    match factors {
        Some(factors) => values.iter().zip(factors).map(|(v, f)| v * f).collect(),
        None => values.to_vec(),
    }
}

/// The layer of a convolution node, its weights turned to outputs, inputs, height, width.
fn layer(node: &Node, weight: &Tensor) -> Result<Convolution, ConvertError> {
    let [height, width, inputs, last] = weight.shape[..] else {
        return Err(node.refused("weights with four axes"));
    };
    let stride = node.stride()?;
    let (weight, groups) = if node.op == "Conv2D" {
        (weight.permuted(&[3, 2, 0, 1]), 1)
    } else {
        let moved = weight.permuted(&[2, 3, 0, 1]);
        (Tensor { shape: vec![inputs * last, 1, height, width], data: moved.data }, inputs)
    };
    Ok(Convolution { weight, bias: Vec::new(), stride, groups, padding: Padding::Same })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantised_weights_are_given_back_their_scale() {
        let quantization = Quantization { dtype: "uint8".into(), scale: 0.5, min: -1.0 };
        let weight = Weight {
            name: "w".into(),
            shape: vec![3],
            dtype: "float32".into(),
            quantization: Some(quantization),
        };
        let mut bytes: &[u8] = &[0, 2, 255, 9];
        assert_eq!(weight.decode(&mut bytes).unwrap(), [-1.0, 0.0, 126.5]);
        assert_eq!(bytes, [9]);
        assert!(weight.decode(&mut bytes).is_err());
    }

    #[test]
    fn half_precision_covers_small_and_special_values() {
        assert_eq!(half(0x3c00), 1.0);
        assert_eq!(half(0xc000), -2.0);
        assert_eq!(half(0x0001), 2.0_f32.powi(-24));
        assert_eq!(half(0x7c00), f32::INFINITY);
        assert!(half(0x7e00).is_nan());
    }
}
