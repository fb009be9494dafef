//! The description of the interface, made from the table of operations and
//! the types of the model. Bodies are described closed: a field that is not
//! listed is refused.

use crate::api::{Answer, Describe, Operation, Taken};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Where shared schemas stand in the document.
const SCHEMAS: &str = "/components/schemas";
const BYTES: &str = "application/octet-stream";

/// The whole document.
pub fn document(operations: &[Operation]) -> Value {
    let mut answers = answers_generator();
    let mut paths = Map::new();
    for operation in operations {
        let described = describe(operation, &mut answers);
        // What may hold slashes is no name of its own in the description.
        let path = operation.path.replace("{*", "{");
        let path = paths.entry(path).or_insert_with(|| json!({}));
        path[operation.method] = described;
    }
    let failure = answers.subschema_for::<crate::reply::FailureReply>();
    let mut schemas = Map::new();
    for (name, schema) in answers.take_definitions(true) {
        schemas.insert(name, schema);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "fractal",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Instant isolated copies of the real environment. \
                Every verb of the command line is here under the same name.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Failure": {
                    "description": "It was not carried out, and nothing has changed.",
                    "content": { "application/json": { "schema": failure } },
                },
            },
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn answers_generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = SCHEMAS.into();
    settings.meta_schema = None;
    settings.into_generator()
}

/// Bodies and queries carry everything they need themselves.
fn input(describe: Describe) -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_deserialize();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = describe(&mut settings.into_generator()).to_value();
    close(&mut schema);
    schema
}

/// Says of every object whose fields are listed that there are no others.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(close);
            if map.contains_key("properties") && !map.contains_key("additionalProperties") {
                map.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

fn describe(operation: &Operation, answers: &mut SchemaGenerator) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [tag(operation.path)],
        "parameters": parameters(operation),
        "responses": responses(operation, answers),
    });
    if let Some(verb) = operation.verb {
        described["security"] = json!([{ "key": [] }]);
        described["x-verb"] = json!(verb);
    }
    if let Some(body) = operation.body {
        let (kind, schema) = match body {
            Taken::Json(describe) => ("application/json", input(describe)),
            Taken::Bytes => (BYTES, bytes()),
        };
        described["requestBody"] =
            json!({ "required": false, "content": { kind: { "schema": schema } } });
    }
    described
}

/// The content of a file.
fn bytes() -> Value {
    json!({ "type": "string", "format": "binary" })
}

/// The first word after the version.
fn tag(path: &str) -> &str {
    path.split('/').find(|part| !part.is_empty() && *part != "v1").unwrap_or("server")
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let in_path = operation.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let (name, length_max) = match name.strip_prefix('*') {
            Some(name) => (name, 4096),
            // One within another has both names in its own.
            None if name == "skunk" => (name, 1024),
            None => (name, 64),
        };
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": length_max });
        Some(json!({ "name": name, "in": "path", "required": true, "schema": schema }))
    });
    let mut all: Vec<Value> = in_path.collect();
    all.extend(operation.query.map(in_query).unwrap_or_default());
    if operation.acts && matches!(operation.body, Some(Taken::Json(_))) {
        all.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "The same key and the same request within a day are carried out once.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$" },
        }));
    }
    all
}

fn in_query(describe: Describe) -> Vec<Value> {
    let mut schema = input(describe);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let Some(properties) = schema["properties"].as_object_mut() else {
        return Vec::new();
    };
    let each = properties.iter_mut().map(|(name, schema)| {
        let about = schema.as_object_mut().and_then(|map| map.remove("description"));
        json!({
            "name": name,
            "in": "query",
            "required": required.contains(&json!(name)),
            "description": about,
            "schema": schema,
        })
    });
    each.collect()
}

fn responses(operation: &Operation, answers: &mut SchemaGenerator) -> Value {
    let mut all = json!({ "default": { "$ref": "#/components/responses/Failure" } });
    let (status, about, content) = match operation.answer {
        Answer::Socket => {
            all["101"] = json!({ "description": "A WebSocket from here on." });
            return all;
        }
        Answer::Json(status, schema) => {
            (status, "Done.", json!({ "application/json": { "schema": schema(answers) } }))
        }
        Answer::Stream(schema) => (
            200,
            "Done; as events while it happens with `Accept: text/event-stream`.",
            json!({
                "application/json": { "schema": schema(answers) },
                "text/event-stream": { "schema": { "type": "string" } },
            }),
        ),
        Answer::Events => (
            200,
            "Events as they happen.",
            json!({ "text/event-stream": { "schema": { "type": "string" } } }),
        ),
        Answer::Bytes => (200, "The content.", json!({ BYTES: { "schema": bytes() } })),
        Answer::Text(kind) => (200, "Done.", json!({ kind: { "schema": { "type": "string" } } })),
    };
    all[status.to_string()] = json!({ "description": about, "content": content });
    all
}
