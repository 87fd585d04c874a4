//! Reads the float tensors of a PyTorch checkpoint in the format before 1.6: five pickles, then raw storages.
//!
//! One rule: a pickle is data. The two callables that checkpoints need are known by name, everything else
//! is refused, so nothing in a file can run.

use std::collections::{BTreeMap, HashMap};

use super::ConvertError;
use super::layers::Tensor;

/// First pickle of the format.
const MAGIC: i128 = 0x1950_a86a_20f9_469c_fc6c;

/// Name → tensor for every float tensor of the checkpoint's dictionary.
pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>, ConvertError> {
    let mut input = Input { bytes, at: 0 };
    let magic = unpickle(&mut input)?;
    if !matches!(magic, Value::Int(MAGIC)) {
        return Err(bad(&format!("{magic:?} first"), "the magic number of a checkpoint"));
    }
    unpickle(&mut input)?; // protocol version
    unpickle(&mut input)?; // sizes of the writer's types
    let Value::Dict(entries) = unpickle(&mut input)? else {
        return Err(bad("no dictionary", "a dictionary of tensors"));
    };
    let Value::List(keys) = unpickle(&mut input)? else {
        return Err(bad("no list of storages", "the order of the storages"));
    };
    let storages = read_storages(&mut input, &keys, &entries)?;
    let mut tensors = BTreeMap::new();
    for (name, value) in entries {
        if let (Value::Text(name), Value::Tensor(view)) = (name, value)
            && view.storage.float
        {
            let tensor = view.gather(&storages).ok_or_else(|| ConvertError::Format {
                what: name.clone(),
                found: format!("shape {:?} with steps {:?}", view.shape, view.strides),
                expected: "a view inside its storage".into(),
            })?;
            tensors.insert(name, tensor);
        }
    }
    Ok(tensors)
}

fn read_storages(
    input: &mut Input,
    keys: &[Value],
    entries: &[(Value, Value)],
) -> Result<HashMap<String, Vec<f32>>, ConvertError> {
    let float: HashMap<&str, bool> = entries
        .iter()
        .filter_map(|(_, value)| match value {
            Value::Tensor(view) => Some((view.storage.key.as_str(), view.storage.float)),
            _ => None,
        })
        .collect();
    let mut storages = HashMap::new();
    for key in keys {
        let Value::Text(key) = key else {
            return Err(bad(&format!("storage {key:?}"), "the name of a storage"));
        };
        let is_float =
            *float.get(key.as_str()).ok_or_else(|| bad("a storage", "a tensor in it"))?;
        let count = usize::try_from(i64::from_le_bytes(input.array()?)).unwrap_or(usize::MAX);
        let raw = input.take(count.saturating_mul(if is_float { 4 } else { 8 }))?;
        if is_float {
            let (floats, _) = raw.as_chunks();
            storages.insert(key.clone(), floats.iter().map(|&b| f32::from_le_bytes(b)).collect());
        }
    }
    Ok(storages)
}

#[derive(Clone, Debug)]
struct Storage {
    key: String,
    /// f32 when true, i64 when false.
    float: bool,
}

/// A view into a storage, steps in elements.
#[derive(Clone, Debug)]
struct View {
    storage: Storage,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    /// The elements in row-major order; none when the view leaves its storage.
    fn gather(&self, storages: &HashMap<String, Vec<f32>>) -> Option<Tensor> {
        let all = storages.get(&self.storage.key)?;
        let count = self.shape.iter().try_fold(1_usize, |n, &s| n.checked_mul(s))?;
        if count > all.len() || self.shape.len() != self.strides.len() {
            return None;
        }
        let mut places = vec![self.offset];
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let steps: Vec<usize> =
                (0..size).map(|i| i.checked_mul(stride)).collect::<Option<_>>()?;
            places = places
                .iter()
                .flat_map(|p| steps.iter().map(move |s| p.checked_add(*s)))
                .collect::<Option<_>>()?;
        }
        let data = places.iter().map(|&p| all.get(p).copied()).collect::<Option<_>>()?;
        Some(Tensor { shape: self.shape.clone(), data })
    }
}

