//! A keyed hash and numbers that nobody outside can predict, both from one secret.
//!
//! Whoever is on the fabric chooses the addresses that end up in the tables, and may try to answer requests that were
//! never asked of him: neither the place of a key in a table nor the next transaction id may be guessable.

use std::hash::Hasher;

/// SipHash-1-3 under a 128-bit key (Aumasson and Bernstein, "SipHash: a fast short-input PRF").
#[derive(Clone, Copy)]
pub struct SipKey(pub u64, pub u64);

impl SipKey {
    /// The hash of `kind` followed by `bytes`.
    pub fn hash(&self, kind: u8, bytes: &[u8]) -> u64 {
        let mut v = self.start();
        let (chunks, rest) = bytes.as_chunks::<8>();
        for c in chunks {
            absorb(&mut v, u64::from_le_bytes(*c));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // up to 7 bytes are left, so the top byte is free for length and kind
        absorb(&mut v, u64::from_le_bytes(last) | u64::from(bytes.len() as u8 ^ kind.rotate_left(4)) << 56);
        finish(v)
    }

    #[inline(always)]
    fn start(&self) -> [u64; 4] {
        [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ]
    }
}

#[inline(always)]
fn finish(mut v: [u64; 4]) -> u64 {
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

// Inlined, as are the steps of a look-up elsewhere, though the program is built to be small: every cached answer is made
// of them.
#[inline(always)]
fn absorb(v: &mut [u64; 4], m: u64) {
    v[3] ^= m;
    round(v);
    v[0] ^= m;
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

/// The same for keys of maps, a number at a time.
pub(crate) struct KeyedHasher([u64; 4]);

impl KeyedHasher {
    /// Nothing hashed yet.
    pub fn new(key: SipKey) -> KeyedHasher {
        KeyedHasher(key.start())
    }

    #[inline(never)]
    fn add(&mut self, number: u64) {
        absorb(&mut self.0, number);
    }
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for c in chunks {
            self.add(u64::from_le_bytes(*c));
        }
        // a length that is not always the same is hashed by whoever calls this
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.add(n.into());
    }

    fn write_u16(&mut self, n: u16) {
        self.add(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.add(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }

    #[inline(never)]
    fn finish(&self) -> u64 {
        finish(self.0)
    }
}

/// Unpredictable numbers: the keyed hash of a counter.
pub struct Rng {
    key: SipKey,
    count: u64,
}

impl Rng {
    /// A generator; the same secret gives the same sequence.
    pub fn new(key: SipKey) -> Rng {
        Rng { key: SipKey(key.1, !key.0), count: 0 }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.count += 1;
        self.key.hash(0, &self.count.to_le_bytes())
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_key_kind_and_every_byte() {
        let k = SipKey(1, 2);
        let h = k.hash(2, &[10, 0, 0, 1]);
        assert_ne!(h, SipKey(1, 3).hash(2, &[10, 0, 0, 1]));
        assert_ne!(h, k.hash(3, &[10, 0, 0, 1]));
        assert_ne!(h, k.hash(2, &[10, 0, 0, 1, 0]));
        for i in 0..4 {
            let mut b = [10, 0, 0, 1];
            b[i] ^= 1;
            assert_ne!(h, k.hash(2, &b));
        }
    }

    #[test]
    fn numbers_stay_below_their_bound_and_differ() {
        let mut r = Rng::new(SipKey(3, 4));
        assert!((0..1000).all(|_| r.below(10) < 10));
        assert_eq!(r.below(0), 0);
        assert_ne!(r.next_u64(), r.next_u64());
    }
}
