//! Layers that several converted networks share, written into an ONNX graph.
//!
//! One rule: spatial sizes are known while converting, so padding is explicit and no runtime has to
//! work out what "same" means.

use super::ConvertError;
use super::onnx::{Attribute, Graph};

/// A dense array of floats, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub(super) shape: Vec<usize>,
    pub(super) data: Vec<f32>,
}

impl Tensor {
    /// The same elements with axes in the order `axes`.
    pub(super) fn permuted(&self, axes: &[usize]) -> Tensor {
        let shape: Vec<usize> = axes.iter().map(|&a| self.shape[a]).collect();
        let mut strides = vec![1; self.shape.len()];
        for i in (1..self.shape.len()).rev() {
            strides[i - 1] = strides[i] * self.shape[i];
        }
        let mut index = vec![0; shape.len()];
        let mut data = Vec::with_capacity(self.data.len());
        for _ in 0..self.data.len() {
            data.push(
                self.data[index.iter().zip(axes).map(|(&i, &a)| i * strides[a]).sum::<usize>()],
            );
            for axis in (0..shape.len()).rev() {
                index[axis] += 1;
                if index[axis] < shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Tensor { shape, data }
    }

    /// Multiplies everything that belongs to output channel `c` (first axis) with `factors[c]`.
    pub(super) fn scale_outputs(&mut self, factors: &[f32]) {
        let each = self.data.len() / factors.len().max(1);
        for (chunk, factor) in self.data.chunks_mut(each.max(1)).zip(factors) {
            chunk.iter_mut().for_each(|w| *w *= factor);
        }
    }
}

/// Batch normalisation at inference as a factor and a shift per channel.
pub(super) fn batch_norm(
    gamma: &[f32],
    beta: &[f32],
    mean: &[f32],
    variance: &[f32],
    epsilon: f32,
) -> (Vec<f32>, Vec<f32>) {
    let scale: Vec<f32> =
        gamma.iter().zip(variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
    let shift = beta.iter().zip(mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
    (scale, shift)
}

/// A value of shape N, `channels`, `height`, `width`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Picture {
    pub(super) value: String,
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// Zeros around a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// "Same" as TensorFlow defines it: `ceil(size / stride)` places, an odd zero goes after.
    Same,
    /// So many on each side.
    Each(usize),
}

/// A convolution.
pub(super) struct Convolution {
    /// Shape outputs, inputs per group, height, width.
    pub(super) weight: Tensor,
    /// One per output channel.
    pub(super) bias: Vec<f32>,
    /// Step in both directions.
    pub(super) stride: usize,
    /// Groups of channels.
    pub(super) groups: usize,
    /// Zeros around the picture.
    pub(super) padding: Padding,
}

impl Convolution {
    /// Writes the layer, refusing weights that do not fit the picture.
    pub(super) fn write(&self, graph: &mut Graph, x: &Picture) -> Result<Picture, ConvertError> {
        let [outputs, inputs, kernel_h, kernel_w] = self.weight.shape[..] else {
            return Err(misfit(format!("weights of shape {:?}", self.weight.shape)));
        };
        if inputs * self.groups != x.channels || self.bias.len() != outputs || self.stride == 0 {
            return Err(misfit(format!(
                "weights {:?} in {} groups with {} biases and stride {} on {} channels",
                self.weight.shape,
                self.groups,
                self.bias.len(),
                self.stride,
                x.channels
            )));
        }
        let (top, bottom) = self.zeros(x.height, kernel_h);
        let (left, right) = self.zeros(x.width, kernel_w);
        let weight = graph.floats(&self.weight.shape, &self.weight.data);
        let bias = graph.floats(&[outputs], &self.bias);
        let ints = |v: &[usize]| Attribute::Ints(v.iter().map(|&i| i as i64).collect());
        let value = graph.node(
            "Conv",
            &[&x.value, &weight, &bias],
            &[
                ("kernel_shape", ints(&[kernel_h, kernel_w])),
                ("strides", ints(&[self.stride, self.stride])),
                ("pads", ints(&[top, left, bottom, right])),
                ("group", Attribute::Int(self.groups as i64)),
            ],
        );
        Ok(Picture {
            value,
            channels: outputs,
            height: (x.height + top + bottom).saturating_sub(kernel_h) / self.stride + 1,
            width: (x.width + left + right).saturating_sub(kernel_w) / self.stride + 1,
        })
    }

    /// Zeros before and after an axis.
    fn zeros(&self, size: usize, kernel: usize) -> (usize, usize) {
        match self.padding {
            Padding::Same => same_padding(size, kernel, self.stride),
            Padding::Each(zeros) => (zeros, zeros),
        }
    }
}

fn misfit(found: String) -> ConvertError {
    ConvertError::Format { what: "convolution".into(), found, expected: "fitting shapes".into() }
}

/// Padding before and after an axis so that the output has `ceil(size / stride)` places.
fn same_padding(size: usize, kernel: usize, stride: usize) -> (usize, usize) {
    let places = size.div_ceil(stride);
    let total = ((places - 1) * stride + kernel).saturating_sub(size);
    (total / 2, total - total / 2)
}

/// min(max(x, 0), 6).
pub(super) fn relu6(graph: &mut Graph, x: &str) -> String {
    let low = graph.float(0.0);
    let high = graph.float(6.0);
    graph.node("Clip", &[x, &low, &high], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_padding_goes_after() {
        assert_eq!(same_padding(300, 3, 2), (0, 1));
        assert_eq!(same_padding(19, 3, 1), (1, 1));
        assert_eq!(same_padding(19, 3, 2), (1, 1));
        assert_eq!(same_padding(10, 1, 1), (0, 0));
    }

    #[test]
    fn permuting_moves_elements_with_their_axes() {
        let t = Tensor { shape: vec![2, 3], data: vec![0., 1., 2., 3., 4., 5.] };
        let p = t.permuted(&[1, 0]);
        assert_eq!(p.shape, [3, 2]);
        assert_eq!(p.data, [0., 3., 1., 4., 2., 5.]);
        assert_eq!(p.permuted(&[1, 0]), t);
    }
}
