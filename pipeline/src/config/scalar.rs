//! What a single word of YAML is: text, number, truth or nothing.

use serde_saphyr::granit_parser::ScalarStyle;

use super::tree::{Text, Value};

/// YAML 1.2 core schema. `yes`, `no`, `on`, `off` are text.
pub(super) fn scalar(text: &str, style: ScalarStyle) -> Value {
    let as_text = || Value::Text(Text { text: text.to_owned(), written: None });
    if style != ScalarStyle::Plain {
        return as_text();
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        _ => {}
    }
    let (sign, digits) = match text.as_bytes() {
        [b'-', ..] => (-1, &text[1..]),
        [b'+', ..] => (1, &text[1..]),
        _ => (1, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Value::Float(f64::INFINITY * f64::from(sign));
    }
    let based = |digits: &str, radix| {
        let valid = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        valid.then(|| i128::from_str_radix(digits, radix).ok()).flatten()
    };
    let int = match digits.get(..2) {
        Some("0x") => based(&digits[2..], 16),
        Some("0o") => based(&digits[2..], 8),
        _ => based(digits, 10),
    };
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    if let Some(int) = int.map(|i| i * i128::from(sign)).filter(|i| range.contains(i)) {
        return Value::Int(int);
    }
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    match text.parse::<f64>() {
        Ok(float) if numeric => Value::Float(float),
        _ => as_text(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::parse;
    use super::*;

    fn one(text: &str) -> Value {
        let mut problems = Vec::new();
        let node = parse(&format!("a: {text}"), "t", &mut problems).unwrap();
        assert_eq!(problems, []);
        node.get("a").unwrap().value.clone()
    }

    fn text(text: &str) -> Value {
        Value::Text(Text { text: text.into(), written: None })
    }

    #[test]
    fn plain_words_are_read_by_the_yaml_1_2_core_schema() {
        for (written, value) in [
            ("5", Value::Int(5)),
            ("-0x1f", Value::Int(-31)),
            ("0o17", Value::Int(15)),
            ("18446744073709551615", Value::Int(u64::MAX.into())),
            ("1e3", Value::Float(1000.0)),
            ("-.inf", Value::Float(f64::NEG_INFINITY)),
            ("0.25", Value::Float(0.25)),
            ("no", text("no")),
            ("127.0.0.1:80", text("127.0.0.1:80")),
            ("1s", text("1s")),
            ("e5", text("e5")),
            ("infinity", text("infinity")),
            ("\"5\"", text("5")),
            ("'~'", text("~")),
            ("True", Value::Bool(true)),
            ("", Value::Null),
        ] {
            assert_eq!(one(written), value, "{written}");
        }
        assert!(matches!(one(".nan"), Value::Float(f) if f.is_nan()));
    }
}
