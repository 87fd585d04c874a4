//! Reads the fields of a request's body. One rule: absent and `null` are the same; a wrong type or a value outside
//! its range is a 400 that names the field, what was found and what was expected. Unknown fields are nobody's
//! business.

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::error::ApiError;

/// The body of a request.
#[derive(Debug)]
pub(super) struct Fields<'a>(&'a Map<String, Value>);

/// A value as it is shown in an error.
pub(super) fn shown(value: &Value) -> String {
    const CHARS_MAX: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The body as an object.
///
/// # Errors
/// 400 when it is something else.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let bad = |message: String| ApiError::new(StatusCode::BAD_REQUEST, message);
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(bad(format!("the body is {}, expected a JSON object", shown(&other)))),
        Err(e) => Err(bad(format!("the body is no JSON: {e}"))),
    }
}

impl<'a> Fields<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Fields(map)
    }

    /// Whatever it is, unless absent or `null`.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn bool(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        Ok(self.typed(name, "an object", Value::as_object)?.map(Fields))
    }

    pub(super) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        Ok(self.typed(name, "a list", Value::as_array)?.map(Vec::as_slice))
    }

    /// A number from `min` to `max`.
    pub(super) fn number(&self, name: &str, min: f64, max: f64) -> Result<Option<f32>, ApiError> {
        let expected = || match max {
            f64::MAX => format!("a number of at least {min}"),
            _ => format!("a number from {min} to {max}"),
        };
        let within = |value: &Value| value.as_f64().filter(|n| (min..=max).contains(n));
        Ok(self.typed(name, expected, within)?.map(|n| n as f32))
    }

    /// An integer from `min` to `max`; `1.0` is one too.
    pub(super) fn integer(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>, ApiError> {
        let expected = || match max {
            i64::MAX => format!("an integer of at least {min}"),
            _ => format!("an integer from {min} to {max}"),
        };
        self.typed(name, expected, |value| integer(value).filter(|n| (min..=max).contains(n)))
    }

    /// A string, or a list of strings.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, ApiError> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text.clone()]),
            Some(_) => {
                let all = |value: &Value| {
                    let texts = value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned));
                    texts.collect::<Option<Vec<String>>>()
                };
                Ok(self.typed(name, "a string or a list of strings", all)?.unwrap_or_default())
            }
        }
    }

    /// A list of token ids.
    pub(super) fn tokens(&self, name: &str) -> Result<Option<Vec<i32>>, ApiError> {
        self.typed(name, "a list of token ids", tokens)
    }

    /// Refuses what the program can't do, where ignoring it would change the answer.
    pub(super) fn refuse(&self, name: &str, idle: &[Value]) -> Result<(), ApiError> {
        match self.get(name) {
            Some(asked) if !idle.contains(asked) => Err(ApiError::field(
                name,
                format!("{} is asked for, which is not supported", shown(asked)),
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn typed<T>(
        &self,
        name: &str,
        expected: impl Expected,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || {
            let found = format!("found {}, expected {}", shown(value), expected.text());
            ApiError::field(name, found)
        };
        read(value).map(Some).ok_or_else(wrong)
    }
}

/// What a field should have been; made into text only when it was not.
pub(super) trait Expected {
    fn text(self) -> String;
}

impl Expected for &str {
    fn text(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> Expected for F {
    fn text(self) -> String {
        self()
    }
}

fn integer(value: &Value) -> Option<i64> {
    // Exact up to here; what is beyond is no count of anything.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |n: f64| (n.fract() == 0.0 && n.abs() <= EXACT).then_some(n as i64);
    value.as_i64().or_else(|| value.as_f64().filter(|_| value.is_f64()).and_then(whole))
}

pub(super) fn tokens(value: &Value) -> Option<Vec<i32>> {
    let tokens = value.as_array()?.iter().map(|v| i32::try_from(v.as_i64()?).ok());
    tokens.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn absent_and_null_are_the_same() {
        let map = map(json!({ "a": null }));
        let fields = Fields::new(&map);
        for name in ["a", "b"] {
            assert_eq!(fields.bool(name), Ok(None));
            assert_eq!(fields.integer(name, 0, 9), Ok(None));
            assert_eq!(fields.texts(name), Ok(vec![]));
            assert_eq!(fields.refuse(name, &[]), Ok(()));
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_what_was_expected() {
        let map =
            map(json!({ "n": "2", "t": 3.5, "stop": ["a", 1], "ids": [1, 4294967296i64], "x": 1 }));
        let fields = Fields::new(&map);
        let said = [
            fields.integer("n", 1, 8).unwrap_err(),
            fields.number("t", 0.0, 2.0).unwrap_err(),
            fields.texts("stop").unwrap_err(),
            fields.tokens("ids").unwrap_err(),
            fields.bool("x").unwrap_err(),
            fields.refuse("x", &[json!(0)]).unwrap_err(),
        ];
        let want = [
            "`n`: found \"2\", expected an integer from 1 to 8",
            "`t`: found 3.5, expected a number from 0 to 2",
            "`stop`: found [\"a\",1], expected a string or a list of strings",
            "`ids`: found [1,4294967296], expected a list of token ids",
            "`x`: found 1, expected true or false",
            "`x`: 1 is asked for, which is not supported",
        ];
        for (error, want) in said.iter().zip(want) {
            assert_eq!((error.status.as_u16(), error.message.as_str()), (400, want));
        }
        assert_eq!(said[0].param.as_deref(), Some("n"));
    }

    #[test]
    fn numbers_are_read_as_clients_write_them() {
        let map = map(json!({ "a": 2, "b": 2.0, "c": 2.5, "d": 1e300, "e": -1 }));
        let fields = Fields::new(&map);
        assert_eq!(fields.integer("a", 0, 9), Ok(Some(2)));
        assert_eq!(fields.integer("b", 0, 9), Ok(Some(2)));
        assert!(fields.integer("c", 0, 9).is_err());
        assert!(fields.integer("d", 0, i64::MAX).is_err());
        assert!(fields.integer("e", 0, i64::MAX).is_err());
        assert_eq!(fields.number("a", 0.0, f64::MAX), Ok(Some(2.0)));
    }

    #[test]
    fn a_body_is_an_object() {
        assert!(object(b"{\"a\": 1}").is_ok());
        assert!(object(b"[1]").unwrap_err().message.contains("expected a JSON object"));
        assert!(object(b"{\"a\": ").unwrap_err().message.contains("no JSON"));
        assert!(object("[".repeat(100_000).as_bytes()).is_err(), "deep nesting costs no stack");
    }
}
