//! Memory that only the start needed, given back when it is over.
//!
//! Of the program and its libraries some megabyte has been read for the start, and counts as the process's own as long as it
//! is mapped in. What was read from files and never written is dropped from the process here (not from the system's
//! cache): what is used again comes back in a microsecond or so, sixteen pages at a time. The heap's free end goes too.

#![allow(unsafe_code)] // Says to the system which memory is not needed.

use std::fs;
use std::ops::Range;

/// Gives back what only the start needed. While no other thread runs: one that loads a library writes into pages that
/// seem to be clean.
pub fn give_back() {
    // SAFETY: no pointers; free memory only.
    unsafe { libc::malloc_trim(0) };
    // Where this cannot be read nothing is given back, which is no harm.
    let Ok(maps) = fs::read_to_string("/proc/self/smaps") else { return };
    for Range { start, end } in clean(&maps) {
        // SAFETY: the system has just said that this range is mapped from a file, private, not writable and without a page
        // that differs from the file. So what is read from it next is the same again. An error changes nothing.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(start), end - start, libc::MADV_DONTNEED) };
    }
}

/// The mappings whose pages are all as in their files, and stay so.
fn clean(smaps: &str) -> impl Iterator<Item = Range<usize>> {
    // A mapping's lines: `start-end perms offset device inode path`, then `Field: value`.
    let mut current = None;
    smaps.lines().filter_map(move |line| {
        let (first, rest) = line.split_once(' ')?;
        let Some(field) = first.strip_suffix(':') else {
            current = mapping(first, rest);
            return None;
        };
        match field {
            // Private copies, in memory or not.
            "Anonymous" | "Swap" if rest.trim() != "0 kB" => current = None,
            // The last line of each.
            "VmFlags" => return current.take(),
            _ => {}
        }
        None
    })
}

fn mapping(range: &str, rest: &str) -> Option<Range<usize>> {
    let is_readable_file = (rest.starts_with("r-xp ") || rest.starts_with("r--p ")) && rest.contains(" /");
    let (start, end) = range.split_once('-').filter(|_| is_readable_file)?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(header: &str, anonymous: &str, swap: &str) -> String {
        format!("{header}\nSize: 4 kB\nRss: 4 kB\nAnonymous:   {anonymous} kB\nSwap: {swap} kB\nVmFlags: rd mr mw me\n")
    }

    #[test]
    fn what_may_differ_from_its_file_stays() {
        let text = [
            of("1000-3000 r-xp 00000000 fe:01 77                         /usr/sbin/ibacm", "0", "0"),
            of("3000-4000 r--p 00002000 fe:01 77                         /usr/sbin/ibacm", "0", "0"),
            of("4000-5000 r--p 00002000 fe:01 77                         /usr/sbin/ibacm", "4", "0"),
            of("5000-6000 r-xp 00002000 fe:01 77                         /usr/lib/x.so", "0", "4"),
            of("6000-7000 rw-p 00002000 fe:01 77                         /usr/lib/x.so", "0", "0"),
            of("7000-8000 r--s 00002000 fe:01 77                         /usr/lib/x.so", "0", "0"),
            of("8000-9000 r-xp 00000000 00:00 0                          [vdso]", "0", "0"),
            of("9000-a000 rw-p 00000000 00:00 0 ", "0", "0"),
            of("junk r-xp 00000000 00:00 0 /x", "0", "0"),
            of("f000-10000 r--p 00000000 fe:01 9 /usr/lib/y z.so", "0", "0"),
        ];
        let found: Vec<_> = clean(&text.concat()).collect();
        assert_eq!(found, [0x1000..0x3000, 0x3000..0x4000, 0xf000..0x10000]);
    }

    #[test]
    fn the_process_runs_on() {
        let text = String::from("as before");
        give_back();
        assert_eq!(text, "as before");
        assert_eq!(format!("{:?}", (1..4).collect::<Vec<_>>()), "[1, 2, 3]");
    }
}
