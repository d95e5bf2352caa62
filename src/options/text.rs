//! What the configuration files have in common: bounded lines, tokens, and findings that name file and line.

use std::fmt;

/// Longest line that is looked at, in bytes and without its newline.
pub const MAX_LINE: usize = 4096;
/// Most findings kept of one file; one more says that there were others.
pub const MAX_FINDINGS: usize = 1000;
/// Most bytes of somebody's text that a finding repeats.
const MAX_QUOTE: usize = 64;

/// How bad a [`Finding`] is. All are worth a non-zero exit of a check, but for an option that may be a plug-in's own; the
/// service starts with any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The line says something that is not understood, or more than is understood.
    Warning,
    /// The line has an option that is not the service's; where there are plug-ins it may be theirs.
    Unknown,
    /// The line is no text of a configuration file at all.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning | Severity::Unknown => "warning",
            Severity::Error => "error",
        })
    }
}

/// Something wrong in a configuration file; shown as `file:line: warning: text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file's name, as the caller gave it.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, and what holds instead; printable.
    pub text: String,
}

impl Finding {
    /// The level of the log that it belongs to: whether there are plug-ins, whose options nobody else knows, makes a
    /// difference.
    pub fn level(&self, plugins: bool) -> u8 {
        u8::from(plugins && self.severity == Severity::Unknown)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.severity, self.text)
    }
}

/// Collects the findings of one file, bounded.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    file: &'a str,
    list: Vec<Finding>,
}

impl<'a> Findings<'a> {
    /// An empty collection for `file`.
    pub(crate) fn new(file: &'a str) -> Self {
        Findings { file, list: Vec::new() }
    }

    /// Notes a warning.
    pub(crate) fn warn(&mut self, line: usize, text: String) {
        self.add(Severity::Warning, line, text);
    }

    /// Notes an option that is not known.
    pub(crate) fn unknown(&mut self, line: usize, text: String) {
        self.add(Severity::Unknown, line, text);
    }

    /// Notes an error.
    pub(crate) fn error(&mut self, line: usize, text: String) {
        self.add(Severity::Error, line, text);
    }

    fn add(&mut self, severity: Severity, line: usize, text: String) {
        let text = match self.list.len() {
            n if n < MAX_FINDINGS => text,
            n if n == MAX_FINDINGS => String::from("more is wrong from here on than can be listed"),
            _ => return,
        };
        self.list.push(Finding { severity, file: self.file.to_owned(), line, text });
    }

    /// The findings, in order of the lines.
    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.list
    }
}

/// Gives `each` the number and the tokens of every line that says something.
///
/// Comments are the lines whose first token starts with `#`, and the rest of a line from a token that starts with `#`.
/// The last line needs no newline. Lines with NUL bytes and lines longer than [`MAX_LINE`] are findings and are left
/// out whole, never cut. At most `max_tokens` tokens are given.
pub(crate) fn each_line(
    bytes: &[u8],
    max_tokens: usize,
    findings: &mut Findings<'_>,
    mut each: impl FnMut(usize, &[&[u8]], &mut Findings<'_>),
) {
    let mut tokens: Vec<&[u8]> = Vec::with_capacity(max_tokens);
    for (index, line) in bytes.split(|&b| b == b'\n').enumerate() {
        let number = index + 1;
        tokens.clear();
        tokens.extend(
            line.split(|&b| is_space(b))
                .filter(|token| !token.is_empty())
                .take_while(|token| !token.starts_with(b"#"))
                .take(max_tokens),
        );
        if tokens.is_empty() {
            continue;
        }
        if line.len() > MAX_LINE {
            findings.error(number, format!("line of {} bytes, at most {MAX_LINE} are allowed: ignored", line.len()));
        } else if line.contains(&0) {
            findings.error(number, String::from("line with a NUL byte: ignored"));
        } else {
            each(number, &tokens, findings);
        }
    }
}

/// What C calls white space in its own locale, which is what the file format is made of.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// A token for a message: printable, bounded, in quotes.
pub(crate) fn quote(token: &[u8]) -> String {
    let shown = &token[..token.len().min(MAX_QUOTE)];
    let dots = if shown.len() < token.len() { "..." } else { "" };
    format!("'{}'{dots}", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> (Vec<(usize, Vec<String>)>, Vec<String>) {
        let mut findings = Findings::new("f");
        let mut seen = Vec::new();
        each_line(bytes, 3, &mut findings, |number, tokens, _| {
            seen.push((number, tokens.iter().map(|t| String::from_utf8_lossy(t).into_owned()).collect()));
        });
        (seen, findings.into_vec().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn tokens_comments_and_a_last_line_without_newline() {
        let (seen, findings) = lines(b"# a b\n\n  # c\na\tb # c\r\n\x0b\x0c\n1 2 3 4\nlast one");
        let expected: Vec<(usize, Vec<String>)> =
            [(4, vec!["a", "b"]), (6, vec!["1", "2", "3"]), (7, vec!["last", "one"])]
                .into_iter()
                .map(|(n, t)| (n, t.into_iter().map(String::from).collect()))
                .collect();
        assert_eq!(seen, expected);
        assert!(findings.is_empty());
    }

    #[test]
    fn long_lines_and_nul_bytes_are_left_out_whole() {
        let mut text = vec![b'x'; MAX_LINE];
        text.extend(b"\ny");
        text.extend(vec![b'y'; MAX_LINE]);
        text.extend(b"\na\0b c\n# \0\nok fine\n");
        let (seen, findings) = lines(&text);
        assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(
            findings,
            [
                "f:2: error: line of 4097 bytes, at most 4096 are allowed: ignored",
                "f:3: error: line with a NUL byte: ignored"
            ]
        );
    }

    #[test]
    fn findings_are_bounded() {
        let mut findings = Findings::new("f");
        for line in 1..=2 * MAX_FINDINGS {
            findings.warn(line, String::from("x"));
        }
        let list = findings.into_vec();
        assert_eq!(list.len(), MAX_FINDINGS + 1);
        assert!(list[MAX_FINDINGS].text.contains("more"));
    }

    #[test]
    fn quotes_are_printable_and_bounded() {
        assert_eq!(quote(b"a\x1b[2J\xff"), r"'a\x1b[2J\xff'");
        assert_eq!(quote(&[b'z'; 500]).len(), MAX_QUOTE + 5);
    }
}
