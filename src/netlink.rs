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

/// The first message of a datagram, and what follows it; `None` where the header contradicts itself, after which nothing
/// more can be found.
pub(crate) fn first(datagram: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let length = usize::try_from(u32_at(datagram, 0)?).ok()?;
    let frame = Frame {
        kind: u16_at(datagram, 4)?,
        flags: u16_at(datagram, 6)?,
        sequence: u32_at(datagram, 8)?,
        port: u32_at(datagram, 12)?,
        payload: datagram.get(HEADER..length)?,
    };
    Some((frame, datagram.get(padded(length)..).unwrap_or_default()))
}

/// Bytes of `struct nlattr`.
pub(crate) const ATTRIBUTE_HEADER: usize = 4;

/// The type (with its flags) and the value of the first attribute, and what follows it; `None` where it does not fit. The
/// padding of the last one may be missing.
pub(crate) fn first_attribute(attributes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16_at(attributes, 0)?);
    let value = attributes.get(ATTRIBUTE_HEADER..length)?;
    Some((u16_at(attributes, 2)?, value, attributes.get(padded(length)..).unwrap_or_default()))
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
