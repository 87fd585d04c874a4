//! The published schemas, generated from the types that read and write.

use media::result::{FusedResult, Gap, StreamMessage};
use schemars::generate::SchemaSettings;
use serde_json::{Value as Json, json};

use super::raw::RawConfig;

/// JSON Schema of a configuration: `docs/config.schema.json`.
pub fn config_schema() -> Json {
    let mut schema = SchemaSettings::draft2020_12()
        .for_deserialize()
        .into_generator()
        .into_root_schema_for::<RawConfig>()
        .to_value();
    without_null(&mut schema);
    schema
}

/// JSON Schema of what subscribers receive: `docs/result.schema.json`.
pub fn result_schema() -> Json {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut one_of = Vec::new();
    for (mut schema, name) in [
        (generator.subschema_for::<FusedResult>().to_value(), "fused-result/1"),
        (generator.subschema_for::<Gap>().to_value(), "gap/1"),
        (generator.subschema_for::<StreamMessage>().to_value(), "stream/1"),
    ] {
        schema["properties"] = json!({ "schema": { "const": name } });
        one_of.push(schema);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pipeline messages",
        "description": "One message of `/v1/results`, or one line of `--output`.",
        "oneOf": one_of,
        "$defs": generator.take_definitions(true),
    })
}

/// A configuration has no use for null: a key that is left out has its default.
fn without_null(schema: &mut Json) {
    match schema {
        Json::Array(items) => items.iter_mut().for_each(without_null),
        Json::Object(object) => {
            if object.get("default").is_some_and(Json::is_null) {
                object.remove("default");
            }
            if let Some(Json::Array(types)) = object.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".into(), only);
                }
            }
            if let Some(Json::Array(options)) = object.get_mut("anyOf") {
                options.retain(|o| o.get("type").is_none_or(|t| t != "null"));
                if let [Json::Object(only)] = options.as_mut_slice() {
                    let only = std::mem::take(only);
                    object.remove("anyOf");
                    object.extend(only);
                }
            }
            if let Some(Json::Object(default)) = object.get_mut("default") {
                default.retain(|_, v| !v.is_null());
            }
            object.iter_mut().for_each(|(_, v)| without_null(v));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_null_is_left() {
        assert!(!config_schema().to_string().contains("null"));
    }
}
