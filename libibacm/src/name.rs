//! Names as the service has them.

use std::borrow::Cow;
use std::fmt;

/// A name of an endpoint, or another short text of the service's: bytes, which need not be UTF-8. It is shown as well
/// as it can be, and compared as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(Vec<u8>);

impl Name {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, with U+FFFD for what is none.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_string_lossy())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match str::from_utf8(&self.0) {
            Ok(text) => write!(f, "{text:?}"),
            Err(_) => write!(f, "b\"{}\"", self.0.escape_ascii()),
        }
    }
}

impl From<Vec<u8>> for Name {
    fn from(bytes: Vec<u8>) -> Name {
        Name(bytes)
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Name {
        Name(bytes.to_owned())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(text.into_bytes())
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name(text.as_bytes().to_owned())
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, text: &str) -> bool {
        self.0 == text.as_bytes()
    }
}

impl PartialEq<String> for Name {
    fn eq(&self, text: &String) -> bool {
        self == text.as_str()
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        self == *text
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_are_shown_and_compared() {
        let (plain, odd) = (Name::from("n1"), Name::from(&b"n\xe4me"[..]));
        assert!(plain == "n1" && plain == *"n1" && plain != odd && odd != "n\u{fffd}me");
        assert_eq!((plain.to_string(), odd.to_string()), ("n1".to_owned(), "n\u{fffd}me".to_owned()));
        assert_eq!(
            (format!("{plain:?} {odd:?}"), format!("{plain:>4}")),
            ("\"n1\" b\"n\\xe4me\"".into(), "  n1".into())
        );
        assert_eq!((odd.as_bytes(), Name::from(odd.to_string()).as_bytes().len()), (&b"n\xe4me"[..], 6));
    }
}
