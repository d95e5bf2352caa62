//! A strict reader of Prometheus' text format, of what a collector of text files takes without a warning.

use std::collections::{BTreeMap, BTreeSet};

/// Labels in the file's order.
pub type Labels = Vec<(String, String)>;
/// A metric's name, and its labels.
pub type Series = (String, Labels);

/// A name, of letters, digits and underscores, at the beginning of a text: it and the rest.
fn name(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    match text.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => Ok(text.split_at(end)),
        false => Err(format!("no name: {text}")),
    }
}

/// A value in quotation marks: it and the rest.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut chars = text.strip_prefix('"').ok_or(format!("no value: {text}"))?.char_indices();
    let mut value = String::new();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[i + 2..])),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('"' | '\\'))) => c,
                other => return Err(format!("no escape: {other:?}")),
            }),
            _ => value.push(c),
        }
    }
    Err(format!("a value without an end: {text}"))
}

fn labels(mut text: &str) -> Result<(Labels, &str), String> {
    let mut found = Vec::new();
    loop {
        let (label, rest) = name(text)?;
        let (value, rest) = quoted(rest.strip_prefix('=').ok_or(format!("no value: {rest}"))?)?;
        found.push((label.to_owned(), value));
        text = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None => return Ok((found, rest.strip_prefix('}').ok_or(format!("labels without an end: {rest}"))?)),
        };
    }
}

/// The numbers of a file. An error where a line is none of the format's, a metric is not explained before its first
/// number or stands in two places, a counter's name does not say so, or a series is there twice.
pub fn parse(text: &str) -> Result<BTreeMap<Series, u64>, String> {
    let (mut numbers, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut current: Option<(&str, Option<&str>)> = None;
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (metric, help) = rest.split_once(' ').filter(|h| !h.1.is_empty()).ok_or(format!("no help: {line}"))?;
            if !name(metric)?.1.is_empty() || help.contains('\\') || !seen.insert(metric) {
                return Err(format!("help once more, or for no metric: {line}"));
            }
            current = Some((metric, None));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (metric, kind) = rest.split_once(' ').ok_or(format!("no type: {line}"))?;
            let is_counter = metric.ends_with("_total");
            if current != Some((metric, None)) || kind != if is_counter { "counter" } else { "gauge" } {
                return Err(format!("a type of something else, or not of this name: {line}"));
            }
            current = Some((metric, Some(kind)));
        } else {
            let (metric, rest) = name(line)?;
            if !matches!(current, Some((c, Some(_))) if c == metric) {
                return Err(format!("a number that nobody has explained: {line}"));
            }
            let (labels, rest) = match rest.strip_prefix('{') {
                Some(rest) => labels(rest)?,
                None => (Vec::new(), rest),
            };
            let number = rest.strip_prefix(' ').and_then(|n| n.parse().ok()).ok_or(format!("no number: {line}"))?;
            if numbers.insert((metric.to_owned(), labels), number).is_some() {
                return Err(format!("twice: {line}"));
            }
        }
    }
    Ok(numbers)
}
