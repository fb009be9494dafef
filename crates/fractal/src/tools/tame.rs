//! A schema of somebody who is not trusted, made harmless to check against.
//!
//! References let a small schema mean a huge or an endless one. Here they are
//! written out, within a budget; where it ends, or where a schema speaks of
//! itself, anything passes. So the result may be milder than what it was made
//! from and is never stricter: the server that it came from checks as well.

use super::schema::size_bytes;
use serde_json::{Map, Value, json};

/// Bytes of the result, roughly.
const BUDGET: usize = 128 << 10;

/// Levels of the result, well within what any value may have.
const DEPTH_MAX: usize = 24;

/// Keywords whose value is no schema.
const VERBATIM: [&str; 5] = ["enum", "const", "default", "examples", "required"];

/// Keywords whose value maps names to schemas.
const MAPS: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Keywords that say where other schemas are, or that only hold when nothing
/// was left out.
const DROPPED: [&str; 10] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$defs",
    "definitions",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// Keywords that turn mild into strict.
const TURNING: [&str; 4] = ["not", "if", "then", "else"];

/// The same schema without references.
pub fn tamed(schema: &Value) -> Value {
    let mut writing = Writing { root: schema, budget: BUDGET, open: Vec::new() };
    writing.write(schema, 0)
}

struct Writing<'a> {
    root: &'a Value,
    budget: usize,
    /// The references that we are in.
    open: Vec<&'a str>,
}

impl<'a> Writing<'a> {
    /// A schema; one for which there is no room lets anything pass.
    fn write(&mut self, schema: &'a Value, depth: usize) -> Value {
        match schema {
            Value::Object(map) if depth <= DEPTH_MAX && self.spend(8) => {
                Value::Object(self.write_object(map, depth))
            }
            Value::Bool(_) => schema.clone(),
            _ => Value::Bool(true),
        }
    }

    fn write_object(&mut self, map: &'a Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut written = Map::new();
        for (key, value) in map.iter().filter(|(key, _)| !DROPPED.contains(&key.as_str())) {
            let name = key.as_str();
            if TURNING.contains(&name) && refers(map) {
                continue;
            }
            // Of several that became mild more than one may hold.
            let is_one_of = name == "oneOf" && refers_in(value);
            let key = if is_one_of { "anyOf".to_owned() } else { key.clone() };
            if let Some(inner) = self.write_value(name, value, depth) {
                written.insert(key, inner);
            }
        }
        if let Some(target) = self.resolve(map) {
            let also = self.write(target, depth + 2);
            self.open.pop();
            match written.get_mut("allOf").and_then(Value::as_array_mut) {
                Some(all) => all.push(also),
                None => drop(written.insert("allOf".to_owned(), json!([also]))),
            }
        }
        written
    }

    /// What stands behind a keyword; `None` where there is no room for it.
    fn write_value(&mut self, name: &str, value: &'a Value, depth: usize) -> Option<Value> {
        match value {
            Value::Object(names) if MAPS.contains(&name) => {
                let mut written = Map::new();
                for (name, schema) in names {
                    self.spend(name.len());
                    written.insert(name.clone(), self.write(schema, depth + 2));
                }
                Some(Value::Object(written))
            }
            Value::Object(_) if !VERBATIM.contains(&name) => Some(self.write(value, depth + 1)),
            Value::Array(list)
                if list.iter().any(Value::is_object) && !VERBATIM.contains(&name) =>
            {
                Some(list.iter().map(|one| self.write(one, depth + 2)).collect())
            }
            value => self.spend(size_bytes(value)).then(|| value.clone()),
        }
    }

    /// Whether there is room for so much more.
    fn spend(&mut self, bytes: usize) -> bool {
        let has_room = self.budget >= bytes;
        self.budget = self.budget.saturating_sub(bytes);
        has_room
    }

    /// What a reference speaks of, if it is not where we are already.
    fn resolve(&mut self, map: &'a Map<String, Value>) -> Option<&'a Value> {
        let name = map.get("$ref")?.as_str()?;
        if self.open.contains(&name) {
            return None;
        }
        let target = self.root.pointer(name.strip_prefix('#')?)?;
        self.open.push(name);
        Some(target)
    }
}

/// Whether something in it is a reference. Nothing of a schema that is too
/// deep for this gets here: what comes from outside is bounded when it is read.
fn refers(map: &Map<String, Value>) -> bool {
    map.contains_key("$ref") || map.values().any(refers_in)
}

fn refers_in(value: &Value) -> bool {
    match value {
        Value::Object(map) => refers(map),
        Value::Array(list) => list.iter().any(refers_in),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::schema::Schema;

    fn violations(schema: &Value, value: &Value) -> Vec<String> {
        let schema = Schema::new(&tamed(schema), "it").expect("it is a schema");
        schema.violations(value)
    }

    #[test]
    fn references_are_written_out() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "$ref": "#/$defs/count" }, "$ref": { "type": "string" } },
            "required": ["a"],
            "additionalProperties": false,
            "$defs": { "count": { "type": "integer", "minimum": 1 } },
        });
        assert!(violations(&schema, &json!({ "a": 1, "$ref": "x" })).is_empty());
        assert!(violations(&schema, &json!({ "a": 0 }))[0].contains("/a: it is less than"));
        assert!(violations(&schema, &json!({ "a": 1, "b": 1 }))[0].contains("/b"));
        let plain =
            json!({ "type": "object", "properties": { "n": { "enum": [1, { "$ref": 2 }] } } });
        assert_eq!(tamed(&plain), plain);
    }

    #[test]
    fn what_speaks_of_itself_is_checked_as_far_as_it_goes() {
        let tree = json!({
            "type": "object",
            "properties": { "kids": { "type": "array", "items": { "$ref": "#" } } },
        });
        assert!(violations(&tree, &json!({ "kids": [{ "kids": [{}] }] })).is_empty());
        assert!(!violations(&tree, &json!({ "kids": [3] })).is_empty());
        for endless in [
            json!({ "$ref": "#" }),
            json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
            json!({ "not": { "$ref": "#" } }),
            json!({ "oneOf": [{ "$ref": "#" }, { "$ref": "#" }] }),
            json!({ "$dynamicRef": "#x", "$id": "https://example.org/", "$ref": "https://example.org/" }),
        ] {
            assert!(violations(&endless, &json!({ "a": 1 })).is_empty(), "{endless}");
        }
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        let mut defs = Map::new();
        for level in 0..60 {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            let wide = json!({ "allOf": [next, next, next], "properties": { "x": next } });
            defs.insert(format!("d{level}"), wide);
        }
        defs.insert("d60".to_owned(), json!({ "type": "object" }));
        let bomb = json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": defs });
        let start = std::time::Instant::now();
        let nested = (0..40).fold(json!({}), |inner, _| json!({ "x": inner }));
        assert!(violations(&bomb, &nested).is_empty());
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }
}
