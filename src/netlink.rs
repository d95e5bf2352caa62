//! Numbers in netlink messages, which are in host order, and where the next thing begins.

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
