use super::*;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const A: u64 = 0x0002_c903_0000_0001;
const B: u64 = 0x0002_c903_0000_0002;
const SW: u64 = 0x0002_c903_0000_00ff;

fn parse(text: &[u8], wanted: &[u64]) -> (Routes, Vec<String>) {
    let (routes, findings) = parse_routes(text, "f", Wanted::Ports(wanted));
    (routes, findings.iter().map(ToString::to_string).collect())
}

fn clean(text: &str, wanted: &[u64]) -> Routes {
    let (routes, findings) = parse(text.as_bytes(), wanted);
    assert_eq!(findings, [""; 0]);
    routes
}

fn route(lid: u16, sl: u8, mtu: u8, rate: u8) -> Route {
    Route { lid, sl, mtu, rate }
}

/// As OpenSM writes it.
fn three(description: &str) -> String {
    format!(
        "Channel Adapter 0x{A:016x}, base LID 1, \"{description}\", port 1\n# LID  : SL : MTU : RATE\n\
         0x0001 : 0  : 5   : 7   \n0x0002 : 3  : 4   : 16  \n0x0003 : 15 : 1   : 2   \n\n\
         Channel Adapter 0x{B:016x}, base LID 2, \"h2 mlx5_0\", port 1\n# LID  : SL : MTU : RATE\n\
         0x0001 : 1  : 4   : 3   \n0x0002 : 0  : 5   : 7   \n0x0003 : UNREACHABLE\n\n\
         Switch 0x{SW:016x}, base LID 3, \"leaf\", port 0\n# LID  : SL : MTU : RATE\n\
         0x0001 : 0  : 4   : 3   \n0x0002 : 0  : 4   : 3   \n\n"
    )
}

#[test]
fn a_dump_is_read_for_each_source() {
    let text = three("h1 mlx5_0");
    let r = clean(&text, &[A]);
    let from = r.from(A, 1).unwrap();
    assert_eq!(from.to_lid(2), Some((route(2, 3, 4, 16), B)));
    assert_eq!(from.to_lid(3), Some((route(3, 15, 1, 2), SW)));
    assert_eq!(from.to_guid(SW), Some(route(3, 15, 1, 2)));
    assert_eq!(from.to_guid(A), Some(route(1, 0, 5, 7)));
    assert_eq!((from.to_lid(0), from.to_lid(4), from.to_lid(0xffff), from.to_guid(7)), (None, None, None, None));
    assert_eq!((from.len(), r.lids()), (3, 3));
    // only with both
    assert!(r.from(A, 2).is_none() && r.from(B, 1).is_none() && r.from(B, 2).is_none());
    let r = clean(&text, &[B, SW]);
    let from = r.from(B, 2).unwrap();
    assert_eq!((from.to_lid(1), from.to_lid(3), from.len()), (Some((route(1, 1, 4, 3), A)), None, 2));
    assert_eq!(r.from(SW, 3).unwrap().len(), 2);
    assert!(r.from(A, 1).is_none());
}

#[test]
fn descriptions_may_hold_anything() {
    let long = "x".repeat(64);
    for description in [
        "",
        "rack 7, base LID 9, port 2",
        "a\"b\", port 1",
        "# Switch 0x0000000000000009, base LID 9, \"s\"",
        "0x0001 : 0 : 4 : 3",
        ":,:\\ UNREACHABLE",
        "Zürich \u{1b}[2J",
        long.as_str(),
    ] {
        let r = clean(&three(description), &[A]);
        assert_eq!(r.from(A, 1).unwrap().to_lid(2), Some((route(2, 3, 4, 16), B)), "{description}");
        assert_eq!(r.lids(), 3, "{description}");
    }
}

