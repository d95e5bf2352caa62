//! The table of options: how each is named, set, shown, and what it expects.

use super::{
    AddrFallback, AddrPreload, AddrProt, LogTarget, LoopbackProt, Options, RoutePreload, RouteProt, ServerMode,
};
use crate::rates;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Largest number of minutes: ten years, far from any arithmetic's edge.
const MAX_MINUTES: i64 = 10 * 366 * 24 * 60;
/// Largest time in milliseconds: an hour.
const MAX_MS: i64 = 3_600_000;
/// Longer than any fabric takes, and short enough not to be noticed when it is over.
const MAX_BUSY_POLL: i64 = 10_000;
/// Largest number of requests or buffers.
const MAX_DEPTH: i64 = 65_536;
/// Largest number of multicast groups of an endpoint.
const MAX_GROUPS: i64 = 16;

/// What `log_file` can be; the system's log is a feature that this program may have been built without.
const LOG_TARGETS: &str = match cfg!(feature = "syslog") {
    true => "stdout, stderr, syslog or a path",
    false => "stdout, stderr or a path (this program was built without syslog)",
};

/// One option of the file.
pub(super) struct OptionRow {
    /// Its name, in lower case.
    pub(super) name: &'static str,
    /// What a value looks like, for messages.
    pub(super) expects: &'static str,
    /// Sets it; `None` leaves the options as they were.
    pub(super) set: fn(&mut Options, &[u8]) -> Option<()>,
    /// Its value as it would stand in the file.
    pub(super) get: fn(&Options) -> String,
    /// What is taken for a number above the largest; without it such a number is a bad value.
    pub(super) most: Option<&'static str>,
}

/// A row whose field holds what `$parse` gives.
macro_rules! row {
    ($field:ident, $expects:expr, $parse:expr, $show:expr) => {
        OptionRow {
            name: stringify!($field),
            expects: $expects,
            set: |options, value| {
                options.$field = $parse(value)?;
                Some(())
            },
            get: |options| $show(&options.$field),
            most: None,
        }
    };
}

/// A row for a number within a range.
macro_rules! number_row {
    ($field:ident, $range:expr, $expects:expr) => {
        row!($field, $expects, |value| number(value, $range)?.try_into().ok(), ToString::to_string)
    };
}

/// A row for a level, of which there are 0 to 2 and always could be asked for more.
macro_rules! level_row {
    ($field:ident) => {
        OptionRow { most: Some("2"), ..number_row!($field, 0..=2, "0 to 2") }
    };
}

/// A row for one of several keywords; where several mean the same, the first is the one to show.
macro_rules! keyword_row {
    ($field:ident, $expects:expr, $words:expr) => {
        row!($field, $expects, |value| keyword(value, &$words), |held| show_keyword(held, &$words))
    };
}

/// A row for a path.
macro_rules! path_row {
    ($field:ident) => {
        row!($field, "a path", path, |held: &PathBuf| held.display().to_string())
    };
}

/// A row for yes or no.
macro_rules! bool_row {
    ($field:ident) => {
        row!($field, "yes or no", boolean, |held: &bool| String::from(if *held { "yes" } else { "no" }))
    };
}

impl OptionRow {
    /// Sets it as the deployed service would have, where the value is not a good one as it stands: from the digits that
    /// it starts with (`2000ms`), or from the largest number. Gives what was taken.
    pub(super) fn set_leniently<'a>(&self, options: &mut Options, value: &'a [u8]) -> Option<&'a [u8]> {
        let sign = usize::from(value.first().is_some_and(|b| matches!(b, b'+' | b'-')));
        let digits = value[sign..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let start = &value[..sign + digits];
        if start.len() < value.len() && (self.set)(options, start).is_some() {
            return Some(start);
        }
        let above = value[0] != b'-' && !value[sign..][..digits].iter().all(|&b| b == b'0');
        let most = self.most.filter(|_| above)?.as_bytes();
        (self.set)(options, most).map(|()| most)
    }
}

