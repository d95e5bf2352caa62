//! The GID of an interface, from sysfs: the loop's table of interfaces is the loop's.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ibacm_wire::Gid;

/// Bytes of an IP over InfiniBand hardware address: flags and QP number, then the port's GID (RFC 4391, 9.1.1).
const HARDWARE: usize = 20;

/// The GID in the hardware address of an interface. A label, which has a colon behind the interface's name, does.
pub fn gid(name: &[u8]) -> Option<Gid> {
    let name = name.split(|&b| b == b':').next()?;
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
        return None;
    }
    let path = Path::new("/sys/class/net").join(OsStr::from_bytes(name)).join("address");
    let mut text = Vec::new();
    // Two digits and what is behind them for each byte; one more shows that it is longer.
    File::open(path).ok()?.take(3 * HARDWARE as u64 + 1).read_to_end(&mut text).ok()?;
    gid_of(&text)
}

/// The GID in a hardware address as sysfs shows it: bytes in hexadecimal, with colons between them.
fn gid_of(text: &[u8]) -> Option<Gid> {
    let text = str::from_utf8(text).ok()?.trim_ascii_end();
    let mut bytes = [0; HARDWARE];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    if parts.next().is_some() {
        return None;
    }
    bytes.last_chunk().map(|gid| Gid(*gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gid_is_behind_flags_and_qp() {
        let text = b"80:00:04:04:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0e:0b:2A\n";
        let want = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0xe, 0xb, 0x2a];
        assert_eq!(gid_of(text), Some(Gid(want)));
        assert_eq!(gid_of(text.strip_suffix(b"\n").unwrap()), Some(Gid(want)));
    }

    #[test]
    fn other_addresses_are_none() {
        let texts: [&[u8]; 7] = [
            b"",
            b"\n",
            b"52:54:00:12:34:56\n",
            b"80:00:04:04:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0e:0b:2a:00\n",
            b"80:00:04:04:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0e:0b:xx\n",
            b"80:00:04:04:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0e:0b:+1\n",
            b"\xff\xff",
        ];
        for text in texts {
            assert_eq!(gid_of(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn names_stay_in_their_directory() {
        for name in [&b""[..], b".", b"..", b"../../etc", b"lo/../lo", b"no-such-one", b"lo", b":1", b"a\0b"] {
            assert_eq!(gid(name), None, "{}", name.escape_ascii());
        }
    }
}
