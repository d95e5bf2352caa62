//! MTU and rate codes of the InfiniBand architecture, and what they stand for.
//!
//! Both are small enumerations that travel in path and multicast records (six bits, beside a two-bit selector). The
//! rate codes were given out over the years and are **not** in order of speed: compare [`rate_mbps`], never codes.
//! The values are those of `enum ibv_mtu` and `enum ibv_rate` in `infiniband/verbs.h`.

use std::fmt;

/// Code of a 2048-byte MTU.
pub const MTU_2048: u8 = 4;
/// Code of 2.5 Gb/s, the slowest rate of all.
pub const RATE_2_5: u8 = 2;
/// Code of 10 Gb/s.
pub const RATE_10: u8 = 3;

/// Every defined rate: Mb/s and code, slowest first.
const RATES: [(u32, u8); 23] = [
    (2_500, RATE_2_5),
    (5_000, 5),
    (10_000, RATE_10),
    (14_000, 11),
    (20_000, 6),
    (25_000, 15),
    (28_000, 19),
    (30_000, 4),
    (40_000, 7),
    (50_000, 20),
    (56_000, 12),
    (60_000, 8),
    (80_000, 9),
    (100_000, 16),
    (112_000, 13),
    (120_000, 10),
    (168_000, 14),
    (200_000, 17),
    (300_000, 18),
    (400_000, 21),
    (600_000, 22),
    (800_000, 23),
    (1_200_000, 24),
];

/// The code of an MTU given in bytes; `None` for anything but 256, 512, 1024, 2048, 4096.
pub const fn mtu_code(bytes: u32) -> Option<u8> {
    match bytes {
        256 => Some(1),
        512 => Some(2),
        1024 => Some(3),
        2048 => Some(MTU_2048),
        4096 => Some(5),
        _ => None,
    }
}

/// The bytes that an MTU code stands for; `None` for a code that is not defined.
pub const fn mtu_bytes(code: u8) -> Option<u32> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// The code of a rate given in whole Gb/s, as people write it: 2 means 2.5. `None` for a rate that is not defined.
pub fn rate_code(gbps: u32) -> Option<u8> {
    RATES.iter().find(|(mbps, _)| mbps / 1_000 == gbps).map(|&(_, code)| code)
}

/// The Mb/s of a rate code; `None` for a code that is not defined.
pub fn rate_mbps(code: u8) -> Option<u32> {
    RATES.iter().find(|&&(_, c)| c == code).map(|&(mbps, _)| mbps)
}

/// Mb/s as they are shown: Gb/s, with as many digits behind the point as there have to be. Printing floating-point numbers
/// would bring ten kilobytes of code with it.
#[derive(Clone, Copy, Debug)]
pub struct Gbps(pub u32);

impl fmt::Display for Gbps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 / 1000)?;
        let (mut rest, mut digits) = (self.0 % 1000, 3);
        if rest == 0 {
            return Ok(());
        }
        while rest % 10 == 0 {
            rest /= 10;
            digits -= 1;
        }
        write!(f, ".{rest:0digits$}")
    }
}

/// The rate code of a port from its active width and speed, in the encodings of `struct ibv_port_attr`.
///
/// Widths: 1 is 1x, 2 is 4x, 4 is 8x, 8 is 12x, 16 is 2x. Speeds, per lane: 1 SDR, 2 DDR, 4 QDR, 8 FDR-10, 16 FDR,
/// 32 EDR, 64 HDR, 128 NDR, 256 XDR. Where no code is defined for the product (8x and 12x XDR) the fastest slower
/// one is given. An unknown width or speed gives 2.5 Gb/s: every port can do that, so nothing that is built on it
/// promises too much.
pub fn port_rate(width: u8, speed: u32) -> u8 {
    let lanes: u32 = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return RATE_2_5,
    };
    let lane_mbps = match speed {
        1 => 2_500,
        2 => 5_000,
        // FDR-10 carries 10 Gb/s of data as QDR does, with less overhead.
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        256 => 200_000,
        _ => return RATE_2_5,
    };
    let total = lanes * lane_mbps;
    RATES.iter().rev().find(|&&(mbps, _)| mbps <= total).map_or(RATE_2_5, |&(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_without_needless_digits() {
        let shown = [0, 2_500, 10_000, 14_062, 400_000, 1_050, u32::MAX].map(|mbps| Gbps(mbps).to_string());
        assert_eq!(shown, ["0", "2.5", "10", "14.062", "400", "1.05", "4294967.295"]);
    }

    #[test]
    fn mtu_codes_both_ways() {
        for (bytes, code) in [(256, 1), (512, 2), (1024, 3), (2048, 4), (4096, 5)] {
            assert_eq!(mtu_code(bytes), Some(code));
            assert_eq!(mtu_bytes(code), Some(bytes));
        }
        for bytes in [0, 255, 257, 1500, 8192, u32::MAX] {
            assert_eq!(mtu_code(bytes), None, "{bytes}");
        }
        for code in [0, 6, 0x84, 255] {
            assert_eq!(mtu_bytes(code), None, "{code}");
        }
    }

    #[test]
    fn rates_are_those_of_the_header() {
        let header = [
            (2, 2),
            (5, 5),
            (10, 3),
            (20, 6),
            (30, 4),
            (40, 7),
            (60, 8),
            (80, 9),
            (120, 10),
            (14, 11),
            (56, 12),
            (112, 13),
            (168, 14),
            (25, 15),
            (100, 16),
            (200, 17),
            (300, 18),
            (28, 19),
            (50, 20),
            (400, 21),
            (600, 22),
            (800, 23),
            (1200, 24),
        ];
        assert_eq!(header.len(), RATES.len());
        for (gbps, code) in header {
            assert_eq!(rate_code(gbps), Some(code), "{gbps}");
            assert_eq!(rate_mbps(code).map(|m| m / 1000), Some(gbps), "{code}");
        }
        for gbps in [0, 1, 3, 15, 70, 1600, u32::MAX] {
            assert_eq!(rate_code(gbps), None, "{gbps}");
        }
        for code in [0, 1, 25, 63, 255] {
            assert_eq!(rate_mbps(code), None, "{code}");
        }
    }

    #[test]
    fn table_is_in_order_of_speed() {
        assert!(RATES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn every_width_and_speed() {
        // Columns: SDR, DDR, QDR, FDR-10, FDR, EDR, HDR, NDR, XDR.
        let rows: [(u8, [u32; 9]); 5] = [
            (1, [2, 5, 10, 10, 14, 25, 50, 100, 200]),
            (16, [5, 10, 20, 20, 28, 50, 100, 200, 400]),
            (2, [10, 20, 40, 40, 56, 100, 200, 400, 800]),
            (4, [20, 40, 80, 80, 112, 200, 400, 800, 1200]),
            (8, [30, 60, 120, 120, 168, 300, 600, 1200, 1200]),
        ];
        for (width, row) in rows {
            for (bit, gbps) in row.into_iter().enumerate() {
                assert_eq!(Some(port_rate(width, 1 << bit)), rate_code(gbps), "width {width}, speed {}", 1 << bit);
            }
        }
    }

    #[test]
    fn unknown_ports_promise_the_least() {
        for (width, speed) in [(0, 1), (3, 1), (32, 4), (2, 0), (2, 3), (2, 512), (255, u32::MAX)] {
            assert_eq!(port_rate(width, speed), RATE_2_5, "width {width}, speed {speed}");
        }
    }
}
