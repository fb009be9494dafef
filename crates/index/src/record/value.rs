//! What a key of a head can hold.

/// A value in a head. Maps keep the order in which they were written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// Several values.
    List(Vec<Value>),
    /// Values by name.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// What a word without quotes means, by the core schema of YAML 1.2.
    pub(super) fn of_plain(text: &str) -> Value {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
            "true" | "True" | "TRUE" => return Value::Bool(true),
            "false" | "False" | "FALSE" => return Value::Bool(false),
            ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
            _ => {}
        }
        if let ".inf" | ".Inf" | ".INF" = text.trim_start_matches(['+', '-']) {
            let infinite = if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY };
            return Value::Float(infinite);
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Value::Text(text.to_owned());
        }
        let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(number) = text.parse().ok().filter(|_| is_whole) {
            return Value::Int(number);
        }
        text.parse().map_or_else(|_| Value::Text(text.to_owned()), Value::Float)
    }

    /// Its kind, for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "empty",
            Value::Bool(_) => "a yes or no",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_quotes_mean_what_yaml_says() {
        let check = |text: &str, value: Value| assert_eq!(Value::of_plain(text), value, "{text}");
        check("~", Value::Null);
        check("True", Value::Bool(true));
        check("no", Value::from("no"));
        check("-12", Value::Int(-12));
        check("1.5e3", Value::Float(1500.0));
        check("-.inf", Value::Float(f64::NEG_INFINITY));
        check("99999999999999999999", Value::Float(1e20));
        check("2026-11-19", Value::from("2026-11-19"));
        check("infinity", Value::from("infinity"));
        check("-", Value::from("-"));
        check(".", Value::from("."));
        check("1_000", Value::from("1_000"));
    }
}