#[test]
fn routers_line_ends_and_missing_blank_lines() {
    let text = three("h1").replace("Switch", "Router").replace("\n\n", "\n").replace('\n', "\r\n");
    let r = clean(&text, &[A, SW]);
    assert_eq!(r.from(A, 1).unwrap().to_lid(2), Some((route(2, 3, 4, 16), B)));
    assert_eq!((r.from(A, 1).unwrap().len(), r.from(SW, 3).unwrap().len()), (3, 2));
    // without comments, with blank lines between destinations, indented, decimal
    let text = format!("Switch 0x{SW:x}, base LID 3\n\n  1:0:4:3\n\n0x3:0:4:3\nSwitch 0x{A:x},base LID 1,\"\"\n");
    let r = clean(&text, &[SW]);
    assert_eq!(r.from(SW, 3).unwrap().to_lid(1), Some((route(1, 0, 4, 3), A)));
    assert_eq!(r.from(SW, 3).unwrap().len(), 2);
}

#[test]
fn pieces_may_end_anywhere() {
    let text = three("h1 \"x\", base LID 7") + "Switch 0x77, base LID 49152, \"\", port 0\n0x0001 : 0 : 4 : 3\n";
    let (whole, findings) = parse(text.as_bytes(), &[A, B]);
    assert_eq!(findings.len(), 1);
    for size in 1..=text.len() {
        let mut parser = RouteParser::new("f", Wanted::Ports(&[A, B]));
        text.as_bytes().chunks(size).for_each(|c| parser.feed(c));
        let (r, f) = parser.finish();
        assert_eq!(f.iter().map(ToString::to_string).collect::<Vec<_>>(), findings, "{size}");
        assert_eq!(format!("{r:?}"), format!("{whole:?}"), "{size}");
    }
}

#[test]
fn a_bad_destination_costs_its_line() {
    let header = format!("Switch 0x{SW:x}, base LID 3, \"\", port 0\n");
    for (line, problem) in [
        ("0xC000 : 0 : 4 : 3", "LID 0xc000 is not a unicast LID"),
        ("0xFFFF : 0 : 4 : 3", "LID 0xffff is not a unicast LID"),
        ("0x10003 : 0 : 4 : 3", "LID 0x10003 is not a unicast LID"),
        ("0x0000 : 0 : 4 : 3", "LID 0x0000 is not a unicast LID"),
        ("0x99999999999999999 : 0 : 4 : 3", "bad LID"),
        ("0x : 0 : 4 : 3", "bad LID"),
        ("0x+3 : 0 : 4 : 3", "bad LID"),
        ("0x0003", "bad service level"),
        ("0x0003 : 16 : 4 : 3", "bad service level"),
        ("0x0003 : -1 : 4 : 3", "bad service level"),
        ("0x0003 : UNREACHABLE?", "bad service level"),
        ("0x0003 : 0 : 0 : 3", "bad MTU"),
        ("0x0003 : 0 : 6 : 3", "bad MTU"),
        ("0x0003 : 0 : 132 : 3", "bad MTU"),
        ("0x0003 : 0 : 4 : 1", "bad rate"),
        ("0x0003 : 0 : 4 : 131", "bad rate"),
        ("0x0003 : 0 : 4 :", "bad rate"),
        ("0x0003 : 0 : 4", "bad rate"),
        ("0x0003 \0: 0 : 4 : 3", "line with a NUL byte"),
    ] {
        let text = format!("{header}{line}\n0x0003 : 1 : 4 : 3\n");
        let (r, findings) = parse(text.as_bytes(), &[SW]);
        assert_eq!(findings.len(), 1, "{line}: {findings:?}");
        assert!(findings[0].starts_with(&format!("f:2: warning: {problem}")), "{line}: {findings:?}");
        let from = r.from(SW, 3).unwrap();
        assert_eq!((from.to_lid(3), from.len()), (Some((route(3, 1, 4, 3), SW)), 1), "{line}");
        // nobody looks at the lines of other hosts
        assert_eq!(parse(text.as_bytes(), &[A]).1, [""; 0], "{line}");
        assert_eq!(parse_routes(text.as_bytes(), "f", Wanted::Check).1.len(), 1, "{line}");
    }
}