#[derive(Clone, Debug)]
enum Value {
    None,
    Bool,
    Int(i128),
    Text(String),
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Callable(String),
    Storage(Storage),
    Tensor(View),
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ConvertError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..count).ok_or_else(|| {
            bad(&format!("{} bytes at {}", rest.len(), self.at), &format!("{count} bytes"))
        })?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ConvertError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn byte(&mut self) -> Result<u8, ConvertError> {
        Ok(self.array::<1>()?[0])
    }

    fn line(&mut self) -> Result<String, ConvertError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|&b| b == b'\n').ok_or_else(|| bad("no line", "a name"))?;
        let line = self.take(end + 1)?;
        Ok(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn text(&mut self) -> Result<String, ConvertError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_owned).map_err(|e| bad(&e.to_string(), "UTF-8"))
    }
}

/// The stack machine's state while one pickle is read.
#[derive(Default)]
struct Machine {
    stack: Vec<Value>,
    marks: Vec<usize>,
    /// Values as they were when remembered: containers filled later are not looked up again by checkpoints.
    memo: HashMap<u32, Value>,
}

fn unpickle(input: &mut Input) -> Result<Value, ConvertError> {
    let mut machine = Machine::default();
    loop {
        let op = input.byte()?;
        if op == b'.' {
            return machine.pop();
        }
        machine.step(op, input)?;
    }
}