/// Every option but `provider`, in the order in which they are shown.
pub(super) static TABLE: &[OptionRow] = &[
    row!(log_file, LOG_TARGETS, log_target, show_log_target),
    level_row!(log_level),
    level_row!(umad_debug_level),
    path_row!(lock_file),
    number_row!(server_port, 1..=65_535, "1 to 65535"),
    keyword_row!(
        server_mode,
        "unix, loop or open",
        [("unix", ServerMode::Unix), ("loop", ServerMode::Loop), ("open", ServerMode::Open)]
    ),
    bool_row!(acme_plus_kernel_only),
    path_row!(provider_lib_path),
    bool_row!(builtin_provider),
    number_row!(provider_timeout, 1..=MAX_MS, "milliseconds, 1 to 3600000"),
    bool_row!(support_ips_in_addr_cfg),
    keyword_row!(addr_prot, "acm", [("acm", AddrProt::Acm)]),
    keyword_row!(
        addr_fallback,
        "neigh or none",
        [("neigh", AddrFallback::Neigh), ("none", AddrFallback::None), ("no", AddrFallback::None)]
    ),
    row!(addr_timeout, "minutes, or -1 for never", minutes, show_minutes),
    keyword_row!(route_prot, "sa or acm", [("sa", RouteProt::Sa), ("acm", RouteProt::Acm)]),
    row!(route_timeout, "minutes, or -1 for never", minutes, show_minutes),
    keyword_row!(loopback_prot, "none or local", [("none", LoopbackProt::None), ("local", LoopbackProt::Local)]),
    number_row!(timeout, 1..=MAX_MS, "milliseconds, 1 to 3600000"),
    number_row!(retries, 0..=100, "0 to 100"),
    number_row!(resolve_depth, 1..=MAX_DEPTH, "1 to 65536"),
    number_row!(sa_depth, 1..=MAX_DEPTH, "1 to 65536"),
    number_row!(send_depth, 1..=MAX_DEPTH, "1 to 65536"),
    number_row!(recv_depth, 1..=MAX_DEPTH, "1 to 65536"),
    row!(min_mtu, "256, 512, 1024, 2048 or 4096", mtu, show_mtu),
    row!(min_rate, "an InfiniBand rate in Gb/s (2.5, 5, 10, 14, 20, 25, ... 1200)", rate, show_rate),
    number_row!(multicast_groups, 1..=MAX_GROUPS, "1 to 16"),
    keyword_row!(
        route_preload,
        "none or opensm_full_v1",
        [
            ("none", RoutePreload::None),
            ("no", RoutePreload::None),
            ("opensm_full_v1", RoutePreload::OpensmFullV1),
            ("full_opensm_v1", RoutePreload::OpensmFullV1),
        ]
    ),
    path_row!(route_data_file),
    keyword_row!(
        addr_preload,
        "none or acm_hosts",
        [("none", AddrPreload::None), ("no", AddrPreload::None), ("acm_hosts", AddrPreload::AcmHosts)]
    ),
    path_row!(addr_data_file),
    number_row!(max_destinations, 16..=16_777_216, "16 to 16777216"),
    number_row!(negative_cache, 0..=MAX_MS, "milliseconds, 0 to 3600000"),
    number_row!(busy_poll_us, 0..=MAX_BUSY_POLL, "microseconds, 0 to 10000"),
    row!(metrics_file, "an absolute path or none", path_or_none, show_path_or_none),
    number_row!(metrics_interval, 1..=3600, "seconds, 1 to 3600"),
    bool_row!(wait_for_device),
];

/// A whole decimal number within `range`; nothing may follow it.
fn number(value: &[u8], range: RangeInclusive<i64>) -> Option<i64> {
    let number: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    range.contains(&number).then_some(number)
}

/// A number as C reads it with base 0: `0x` hexadecimal, a leading `0` octal, else decimal.
pub(super) fn c_number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let (digits, radix) = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        (hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    // from_str_radix would take a sign here.
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn keyword<T: Copy>(value: &[u8], words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(word, _)| value.eq_ignore_ascii_case(word.as_bytes())).map(|&(_, meaning)| meaning)
}

fn show_keyword<T: PartialEq>(held: &T, words: &[(&str, T)]) -> String {
    words.iter().find(|(_, meaning)| meaning == held).map_or("?", |&(word, _)| word).to_owned()
}

/// Words, and numbers as they always were: any but 0 is yes, and `0x` is taken.
fn boolean(value: &[u8]) -> Option<bool> {
    let words = [("yes", true), ("no", false), ("true", true), ("false", false), ("on", true), ("off", false)];
    let signed = || number(value, i64::MIN..=i64::MAX).map(|number| number != 0);
    keyword(value, &words).or_else(signed).or_else(|| c_number(value).map(|number| number != 0))
}

fn path(value: &[u8]) -> Option<PathBuf> {
    Some(PathBuf::from(OsStr::from_bytes(value)))
}

fn path_or_none(value: &[u8]) -> Option<Option<PathBuf>> {
    if keyword(value, &[("none", ()), ("no", ())]).is_some() {
        return Some(None);
    }
    // from where a service is started is nobody's choice
    path(value).filter(|path| path.is_absolute()).map(Some)
}

fn show_path_or_none(held: &Option<PathBuf>) -> String {
    held.as_ref().map_or_else(|| String::from("none"), |path| path.display().to_string())
}

fn log_target(value: &[u8]) -> Option<LogTarget> {
    Some(match value.to_ascii_lowercase().as_slice() {
        b"stdout" => LogTarget::Stdout,
        b"stderr" => LogTarget::Stderr,
        #[cfg(feature = "syslog")]
        b"syslog" => LogTarget::Syslog,
        // Not a file of this name somewhere.
        #[cfg(not(feature = "syslog"))]
        b"syslog" => return None,
        _ => LogTarget::File(path(value)?),
    })
}

fn show_log_target(held: &LogTarget) -> String {
    match held {
        LogTarget::Stdout => String::from("stdout"),
        LogTarget::Stderr => String::from("stderr"),
        #[cfg(feature = "syslog")]
        LogTarget::Syslog => String::from("syslog"),
        LogTarget::File(path) => path.display().to_string(),
    }
}

fn minutes(value: &[u8]) -> Option<Option<u32>> {
    match number(value, -1..=MAX_MINUTES)? {
        -1 => Some(None),
        minutes => Some(Some(u32::try_from(minutes).ok()?)),
    }
}

fn show_minutes(held: &Option<u32>) -> String {
    held.map_or_else(|| String::from("-1"), |minutes| minutes.to_string())
}

fn mtu(value: &[u8]) -> Option<u8> {
    rates::mtu_code(u32::try_from(number(value, 0..=4096)?).ok()?)
}

fn show_mtu(held: &u8) -> String {
    rates::mtu_bytes(*held).unwrap_or_default().to_string()
}

fn rate(value: &[u8]) -> Option<u8> {
    if value == b"2.5" {
        return Some(rates::RATE_2_5);
    }
    rates::rate_code(u32::try_from(number(value, 0..=100_000)?).ok()?)
}

fn show_rate(held: &u8) -> String {
    match rates::rate_mbps(*held).unwrap_or_default() {
        2_500 => String::from("2.5"),
        mbps => (mbps / 1000).to_string(),
    }
}
