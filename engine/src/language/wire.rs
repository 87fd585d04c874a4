//! What parent and child say to each other: frames of a little-endian u32 length and that many bytes of JSON.
//!
//! Its one rule: nothing that arrives can cost more than [`FRAME_BYTES_MAX`] of memory or end the reader.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};

use super::backend::{
    BackendError, EngineStats, Finish, GenerateRequest, ModelInfo, Score, ScoreRequest,
    TokenLogprob, Usage,
};

/// Longest frame; a longer length means that the two sides have lost step.
pub(super) const FRAME_BYTES_MAX: usize = 8 << 20;

/// Parent to child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum ToChild {
    Generate {
        id: u64,
        request: GenerateRequest,
    },
    Score {
        id: u64,
        request: ScoreRequest,
    },
    Tokenize {
        id: u64,
        text: String,
        special: bool,
    },
    Detokenize {
        id: u64,
        tokens: Vec<i32>,
    },
    Cancel {
        id: u64,
    },
    /// Stop between two steps; answered by `Paused`.
    Pause {
        id: u64,
    },
    Resume,
    Health {
        id: u64,
    },
    /// Forgets computed beginnings that no request needs; not answered.
    DropCaches {
        id: u64,
    },
}

/// Child to parent. A request ends with exactly one of `End`, `Scores`, `Tokens`, `Whole`, `Health`, `Error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum FromChild {
    /// Said once, when the weights are loaded.
    Ready {
        model: String,
        info: ModelInfo,
    },
    Text {
        id: u64,
        text: String,
    },
    /// Of the tokens behind the text that follows.
    Logprobs {
        id: u64,
        tokens: Vec<TokenLogprob>,
    },
    End {
        id: u64,
        finish: Finish,
        usage: Usage,
    },
    Scores {
        id: u64,
        scores: Vec<Score>,
        usage: Usage,
    },
    Tokens {
        id: u64,
        tokens: Vec<i32>,
    },
    Whole {
        id: u64,
        text: String,
    },
    Health {
        id: u64,
        stats: EngineStats,
    },
    /// Nothing is computed until `Resume`.
    Paused {
        id: u64,
    },
    /// Without an id: of a frame that could not be read.
    Error {
        id: Option<u64>,
        error: BackendError,
    },
}

/// A map whose keys are numbers. JSON writes them as text, and a tagged message does not turn them back by itself.
///
/// # Errors
/// For a key that is no number.
pub(super) fn bias_by_token<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<i32, f32>, D::Error> {
    let named = BTreeMap::<String, f32>::deserialize(from)?;
    let number = |(token, bias): (String, f32)| match token.parse() {
        Ok(token) => Ok((token, bias)),
        Err(_) => Err(D::Error::custom(format!("logit_bias of `{token}`, expected a token"))),
    };
    named.into_iter().map(number).collect()
}

/// A frame as bytes, length first.
///
/// # Errors
/// `InvalidData` for a message longer than [`FRAME_BYTES_MAX`].
pub(super) fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0_u8; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - 4;
    if length > FRAME_BYTES_MAX {
        return Err(too_long(length));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// Writes one frame.
pub(super) fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// What [`read`] found.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming<T> {
    /// A message.
    Message(T),
    /// A frame that is no message, and why. The next frame can be read.
    Garbage {
        /// The request it names, if that much can be read.
        id: Option<u64>,
        /// What was found.
        detail: String,
    },
    /// The other side is gone.
    End,
}

/// Reads one frame.
///
/// # Errors
/// `InvalidData` for an impossible length: the sides have lost step; else what the system said.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Incoming<T>> {
    let mut head = [0_u8; 4];
    match from.read_exact(&mut head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Incoming::End),
        other => other?,
    }
    let mut body = Vec::new();
    let length = length(head)?;
    if from.take(length as u64).read_to_end(&mut body)? < length {
        return Ok(Incoming::End);
    }
    Ok(decode(&body))
}

/// The checked length in a frame's head.
pub(super) fn length(head: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(head) as usize;
    if length > FRAME_BYTES_MAX { Err(too_long(length)) } else { Ok(length) }
}

/// A frame's body as a message.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Incoming<T> {
    match serde_json::from_slice(body) {
        Ok(message) => Incoming::Message(message),
        Err(e) => Incoming::Garbage {
            id: serde_json::from_slice::<Named>(body).ok().map(|named| named.id),
            detail: format!("frame of {} bytes: {e}", body.len()),
        },
    }
}

/// What every request has, so that a wrong one can be answered.
#[derive(Deserialize)]
struct Named {
    id: u64,
}

fn too_long(length: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a frame of {length} bytes, at most {FRAME_BYTES_MAX} are expected"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_survives_the_way() {
        let sent = ToChild::Tokenize { id: 7, text: "ünï\n\"x\"".into(), special: false };
        let bytes = encode(&sent).unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(read(&mut from).unwrap(), Incoming::Message(sent));
        assert_eq!(read::<ToChild>(&mut from).unwrap(), Incoming::End);
    }

    #[test]
    fn a_bias_by_token_survives_the_way() {
        let mut request = GenerateRequest::new(super::super::backend::Prompt::template("x"), 4);
        request.sampling.logit_bias = [(7, -1.5), (40_000, 100.0)].into();
        let sent = ToChild::Generate { id: 1, request };
        assert_eq!(read(&mut encode(&sent).unwrap().as_slice()).unwrap(), Incoming::Message(sent));
        let body = br#"{"op":"generate","id":7,"request":{"prompt":{"parts":[]},"tokens_max":1,"sampling":{"logit_bias":{"x":1}}}}"#;
        let Incoming::Garbage { detail, .. } = decode::<ToChild>(body) else {
            panic!("understood")
        };
        assert!(detail.contains("logit_bias of `x`"), "{detail}");
    }

    #[test]
    fn garbage_costs_one_frame_and_a_cut_frame_is_an_end() {
        let mut bytes = vec![3, 0, 0, 0];
        bytes.extend(b"{]}");
        bytes.extend(encode(&ToChild::Health { id: 1 }).unwrap());
        bytes.extend([9, 0, 0, 0, b'{']);
        let mut from = bytes.as_slice();
        assert!(matches!(read::<ToChild>(&mut from).unwrap(), Incoming::Garbage { id: None, .. }));
        assert_eq!(read(&mut from).unwrap(), Incoming::Message(ToChild::Health { id: 1 }));
        assert_eq!(read::<ToChild>(&mut from).unwrap(), Incoming::End);
    }

    #[test]
    fn a_request_with_a_wrong_field_still_names_itself() {
        let body = br#"{"op":"generate","id":7,"request":{"stop":null}}"#;
        assert!(matches!(decode::<ToChild>(body), Incoming::Garbage { id: Some(7), .. }));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut from = bytes.as_slice();
            while let Ok(Incoming::Message(_) | Incoming::Garbage { .. }) = read::<ToChild>(&mut from) {}
        }
    }
}
