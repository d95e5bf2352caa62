//! Fixed-position fields of fixed-size arrays. Offsets are constants of the layouts, so an offset that does not fit
//! is a fault of this crate that the layouts' own tests find; it reads as zero rather than panicking.

pub(crate) fn bytes<const N: usize>(buf: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(src) = buf.get(at..at + N) {
        out.copy_from_slice(src);
    }
    out
}

pub(crate) fn put(buf: &mut [u8], at: usize, value: &[u8]) {
    if let Some(dst) = buf.get_mut(at..at + value.len()) {
        dst.copy_from_slice(value);
    }
}

pub(crate) fn be16(buf: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(buf, at))
}

pub(crate) fn be32(buf: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(buf, at))
}

pub(crate) fn be64(buf: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes(buf, at))
}
