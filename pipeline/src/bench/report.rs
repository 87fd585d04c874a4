//! What a bench found: figures, the aims they are held to, and how both are written. Pure.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::machine::Machine;
use super::stats::Times;

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

impl Aim {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Aim::AtMost(limit) => figure <= limit,
            Aim::AtLeast(limit) => figure >= limit,
        }
    }
}

/// Figures of one bench, in the order they were found.
#[derive(Clone, Debug)]
pub(super) struct Report {
    name: &'static str,
    figures: Map<String, Value>,
    aims: Map<String, Value>,
}

impl Report {
    pub(super) fn new(name: &'static str) -> Self {
        Report { name, figures: Map::new(), aims: Map::new() }
    }

    /// A figure that is only told.
    pub(super) fn tell(&mut self, figure: &str, value: impl Into<Value>) {
        self.figures.insert(figure.to_owned(), rounded(value.into()));
    }

    /// A figure that is held to an aim. What could not be measured does not meet it.
    pub(super) fn hold(&mut self, figure: &str, value: Option<f64>, aim: Aim) {
        self.tell(figure, value);
        let (kind, limit) = match aim {
            Aim::AtMost(limit) => ("at_most", limit),
            Aim::AtLeast(limit) => ("at_least", limit),
        };
        let met = value.is_some_and(|value| aim.is_met(value));
        self.aims.insert(figure.to_owned(), json!({ kind: limit, "met": met }));
    }

    /// `NAME_p50_ms` and `NAME_p99_ms`.
    pub(super) fn tell_times(&mut self, name: &str, times: &Times) {
        self.tell(&format!("{name}_p50_ms"), times.at(0.5));
        self.tell(&format!("{name}_p99_ms"), times.at(0.99));
    }

    /// One object on one line.
    pub(super) fn json(&self, machine: &Machine) -> String {
        let object = json!({
            "name": self.name,
            "figures": self.figures,
            "aims": self.aims,
            "command": machine.command,
            "machine": machine.json(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        format!("{object}\n")
    }

    /// For people.
    pub(super) fn table(&self, machine: &Machine) -> String {
        let mut lines = Vec::new();
        flatten("", &self.figures, &mut lines);
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + 2;
        let mut table = format!("{}\n{machine}\n", machine.command);
        for (name, value) in lines {
            let aim = self.aims.get(&name).map(aim_text).unwrap_or_default();
            let line = format!("{name:<width$}{value:>14}{aim}");
            // Writing to a string has no way to fail.
            let _ = writeln!(table, "{}", line.trim_end());
        }
        table
    }
}

fn aim_text(aim: &Value) -> String {
    let met = if aim["met"] == Value::Bool(true) { "met" } else { "missed" };
    match (&aim["at_most"], &aim["at_least"]) {
        (Value::Null, limit) => format!("   aim: at least {limit}, {met}"),
        (limit, _) => format!("   aim: at most {limit}, {met}"),
    }
}

fn flatten(path: &str, object: &Map<String, Value>, lines: &mut Vec<(String, String)>) {
    for (key, value) in object {
        let name = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Object(inner) => flatten(&name, inner, lines),
            Value::Null => lines.push((name, "-".into())),
            Value::String(text) => lines.push((name, text.clone())),
            other => lines.push((name, other.to_string())),
        }
    }
}

/// Three decimals say more than any of these measurements knows.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let value = number.as_f64().unwrap_or_default();
            Value::from((value * 1e3).round() / 1e3)
        }
        Value::Object(inner) => inner.into_iter().map(|(k, v)| (k, rounded(v))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("freshness");
        report.hold("age_p50_ms", Some(78.123_456), Aim::AtMost(80.0));
        report.hold("age_p99_ms", Some(120.0), Aim::AtMost(100.0));
        report.hold("ratio", None, Aim::AtLeast(0.95));
        report.tell("delivered", 250);
        report.tell("stages", json!({"objects": {"compute_ms": 1.000_04}}));
        report
    }

    #[test]
    fn the_object_has_the_six_keys_and_says_which_aims_are_met() {
        let json: Value =
            serde_json::from_str(&report().json(&Machine::of_command("pipeline bench x"))).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["name", "figures", "aims", "command", "machine", "version"]);
        assert_eq!(json["figures"]["age_p50_ms"], 78.123);
        assert_eq!(json["aims"]["age_p50_ms"], json!({"at_most": 80.0, "met": true}));
        assert_eq!(json["aims"]["age_p99_ms"], json!({"at_most": 100.0, "met": false}));
        assert_eq!(json["aims"]["ratio"], json!({"at_least": 0.95, "met": false}));
        assert_eq!(json["command"], "pipeline bench x");
    }

    #[test]
    fn the_table_has_one_line_per_figure() {
        let table = report().table(&Machine::of_command("pipeline bench x"));
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "age_p50_ms                         78.123   aim: at most 80.0, met",
                "age_p99_ms                          120.0   aim: at most 100.0, missed",
                "ratio                                   -   aim: at least 0.95, missed",
                "delivered                             250",
                "stages.objects.compute_ms             1.0",
            ]
        );
    }
}
