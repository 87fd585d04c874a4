//! Durations in configuration: `500ms`, `1s`, `2m`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Parses `500ms`, `1s`, `2m`; none for anything else.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => number.checked_mul(1_000).map(Duration::from_millis),
        "m" => number.checked_mul(60_000).map(Duration::from_millis),
        _ => None,
    }
}

/// Writes what [`parse`] reads.
pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let ms = value.as_millis();
    if ms.is_multiple_of(1_000) {
        serializer.collect_str(&format_args!("{}s", ms / 1_000))
    } else {
        serializer.collect_str(&format_args!("{ms}ms"))
    }
}

/// For `#[serde(with = "…")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "`{text}` is no duration: expected such as `500ms`, `1s`, `2m`"
        ))
    })
}
