//! Documents in JSON, written only.

use std::fmt;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// Yes or no.
    Bool(bool),
    /// A number; what is not finite is written as null.
    Number(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Json>),
    /// Named values in order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// An object of these members.
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
        Json::Object(members.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// A list of numbers.
    pub fn numbers(values: impl IntoIterator<Item = f64>) -> Json {
        Json::List(values.into_iter().map(Json::Number).collect())
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Json::Bool(value) => write!(f, "{value}"),
            Json::Number(value) if value.is_finite() => write!(f, "{}", short(*value)),
            Json::Number(_) => f.write_str("null"),
            Json::Text(text) => quote(f, text),
            Json::List(values) => {
                let lines = values.iter().any(|v| matches!(v, Json::Object(_)));
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    if lines {
                        write!(f, "\n{:1$}", "", 2 * (depth + 1))?;
                    } else if i > 0 {
                        f.write_str(" ")?;
                    }
                    value.write(f, depth + 1)?;
                }
                if lines {
                    write!(f, "\n{:1$}", "", 2 * depth)?;
                }
                f.write_str("]")
            }
            Json::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    write!(f, "\n{:1$}", "", 2 * (depth + 1))?;
                    quote(f, name)?;
                    f.write_str(": ")?;
                    value.write(f, depth + 1)?;
                }
                write!(f, "\n{:1$}}}", "", 2 * depth)
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// A number with as many digits as a measurement has: four, and all of a whole number.
pub fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let digits = usize::try_from(3 - magnitude).unwrap_or(0).min(12);
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_mean_something() {
        for (value, text) in
            [(1234567.8, "1234568"), (3.56789, "3.568"), (0.0012346, "0.001235"), (2.0, "2"), (0.5, "0.5"), (0.0, "0")]
        {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_document() {
        let text = Json::object([("a\"", Json::numbers([1.0, f64::NAN])), ("b", Json::Bool(true))]).to_string();
        assert_eq!(text, "{\n  \"a\\\"\": [1, null],\n  \"b\": true\n}");
    }
}