#[test]
fn lines_of_any_length_are_lines() {
    // neither cut nor taken for several
    for length in [100, 127, 128, 129, 255, MAX_LINE - 20, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE, 1 << 20] {
        let begin = "0x0003 : 0 : 4 : 3 : ";
        let end = "0x0002 : 7 : 4 : 3";
        let padded = format!("{begin}{}{end}", " ".repeat(length - begin.len() - end.len()));
        let text = format!("Switch 0x{SW:x}, base LID 3, \"\", port 0\n{padded}\n0x0003 : 1 : 4 : 3\n");
        for size in [1, 4096, 1 << 30] {
            let mut parser = RouteParser::new("f", Wanted::Ports(&[SW]));
            text.as_bytes().chunks(size).for_each(|c| parser.feed(c));
            assert!(parser.partial.capacity() <= 2 * (MAX_LINE + 1));
            let (r, findings) = parser.finish();
            let from = r.from(SW, 3).unwrap();
            assert_eq!((from.to_lid(3), from.len()), (Some((route(3, 1, 4, 3), SW)), 1), "{length}");
            let (too_long, findings) = (length > MAX_LINE, findings.iter().map(ToString::to_string));
            assert!(findings.clone().any(|f| f.contains("line of more than 4096 bytes")) == too_long, "{length}");
            assert!(findings.clone().any(|f| f.contains("what follows the rate")) != too_long, "{length}");
            assert_eq!(findings.filter(|f| f.starts_with("f:2: ")).count(), 1);
        }
    }
}

#[test]
fn what_may_be_another_source_ends_the_block() {
    let begin = format!("Switch 0x{SW:x}, base LID 3, \"\", port 0\n0x0003 : 1 : 4 : 3\n");
    let long = format!("Switch 0x1, base LID 4, \"{}\"", "y".repeat(MAX_LINE));
    for broken in [
        "Channel Adapter 0x0002c90300000001, base LID 49152, \"h1\", port 1",
        "Channel Adapter 0x0002c90300000001, base LID 0, \"h1\", port 1",
        "Channel Adapter 0x0002c90300000001, base LID 65539, \"h1\", port 1",
        "Channel Adapter 0x0002c90300000001, base LID -3, \"h1\", port 1",
        "Channel Adapter 0x0002c90300000001, base LID",
        "Channel Adapter 0x0002c90300000001, \"h1\", port 1",
        "Channel Adapter 0x0002c903000000010, base LID 1, \"h1\", port 1",
        "Channel Adapter 0x0000000000000000, base LID 1, \"h1\", port 1",
        "Channel Adapter zero, base LID 1, \"h1\", port 1",
        "Channel Adapter",
        "Switchgear",
        "annel Adapter 0x0002c90300000001, base LID 1, \"h1\", port 1",
        "\u{feff}Switch 0x1, base LID 4, \"\"",
        long.as_str(),
    ] {
        let text = format!("{begin}{broken}\n0x0003 : 2 : 4 : 3\n");
        let (r, findings) = parse(text.as_bytes(), &[SW]);
        assert_eq!(r.from(SW, 3).unwrap().to_lid(3), Some((route(3, 1, 4, 3), SW)), "{broken}");
        assert!(findings.len() == 1 && findings[0].starts_with("f:3: warning: "), "{broken}: {findings:?}");
        assert!(findings[0].ends_with(": ignored up to the next source port"), "{findings:?}");
        assert_eq!(r.lids(), 1, "{broken}");
    }
}

