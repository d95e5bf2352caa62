//! Lists of names in brackets: `node[1-3,5,07-10]` is node1, node2, node3, node5, node07, node08, node09, node10.

use std::fmt;

/// The most items that one list may have, or several that are given together.
pub const MAX_ITEMS: usize = 1 << 20;
/// The longest item of a list in bytes, where rdma-core's utility cuts it too.
const MAX_ITEM: usize = 255;
/// The widest number that makes a difference: of anything wider nothing but zeros is left by the cut.
const MAX_WIDTH: usize = 512;

/// Why a list cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// Nothing is in it.
    Empty,
    /// More than [`MAX_ITEMS`] are in it.
    TooLong,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Empty => f.write_str("it names nothing"),
            Unusable::TooLong => write!(f, "it names more than {MAX_ITEMS}"),
        }
    }
}

/// Every item that `text` names; text without brackets is one item. What follows the closing bracket is ignored, as
/// rdma-core's utility does, and numbers are read as it reads them ([`leading_number`]).
pub fn expand(text: &str) -> Result<Vec<String>, Unusable> {
    let (base, list) = text.split_once('[').unwrap_or((text, ""));
    let list = list.trim_start_matches(']');
    let list = list.split_once(']').map_or(list, |(inside, _)| inside);
    if list.is_empty() {
        return if base.is_empty() { Err(Unusable::Empty) } else { Ok(vec![base.to_owned()]) };
    }
    let mut items = Vec::new();
    for range in list.split(',').filter(|r| !r.is_empty()) {
        let (from, to, width) = match range.find('-') {
            Some(dash) => (leading_number(range), leading_number(&range[dash + 1..]), dash),
            None => (leading_number(range), leading_number(range), range.len()),
        };
        // As wide as the first number was written.
        let width = width.min(MAX_WIDTH);
        for number in from..=to {
            if items.len() >= MAX_ITEMS {
                return Err(Unusable::TooLong);
            }
            items.push(if base.len() < MAX_ITEM {
                cut(&format!("{base}{number:0width$}")).to_owned()
            } else {
                cut(base).to_owned()
            });
        }
    }
    if items.is_empty() { Err(Unusable::Empty) } else { Ok(items) }
}

/// The same, but an interface behind the list is one of each item: `fe80::[1-3]%ib0`.
pub fn expand_addresses(text: &str) -> Result<Vec<String>, Unusable> {
    let scoped = text.rsplit_once(']').filter(|(list, scope)| scope.starts_with('%') && list.contains(':'));
    let Some((list, scope)) = scoped else { return expand(text) };
    let items = expand(&format!("{list}]"))?;
    Ok(items.into_iter().map(|item| item + scope).collect())
}

/// As much of an item as is used. Text without brackets is no list, and is used as it is.
fn cut(text: &str) -> &str {
    // Whole characters alone are text.
    &text[..text.floor_char_boundary(MAX_ITEM)]
}

/// The number that a text starts with, as C's `atoi` reads it: 0 if there is none. What does not fit is cut as there.
pub fn leading_number(text: &str) -> i32 {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = digits.bytes().take_while(u8::is_ascii_digit);
    let value = digits.fold(0i64, |n, d| n.saturating_mul(10).saturating_add(i64::from(d - b'0')));
    let value = match negative {
        // One less than the largest positive number is not reached by negating it.
        true if value == i64::MAX => i64::MIN,
        true => -value,
        false => value,
    };
    value as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        expand(text).map_or_else(|e| format!("{e:?}"), |items| items.join(" "))
    }

    #[test]
    fn lists() {
        assert_eq!(shown("node7"), "node7");
        assert_eq!(shown("node[1-3,5,07-10]"), "node1 node2 node3 node5 node07 node08 node09 node10");
        assert_eq!(shown("[1-3]"), "1 2 3");
        assert_eq!(shown("10.0.0.[1,2]x"), "10.0.0.1 10.0.0.2");
        assert_eq!(shown("x[a]"), "x0");
        assert_eq!(shown("x["), "x");
        let scoped = |text: &str| expand_addresses(text).expect("a list").join(" ");
        assert_eq!(scoped("fe80::[1-2]%ib0"), "fe80::1%ib0 fe80::2%ib0");
        assert_eq!(scoped("fe80::1%ib[0-1]"), "fe80::1%ib0 fe80::1%ib1");
        assert_eq!(scoped("node[1-2]%ib0"), "node1 node2", "no address has it");
        assert_eq!(scoped("fe80::[1-2]x"), "fe80::1 fe80::2");
        assert_eq!(shown("x[]"), "x");
        assert_eq!(shown("x[]5]"), "x5");
        assert_eq!(shown("x[,,5,]"), "x5");
        assert_eq!(shown("x[3-1]"), "Empty");
        assert_eq!(shown("x[,]"), "Empty");
        assert_eq!(shown(""), "Empty");
        assert_eq!(shown("["), "Empty");
        assert_eq!(shown("x[0-99999999]"), "TooLong");
        assert_eq!(shown("x[-2]"), "x-2 x-1 x0 x1 x2", "from the number to what follows its sign");
        assert_eq!(shown("x[2147483647-2147483647]"), "x2147483647");
    }

    #[test]
    fn items_have_255_bytes_at_most() {
        let zeros = "0".repeat(70_000);
        let wide = expand(&format!("x[{zeros}1-2]")).unwrap();
        assert_eq!(wide, ["x".to_owned() + &"0".repeat(254), "x".to_owned() + &"0".repeat(254)]);
        let long = "y".repeat(120_000);
        let items = expand(&format!("{long}[0-1048575]")).unwrap();
        assert!(items.len() == MAX_ITEMS && items.iter().all(|item| item.capacity() <= 255));
        let characters = "\u{e9}".repeat(126);
        assert_eq!(expand(&format!("{characters}[7-8]")).unwrap(), [7, 8].map(|n| format!("{characters}{n}")));
        assert_eq!(expand(&format!("{characters}\u{e9}\u{e9}[7]")).unwrap(), [format!("{characters}\u{e9}")]);
        assert_eq!(expand(&format!("z[{}5]", " ".repeat(250))).unwrap()[0].len(), 252);
        assert_eq!(expand(&format!("z[{}5]", " ".repeat(254))).unwrap(), [format!("z{}", "0".repeat(254))]);
        assert_eq!(expand(&long), Ok(vec![long.clone()]), "this is no list");
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, number) in [
            ("5", 5),
            (" 5x", 5),
            ("-1", -1),
            ("+7", 7),
            ("x", 0),
            ("", 0),
            ("-", 0),
            ("65541", 65_541),
            ("4294967296", 0),
            ("99999999999999999999", -1),
            ("-99999999999999999999", 0),
        ] {
            assert_eq!(leading_number(text), number, "{text:?}");
        }
    }
}
