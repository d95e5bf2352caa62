//! What all netlink messages have in common: a header, numbers in host order, and where the next thing begins.

/// Bytes of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;

/// A message whose header fits what there is of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub kind: u16,
    pub flags: u16,
    /// The sequence number of the request that it answers, or that caused it.
    pub sequence: u32,
    /// The port of the socket whose request that was.
    pub port: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// The messages of a datagram, in order. After a header that contradicts itself nothing more can be found: it is a `None`,
/// and the last.
pub(crate) fn frames(datagram: &[u8]) -> impl Iterator<Item = Option<Frame<'_>>> {
    each(datagram, |rest| {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        let frame = Frame {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            port: u32_at(rest, 12)?,
            payload: rest.get(HEADER..length)?,
        };
        Some((frame, length))
    })
}

/// Bytes of `struct nlattr`.
pub(crate) const ATTRIBUTE_HEADER: usize = 4;

/// The types (with their flags) and the values of attributes, in order; one that does not fit is a `None`, and the last.
pub(crate) fn attributes(attributes: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    each(attributes, |rest| {
        let length = usize::from(u16_at(rest, 0)?);
        Some(((u16_at(rest, 2)?, rest.get(ATTRIBUTE_HEADER..length)?), length))
    })
}

/// What stands one after the other, by what gives the first of it and its length. The padding of the last may be missing.
fn each<'a, T>(mut rest: &'a [u8], first: impl Fn(&'a [u8]) -> Option<(T, usize)>) -> impl Iterator<Item = Option<T>> {
    std::iter::from_fn(move || {
        let all = std::mem::take(&mut rest);
        if all.is_empty() {
            return None;
        }
        let found = first(all);
        if let Some((_, length)) = found {
            rest = all.get(padded(length)..).unwrap_or_default();
        }
        Some(found.map(|(one, _)| one))
    })
}

/// `N` bytes at an offset.
pub(crate) fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// A 16-bit number at an offset.
pub(crate) fn u16_at(from: &[u8], at: usize) -> Option<u16> {
    bytes(from, at).map(u16::from_ne_bytes)
}

/// A 32-bit number at an offset.
pub(crate) fn u32_at(from: &[u8], at: usize) -> Option<u32> {
    bytes(from, at).map(u32::from_ne_bytes)
}

/// Messages and attributes start at multiples of four bytes.
pub(crate) const fn padded(length: usize) -> usize {
    (length + 3) & !3
}