#[test]
fn repeats_and_strangers_are_said() {
    let text = format!(
        "Switch 0x{SW:x}, base LID 3, \"\", port 0\n0x0003 : 1 : 4 : 3\n0x0003 : 2 : 4 : 3\n0x0005 : 0 : 4 : 3\n\
         0x0006 : 0 : 4 : 3\nSwitch 0x{SW:x}, base LID 3, \"\", port 0\n0x0003 : 4 : 4 : 3\n\
         Switch 0x{A:x}, base LID 3, \"\", port 0\nSwitch 0x{SW:x}, base LID 9, \"\", port 0\n0x0003 : 5 : 4 : 3\n"
    );
    let (r, findings) = parse(text.as_bytes(), &[SW]);
    assert_eq!(
        findings,
        [
            "f:3: warning: LID 3 was different further up: this line holds",
            "f:6: warning: 0x0002c903000000ff with LID 3 was there further up: ignored",
            "f:8: warning: LID 3 of 0x0002c90300000001 is that of 0x0002c903000000ff, as said further up",
            "f:1: warning: no port is said to have LID 5 and 1 more of its destinations: ignored",
        ]
    );
    let from = r.from(SW, 3).unwrap();
    assert_eq!((from.to_lid(3), from.to_lid(5), from.len()), (Some((route(3, 2, 4, 3), SW)), None, 1));
    // a port under two LIDs is found at the higher one that is reached
    assert_eq!(from.to_guid(SW), Some(route(3, 2, 4, 3)));
    assert_eq!(r.from(SW, 9).unwrap().to_lid(3), Some((route(3, 5, 4, 3), SW)));
}

#[test]
fn a_file_may_end_anywhere() {
    let text = three("h1 \"x\"");
    let whole = clean(&text, &[A, B, SW]);
    for end in 0..text.len() {
        let (r, findings) = parse(&text.as_bytes()[..end], &[A, B, SW]);
        assert!(findings.len() <= 2, "{end}: {findings:?}");
        for (guid, lid) in [(A, 1), (B, 2), (SW, 3)] {
            let Some(from) = r.from(guid, lid) else { continue };
            for to in 1..=3 {
                // what is there is what the whole file says
                let Some(found) = from.to_lid(to) else { continue };
                assert_eq!(whole.from(guid, lid).unwrap().to_lid(to), Some(found), "{end}");
            }
        }
    }
    assert_eq!(clean("", &[A]).lids(), 0);
}

#[test]
fn noise_is_no_danger() {
    let mut rng = crate::keyed::Rng::new(crate::keyed::SipKey(7, 8));
    let text = three("h1, \"x\"").into_bytes();
    for _ in 0..3000 {
        let mut bytes = text.clone();
        for _ in 0..=rng.below(8) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\n:,0x9C"[rng.below(7) as usize]),
            }
        }
        let (r, _) = parse(&bytes, &[A, B]);
        for lid in [0, 1, 2, 3, 0xbfff, 0xc000, 0xffff] {
            if let Some(from) = r.from(A, 1) {
                let found = from.to_lid(lid);
                assert!(found.is_none_or(|(r, g)| r.lid == lid && r.sl < 16 && g != 0));
            }
        }
    }
}

#[test]
fn a_subnet_of_48_000_lids_is_read_in_time_and_little_room() {
    let count = 48_000u32;
    let mut text = String::new();
    for lid in 1..=count {
        let guid = A + u64::from(lid) * 3;
        writeln!(text, "Channel Adapter 0x{guid:016x}, base LID {lid}, \"node{lid:05} mlx5_0\", port 1").unwrap();
        text += "# LID  : SL : MTU : RATE\n";
        // a few of another host's lines; all of the own ones
        for to in 1..=if lid == 77 { count } else { 20 } {
            writeln!(text, "0x{to:04X} : {:<2} : 5   : {:<4}", to % 16, 2 + to % 20).unwrap();
        }
        text.push('\n');
    }
    let begin = Instant::now();
    let r = clean(&text, &[A + 77 * 3]);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?} for {} bytes", text.len());
    let from = r.from(A + 77 * 3, 77).unwrap();
    for lid in 1..=count as u16 {
        let wanted = route(lid, (lid % 16) as u8, 5, (2 + lid % 20) as u8);
        assert_eq!(from.to_lid(lid), Some((wanted, A + u64::from(lid) * 3)));
        assert_eq!(from.to_guid(A + u64::from(lid) * 3), Some(wanted));
    }
    assert_eq!(r.lids(), count as usize);
    assert!(r.memory() <= 20 * count as usize, "{} bytes", r.memory());
    println!("{} bytes read in {took:?}, {} kept", text.len(), r.memory());
}
