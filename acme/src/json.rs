//! Documents in JSON (RFC 8259), of which this program only writes some.

use std::fmt;

use crate::out::harms;

/// A value. Objects keep the order of their members.
#[derive(Clone, PartialEq, Debug)]
pub enum Json {
    /// Nothing known.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number that is never negative.
    Number(u64),
    /// A number with a fraction. What is not finite is written as null.
    Real(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Json>),
    /// Named values.
    Object(Vec<(&'static str, Json)>),
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Json {
        Json::Number(value)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Json {
        Json::Number(value.into())
    }
}

impl From<u16> for Json {
    fn from(value: u16) -> Json {
        Json::Number(value.into())
    }
}

impl From<u8> for Json {
    fn from(value: u8) -> Json {
        Json::Number(value.into())
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Json {
        Json::Number(value as u64)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Json {
        Json::Text(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Json {
        Json::Text(value)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl<T: Into<Json>> FromIterator<T> for Json {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Json {
        Json::List(values.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Json {
    /// Two spaces of indentation a level, members on lines of their own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 1)
    }
}

impl Json {
    fn write(&self, f: &mut fmt::Formatter<'_>, level: usize) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, level: usize| write!(f, "\n{:1$}", "", 2 * level);
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Number(value) => write!(f, "{value}"),
            Json::Real(value) if value.is_finite() => write!(f, "{value}"),
            Json::Real(_) => f.write_str("null"),
            Json::Text(value) => text(f, value),
            Json::List(values) if values.is_empty() => f.write_str("[]"),
            Json::List(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    line(f, level)?;
                    value.write(f, level + 1)?;
                }
                line(f, level - 1)?;
                f.write_str("]")
            }
            Json::Object(members) if members.is_empty() => f.write_str("{}"),
            Json::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    line(f, level)?;
                    text(f, name)?;
                    f.write_str(": ")?;
                    value.write(f, level + 1)?;
                }
                line(f, level - 1)?;
                f.write_str("}")
            }
        }
    }
}

fn text(f: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in value.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            // Of these all are in the first plane, so that four digits are enough.
            c if harms(c) => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn documents_are_written_as_the_standard_has_them() {
        let document = Json::Object(vec![
            ("name", "a\"\\\n\u{1}é\u{7f}\u{9b}\u{202e}".into()),
            ("none", Json::Null),
            ("list", [1u8, 2].into_iter().collect()),
            ("empty", Json::List(Vec::new())),
            ("real", Json::Real(1.5)),
            ("not", Json::Real(f64::NAN)),
            ("inner", Json::Object(vec![("yes", true.into())])),
        ]);
        let wanted = "{\n  \"name\": \"a\\\"\\\\\\n\\u0001é\\u007f\\u009b\\u202e\",\n  \"none\": null,\n  \"list\": [\n    1,\n    2\n  ],\n  \
                      \"empty\": [],\n  \"real\": 1.5,\n  \"not\": null,\n  \"inner\": {\n    \"yes\": true\n  }\n}";
        assert_eq!(document.to_string(), wanted);
    }
}