impl Machine {
    fn step(&mut self, op: u8, input: &mut Input) -> Result<(), ConvertError> {
        match op {
            0x80 => drop(input.byte()?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.stack.push(Value::None),
            0x88 | 0x89 => self.stack.push(Value::Bool),
            b'K' => self.int(i128::from(input.byte()?)),
            b'M' => self.int(i128::from(u16::from_le_bytes(input.array()?))),
            b'J' => self.int(i128::from(i32::from_le_bytes(input.array()?))),
            0x8a => {
                let length = usize::from(input.byte()?);
                let bytes = input.take(length)?;
                self.int(long(bytes)?);
            }
            b'X' => self.stack.push(Value::Text(input.text()?)),
            b'}' => self.stack.push(Value::Dict(Vec::new())),
            b']' => self.stack.push(Value::List(Vec::new())),
            b')' => self.stack.push(Value::Tuple(Vec::new())),
            b't' => {
                let items = self.pop_to_mark()?;
                self.stack.push(Value::Tuple(items));
            }
            0x85..=0x87 => {
                let at = self.stack.len().checked_sub(usize::from(op - 0x84));
                let items = self.stack.split_off(at.ok_or_else(underflow)?);
                self.stack.push(Value::Tuple(items));
            }
            b'q' => self.remember(u32::from(input.byte()?))?,
            b'r' => self.remember(u32::from_le_bytes(input.array()?))?,
            b'h' => self.recall(u32::from(input.byte()?))?,
            b'j' => self.recall(u32::from_le_bytes(input.array()?))?,
            b's' => {
                let at = self.stack.len().checked_sub(2).ok_or_else(underflow)?;
                let items = self.stack.split_off(at);
                self.extend(items)?;
            }
            b'u' | b'e' => {
                let items = self.pop_to_mark()?;
                self.extend(items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            b'c' => {
                let name = format!("{}.{}", input.line()?, input.line()?);
                self.stack.push(Value::Callable(name));
            }
            b'Q' => {
                let id = self.pop()?;
                self.stack.push(Value::Storage(storage(id)?));
            }
            b'R' => {
                let arguments = self.pop()?;
                let callable = self.pop()?;
                self.stack.push(call(callable, arguments)?);
            }
            b'b' => drop(self.pop()?), // state of the dictionary itself: versions, no tensors
            other => {
                let found = format!("operation {other:#04x} at {}", input.at - 1);
                return Err(bad(&found, "an operation that checkpoints use"));
            }
        }
        Ok(())
    }

    fn int(&mut self, value: i128) {
        self.stack.push(Value::Int(value));
    }

    fn pop(&mut self) -> Result<Value, ConvertError> {
        self.stack.pop().ok_or_else(underflow)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, ConvertError> {
        let mark = self.marks.pop().ok_or_else(underflow)?;
        if mark > self.stack.len() {
            return Err(underflow());
        }
        Ok(self.stack.split_off(mark))
    }

    fn remember(&mut self, key: u32) -> Result<(), ConvertError> {
        let top = self.stack.last().ok_or_else(underflow)?;
        self.memo.insert(key, top.clone());
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Result<(), ConvertError> {
        let value = self.memo.get(&key).ok_or_else(|| bad("an unknown memo", "a known one"))?;
        self.stack.push(value.clone());
        Ok(())
    }

    fn extend(&mut self, items: Vec<Value>) -> Result<(), ConvertError> {
        match self.stack.last_mut() {
            Some(Value::List(list)) => list.extend(items),
            Some(Value::Dict(dict)) => {
                let mut items = items.into_iter();
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    dict.push((key, value));
                }
            }
            other => return Err(bad(&format!("{other:?}"), "a list or dictionary")),
        }
        Ok(())
    }
}

/// Little-endian two's complement of up to 16 bytes.
fn long(bytes: &[u8]) -> Result<i128, ConvertError> {
    if bytes.len() > 16 {
        return Err(bad(&format!("an integer of {} bytes", bytes.len()), "at most 16"));
    }
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut wide = if negative { [0xff; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    Ok(i128::from_le_bytes(wide))
}

/// A storage out of its persistent id ("storage", type, key, device, count, view).
fn storage(id: Value) -> Result<Storage, ConvertError> {
    let Value::Tuple(id) = id else { return Err(bad(&format!("{id:?}"), "a storage's id")) };
    match &id[..] {
        [Value::Text(_), Value::Callable(kind), Value::Text(key), ..] => {
            let float = match kind.as_str() {
                "torch.FloatStorage" => true,
                "torch.LongStorage" => false,
                other => return Err(bad(other, "torch.FloatStorage or torch.LongStorage")),
            };
            Ok(Storage { key: key.clone(), float })
        }
        other => Err(bad(&format!("{other:?}"), "a storage's id")),
    }
}

fn call(callable: Value, arguments: Value) -> Result<Value, ConvertError> {
    let (Value::Callable(name), Value::Tuple(arguments)) = (callable, arguments) else {
        return Err(bad("a call of something else", "a callable and its arguments"));
    };
    match (name.as_str(), &arguments[..]) {
        ("collections.OrderedDict", []) => Ok(Value::Dict(Vec::new())),
        (
            "torch._utils._rebuild_tensor_v2",
            [
                Value::Storage(storage),
                Value::Int(offset),
                Value::Tuple(shape),
                Value::Tuple(steps),
                ..,
            ],
        ) => Ok(Value::Tensor(View {
            storage: storage.clone(),
            offset: size(*offset)?,
            shape: sizes(shape)?,
            strides: sizes(steps)?,
        })),
        (other, _) => Err(bad(&format!("a call of {other}"), "only tensors and dictionaries")),
    }
}

fn sizes(values: &[Value]) -> Result<Vec<usize>, ConvertError> {
    values
        .iter()
        .map(|v| match v {
            Value::Int(i) => size(*i),
            other => Err(bad(&format!("{other:?}"), "a size")),
        })
        .collect()
}

fn size(value: i128) -> Result<usize, ConvertError> {
    usize::try_from(value).map_err(|_| bad(&format!("size {value}"), "a size"))
}

fn underflow() -> ConvertError {
    bad("too few values on the stack", "a whole pickle")
}

fn bad(found: &str, expected: &str) -> ConvertError {
    ConvertError::Format {
        what: "checkpoint".into(),
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// {"w": a 2x2 tensor stored column by column}, as torch.save wrote it before 1.6.
    fn checkpoint() -> Vec<u8> {
        let mut bytes = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
        bytes.extend(b"\x80\x02M\xe9\x03.\x80\x02}.");
        bytes.extend(b"\x80\x02ccollections\nOrderedDict\n)Rq\x01(X\x01\0\0\0w");
        bytes.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage");
        bytes.extend(b"ctorch\nFloatStorage\nX\x01\0\0\0kX\x03\0\0\0cpuK\x04NtQ");
        bytes.extend(b"K\0K\x02K\x02\x86K\x01K\x02\x86\x89h\x01tRu.");
        bytes.extend(b"\x80\x02](X\x01\0\0\0ke.");
        bytes.extend(4_i64.to_le_bytes());
        for v in [1.0_f32, 2.0, 3.0, 4.0] {
            bytes.extend(v.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_strided_view_is_gathered_in_row_order() {
        let tensors = read(&checkpoint()).unwrap();
        assert_eq!(tensors["w"].shape, [2, 2]);
        assert_eq!(tensors["w"].data, [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn a_pickle_that_calls_anything_else_is_refused() {
        let error = read(b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R.").unwrap_err().to_string();
        assert!(error.contains("a call of os.system"), "{error}");
    }

    #[test]
    fn a_cut_checkpoint_is_an_error() {
        let whole = checkpoint();
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{end} bytes");
        }
    }
}
