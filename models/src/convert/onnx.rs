//! Writes ONNX files: the few protobuf messages a graph needs, field numbers from `onnx.proto3`.
//!
//! Used by the converters beside it. One rule: the same calls in the same order give the same bytes,
//! so that a converted file has one hash everywhere.

/// Element types of `TensorProto.DataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// 32-bit float.
    Float = 1,
    /// 64-bit integer.
    Int64 = 7,
}

/// One dimension of an input or output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dim {
    /// Known.
    Fixed(usize),
    /// Named, decided by the caller of the graph.
    Free(&'static str),
}

/// A node's attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    /// INT
    Int(i64),
    /// INTS
    Ints(Vec<i64>),
    /// FLOAT
    Float(f32),
    /// STRING
    Text(&'static str),
}

/// A graph under construction. Values are known by name; every method that makes one returns its name.
pub(crate) struct Graph {
    name: &'static str,
    nodes: Vec<Vec<u8>>,
    initializers: Vec<Vec<u8>>,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    values: usize,
}

/// Version of the operator set that the converters write.
const OPSET: u64 = 20;
/// Version of the file format that goes with it.
const IR_VERSION: u64 = 9;

impl Graph {
    pub(crate) fn new(name: &'static str) -> Self {
        Graph {
            name,
            nodes: Vec::new(),
            initializers: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            values: 0,
        }
    }

    /// Declares an input.
    pub(crate) fn input(&mut self, name: &str, element: Element, shape: &[Dim]) -> String {
        self.inputs.push(value_info(name, element, shape));
        name.to_owned()
    }

    /// Declares `value` an output under the name `name`.
    pub(crate) fn output(&mut self, value: &str, name: &str, element: Element, shape: &[Dim]) {
        self.nodes.push(node("Identity", &[value], name, &[]));
        self.outputs.push(value_info(name, element, shape));
    }

    /// A constant of floats.
    pub(crate) fn floats(&mut self, shape: &[usize], data: &[f32]) -> String {
        let raw = data.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(Element::Float, shape, raw)
    }

    /// A one-dimensional constant of integers.
    pub(crate) fn ints(&mut self, data: &[i64]) -> String {
        let raw = data.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(Element::Int64, &[data.len()], raw)
    }

    /// A constant float without dimensions.
    pub(crate) fn float(&mut self, value: f32) -> String {
        self.floats(&[], &[value])
    }

    /// A node with one output.
    pub(crate) fn node(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> String {
        let output = self.fresh();
        self.nodes.push(node(op, inputs, &output, attributes));
        output
    }

    /// The finished file.
    pub(crate) fn encode(self, producer: &str) -> Vec<u8> {
        let mut graph = Message::default();
        for node in &self.nodes {
            graph.bytes(1, node);
        }
        graph.text(2, self.name);
        for initializer in &self.initializers {
            graph.bytes(5, initializer);
        }
        for input in &self.inputs {
            graph.bytes(11, input);
        }
        for output in &self.outputs {
            graph.bytes(12, output);
        }
        let mut opset = Message::default();
        opset.text(1, "");
        opset.varint(2, OPSET);
        let mut model = Message::default();
        model.varint(1, IR_VERSION);
        model.text(2, producer);
        model.bytes(7, &graph.0);
        model.bytes(8, &opset.0);
        model.0
    }

    fn constant(&mut self, element: Element, shape: &[usize], raw: Vec<u8>) -> String {
        let name = self.fresh();
        let mut tensor = Message::default();
        for &dim in shape {
            tensor.varint(1, dim as u64);
        }
        tensor.varint(2, element as u64);
        tensor.text(8, &name);
        tensor.bytes(9, &raw);
        self.initializers.push(tensor.0);
        name
    }

    fn fresh(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }
}

fn node(op: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) -> Vec<u8> {
    let mut node = Message::default();
    for input in inputs {
        node.text(1, input);
    }
    node.text(2, output);
    node.text(3, &format!("{op}_{output}"));
    node.text(4, op);
    for (name, value) in attributes {
        let mut attribute = Message::default();
        attribute.text(1, name);
        let kind = match value {
            Attribute::Float(v) => {
                attribute.fixed32(2, *v);
                1
            }
            Attribute::Int(v) => {
                attribute.varint(3, *v as u64);
                2
            }
            Attribute::Text(v) => {
                attribute.text(4, v);
                3
            }
            Attribute::Ints(all) => {
                for v in all {
                    attribute.varint(8, *v as u64);
                }
                7
            }
        };
        attribute.varint(20, kind);
        node.bytes(5, &attribute.0);
    }
    node.0
}

fn value_info(name: &str, element: Element, shape: &[Dim]) -> Vec<u8> {
    let mut dims = Message::default();
    for dim in shape {
        let mut one = Message::default();
        match dim {
            Dim::Fixed(size) => one.varint(1, *size as u64),
            Dim::Free(name) => one.text(2, name),
        }
        dims.bytes(1, &one.0);
    }
    let mut tensor = Message::default();
    tensor.varint(1, element as u64);
    tensor.bytes(2, &dims.0);
    let mut kind = Message::default();
    kind.bytes(1, &tensor.0);
    let mut info = Message::default();
    info.text(1, name);
    info.bytes(2, &kind.0);
    info.0
}

/// A protobuf message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn varint(&mut self, field: u64, value: u64) {
        self.raw_varint(field << 3);
        self.raw_varint(value);
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.raw_varint(field << 3 | 2);
        self.raw_varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn fixed32(&mut self, field: u64, value: f32) {
        self.raw_varint(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_groups_of_seven_bits() {
        let mut message = Message::default();
        message.varint(1, 300);
        message.varint(20, 7);
        assert_eq!(message.0, [0x08, 0xac, 0x02, 0xa0, 0x01, 0x07]);
        let mut negative = Message::default();
        negative.varint(3, -1_i64 as u64);
        assert_eq!(negative.0.len(), 11);
    }

    #[test]
    fn a_value_info_carries_fixed_and_free_dimensions() {
        let bytes = value_info("x", Element::Float, &[Dim::Free("n"), Dim::Fixed(3)]);
        let expected: &[u8] =
            b"\x0a\x01x\x12\x0f\x0a\x0d\x08\x01\x12\x09\x0a\x03\x12\x01n\x0a\x02\x08\x03";
        assert_eq!(bytes, expected);
    }
}
