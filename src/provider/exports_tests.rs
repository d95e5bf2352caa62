use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use ibacm::engine::{EpId, MadToken, ProviderId};
use ibacm::options::LogTarget;
use ibacm::provider::Notice;
use ibacm_wire::sa::SaMad;

use super::*;

/// Off at any level of the log.
const OFF: c_int = 3;

fn format_name(size: usize, kind: u16, addr: &[u8]) -> Vec<u8> {
    let mut name = [b'#'; 80];
    // SAFETY: `size` is no more than there is, and the address is as long as it says.
    unsafe { acm_format_name(0, name.as_mut_ptr().cast(), size, kind as u8, addr.as_ptr(), addr.len()) };
    assert!(name[size..].iter().all(|&b| b == b'#'), "{:?} was written beyond {size}", name.escape_ascii());
    name[..size].to_vec()
}

#[track_caller]
fn shown(kind: u16, addr: &[u8], want: &str) {
    let name = format_name(80, kind, addr);
    let text = CStr::from_bytes_until_nul(&name).unwrap();
    assert_eq!(text.to_str(), Ok(want));
}

fn path(dlid: u16) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dgid(Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]));
    path.set_dlid(dlid);
    path.set_slid(3);
    path
}

#[test]
fn addresses_are_shown() {
    shown(TYPE_NAME, b"node-1\0junk", "node-1");
    shown(TYPE_NAME, &[b'x'; 64], &"x".repeat(64));
    shown(TYPE_NAME, &[b'x'; 1000], &"x".repeat(64));
    shown(TYPE_NAME, b"\0", "");
    shown(TYPE_IP, &[10, 0, 0, 255, 7, 7], "10.0.0.255");
    shown(TYPE_IP6, &path(0).dgid().0, "fe80::9");
    shown(TYPE_GID, &path(0).dgid().0, "fe80::9");
    shown(TYPE_GID, &[0x11; 16], "1111:1111:1111:1111:1111:1111:1111:1111");
    shown(TYPE_LID, &[1, 0], "LID(256)");
    shown(TYPE_PATH, &path(7).0, "SLID(3) DLID(7)");
    shown(TYPE_PATH, &path(0).0, "fe80::9");
}

#[test]
fn what_is_no_address_is_unknown() {
    shown(99, &[1; 64], "Unknown");
    let kinds = [(TYPE_NAME, 0), (TYPE_IP, 3), (TYPE_IP6, 15), (TYPE_GID, 0), (TYPE_LID, 1), (TYPE_PATH, 63)];
    for (kind, length) in kinds {
        shown(kind, &vec![1; length], "Unknown");
    }
    let mut name = [b'#'; 16];
    // SAFETY: there is as much room as it says; NULL is no address, whatever its length.
    unsafe { acm_format_name(0, name.as_mut_ptr().cast(), 16, TYPE_PATH as u8, ptr::null(), usize::MAX) };
    assert_eq!(name[..8], *b"Unknown\0");
}

#[test]
fn shown_addresses_end_in_their_room() {
    assert_eq!(format_name(5, TYPE_NAME, b"node-1"), b"node\0");
    assert_eq!(format_name(8, TYPE_IP, &[10, 20, 30, 40]), b"10.20.3\0");
    assert_eq!(format_name(1, 99, b""), b"\0");
    assert_eq!(format_name(0, TYPE_NAME, b"node-1"), b"");
    // SAFETY: there is no room to be written.
    unsafe { acm_format_name(0, ptr::null_mut(), 9, TYPE_NAME as u8, b"x".as_ptr(), 1) };
    let mut name = *b"before\0";
    // SAFETY: there is as much room as it says.
    unsafe { acm_format_name(OFF, name.as_mut_ptr().cast(), 7, TYPE_NAME as u8, b"x".as_ptr(), 1) };
    assert_eq!(name, *b"before\0", "nothing is to be written at this level");
    // SAFETY: as above.
    unsafe { acm_format_name(-1, name.as_mut_ptr().cast(), 7, TYPE_NAME as u8, b"x".as_ptr(), 1) };
    assert_eq!(name[..2], *b"x\0", "what is below 0 is always written");
}

#[test]
fn lines_are_formatted_and_written() {
    let file = std::env::temp_dir().join(format!("ibacm-exports-{}.log", std::process::id()));
    log::configure(&LogTarget::File(file.clone()), 0).unwrap();
    let long = format!("%s%{}d", 3000);
    let long = std::ffi::CString::new(long).unwrap();
    let mut count: c_int = -1;
    // SAFETY: what the formats say is given.
    unsafe {
        *libc::__errno_location() = libc::ENOENT;
        acm_write(0, c"%s: %d of %d, %m\n".as_ptr(), c"acmp_open".as_ptr(), 1 as c_int, 2 as c_int);
        assert_eq!(*libc::__errno_location(), libc::ENOENT);
        acm_write(0, long.as_ptr(), c"long: ".as_ptr(), 5 as c_int);
        acm_write(0, c"a\x1b[2J\xff\nb\n".as_ptr());
        acm_write(-7, c"below 0".as_ptr());
        acm_write(OFF, c"not %nshown".as_ptr(), &raw mut count);
        acm_write(c_int::MAX, c"not %nshown".as_ptr(), &raw mut count);
        acm_write(0, ptr::null());
        acm_write(0, c"last".as_ptr());
    }
    log::configure(&LogTarget::Stderr, 0).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let has = |what: &str| assert_eq!(text.lines().filter(|l| l.contains(what)).count(), 1, "{what} in:\n{text}");
    has(": acmp_open: 1 of 2, No such file or directory");
    has(": long:    ");
    has(": a\\x1b[2J\u{fffd}\\x0ab");
    has(": below 0");
    has(": last");
    assert!(text.lines().all(|l| l.len() < log::MAX_LINE));
    assert_eq!((text.contains("shown"), count), (false, -1), "a line that is off was formatted");
}

#[test]
fn gids_of_a_port() {
    let mut gids: Vec<Gid> = (1..=3).map(|n| Gid([n; 16])).collect();
    gids.push(Gid::ZERO);
    // Only their addresses count.
    let port: *const abi::Port = ptr::without_provenance(0x1000);
    let large: *const abi::Port = ptr::without_provenance(0x2000);
    core().add_port(port, gids.clone());
    core().add_port(large, (0..300_u16).map(|n| Gid([n.to_be_bytes()[1]; 16])).collect());
    // SAFETY: GIDs, NULL, or what is only compared.
    unsafe {
        for (at, gid) in gids.iter().enumerate() {
            assert_eq!(usize::from(acm_gid_index(port, &gid.0)), at);
            let mut got = [9; 16];
            assert_eq!((acm_get_gid(port, at as c_int, &mut got), got), (0, gid.0));
        }
        assert_eq!(acm_gid_index(port, &[7; 16]), 4);
        assert_eq!(acm_gid_index(port, ptr::null()), 4);
        assert_eq!(acm_gid_index(large, &[255; 16]), 255);
        assert_eq!(acm_gid_index(ptr::without_provenance(8), &[1; 16]), 0);
        assert_eq!(acm_gid_index(ptr::null(), &[1; 16]), 0);
        let mut got = [9; 16];
        for index in [4, -1, c_int::MAX, c_int::MIN] {
            assert_eq!((acm_get_gid(port, index, &mut got), got), (-1, [9; 16]), "{index}");
        }
        assert_eq!((acm_get_gid(ptr::null(), 0, &mut got), got), (-1, [9; 16]));
        assert_eq!(acm_get_gid(port, 0, ptr::null_mut()), -1);
        core().remove_port(port);
        core().remove_port(large);
        assert_eq!((acm_get_gid(port, 0, &mut got), got), (-1, [9; 16]));
    }
}

#[test]
fn zero_gids_and_path_components() {
    // SAFETY: GIDs, path records, or NULL.
    unsafe {
        assert_eq!((ib_any_gid(&[0; 16]), ib_any_gid(&[1; 16]), ib_any_gid(ptr::null())), (1, 0, 1));
        let path = path(7);
        let mask = path::mask::DGID | path::mask::DLID | path::mask::SLID;
        assert_eq!(u64::from_be(acm_path_comp_mask(&path.0)), mask);
        assert_eq!((acm_path_comp_mask(&[0; 64]), acm_path_comp_mask(ptr::null())), (0, 0));
    }
}

#[test]
fn codes() {
    // SDR to NDR; 1x, 4x, 8x, 12x, 2x.
    for (width, speed, code) in [(1, 1, 2), (2, 1, 3), (2, 4, 7), (2, 8, 7), (2, 16, 12), (2, 32, 16), (8, 32, 18)] {
        assert_eq!(acm_get_rate(width, speed), code, "{width} {speed}");
    }
    assert_eq!((acm_get_rate(2, 64), acm_get_rate(2, 128), acm_get_rate(16, 1)), (17, 21, 5));
    for (width, speed) in [(0, 1), (3, 1), (2, 0), (1, 3), (1, 0), (255, 255)] {
        assert_eq!(acm_get_rate(width, speed), RATE_MAX, "{width} {speed}");
    }
    for (mtu, code) in [(256, 1), (512, 2), (1024, 3), (2048, 4), (4096, 5), (0, 4), (-256, 4), (1500, 4)] {
        assert_eq!(acm_convert_mtu(mtu), code, "{mtu}");
    }
    for (rate, code) in [(2, 2), (10, 3), (40, 7), (56, 12), (100, 16), (400, 21), (0, 3), (-2, 3), (77, 3)] {
        assert_eq!(acm_convert_rate(rate), code, "{rate}");
    }
}

/// Tests that look into the loop's queue, of which there is one.
static NOTICES: Mutex<()> = Mutex::new(());

fn notices() -> VecDeque<Notice> {
    let mut out = VecDeque::new();
    core().take_notices(&mut out);
    out
}

#[test]
fn answers_are_taken_once_and_no_further_than_they_say() {
    let _alone = NOTICES.lock();
    let mut message = abi::Message([7; MESSAGE]);
    for (length, taken) in [(16, 16), (88, 88), (592, 592), (15, 16), (0, 16), (593, 16), (u16::MAX, 16)] {
        message.0[6..8].copy_from_slice(&length.to_ne_bytes());
        core().open_ask(AskId(0x5000), ProviderId(0));
        // SAFETY: the message is as long as it says, or its length is out of bounds.
        unsafe {
            assert_eq!(acm_resolve_response(0x5000, &message), 0, "{length}");
            assert_eq!(acm_resolve_response(0x5000, &message), 5, "a second answer");
            assert_eq!(acm_query_response(0x5000, &message), 5, "a second answer");
        }
        let got = notices();
        let Some(Notice::Answer { id: AskId(0x5000), message: got }) = got.front() else { panic!("{got:?}") };
        assert_eq!(got.0[..taken], message.0[..taken]);
        assert!(got.0[taken..].iter().all(|&b| b == 0), "{length}");
    }
    // SAFETY: a message, or NULL.
    unsafe {
        core().open_ask(AskId(0x5001), ProviderId(0));
        assert_eq!(acm_query_response(0x5001, ptr::null()), 2);
        assert!(core().is_open(AskId(0x5001)), "it can still be answered");
        assert_eq!(acm_query_response(0x5001, &message), 0);
        assert_eq!((acm_query_response(0, &message), acm_resolve_response(u64::MAX, &message)), (5, 5));
    }
    assert_eq!(notices().len(), 1);
}

/// The status that the handler saw, and the first byte of the MAD.
static SEEN: Mutex<Vec<(u32, u8)>> = Mutex::new(Vec::new());

unsafe extern "C" fn ended(mad: *mut abi::SaMad) {
    // SAFETY: it is called with a MAD that is not freed.
    let seen = unsafe { ((*mad).umad.status, (*mad).mad[0]) };
    SEEN.lock().unwrap().push(seen);
    acm_free_sa_mad(mad);
}

#[test]
fn a_mad_goes_and_comes_back() {
    let _alone = NOTICES.lock();
    let endpoint: *const abi::Endpoint = ptr::without_provenance(0x3000);
    let context: *mut c_void = ptr::without_provenance_mut(0x77);
    assert!(acm_alloc_sa_mad(endpoint, context, Some(ended)).is_null(), "the endpoint is not open");
    core().add_endpoint(endpoint, EpId(4), ProviderId(1));
    assert!(acm_alloc_sa_mad(endpoint, context, None).is_null());
    assert!(acm_alloc_sa_mad(ptr::null(), context, Some(ended)).is_null());

    let mad = acm_alloc_sa_mad(endpoint, context, Some(ended));
    assert!(!mad.is_null());
    assert!(mad.addr().is_multiple_of(8));
    // SAFETY: it was just allocated.
    unsafe {
        assert_eq!(((*mad).context, (*mad).mad), (context, [0; 256]));
        (*mad).mad[0] = 1;
    }
    assert_eq!(acm_send_sa_mad(mad), 0);
    assert_eq!(acm_send_sa_mad(mad), -libc::EBUSY);
    let got = notices();
    let [Notice::Mad { token, ep: EpId(4), mad: question }] = &Vec::from(got)[..] else { panic!() };
    assert_eq!(question.0[0], 1);
    let token: MadToken = *token;
    let answer = Box::new(SaMad([2; 256]));
    core().mad_done(token, Ok(answer)).unwrap().deliver();
    assert_eq!(*SEEN.lock().unwrap(), [(0, 2)]);

    // freed by the handler
    assert_eq!(acm_send_sa_mad(mad), -libc::EINVAL);
    acm_free_sa_mad(mad);
    acm_free_sa_mad(ptr::null_mut());
    acm_free_sa_mad(ptr::without_provenance_mut(0x40));
    assert_eq!(acm_send_sa_mad(ptr::null_mut()), -libc::EINVAL);
    let mad = acm_alloc_sa_mad(endpoint, context, Some(ended));
    core().remove_endpoint(endpoint);
    assert_eq!(acm_send_sa_mad(mad), -libc::ENETDOWN);
    acm_free_sa_mad(mad);
    assert!(notices().is_empty());
}

#[test]
fn the_options_file_and_counters() {
    let options = || {
        // SAFETY: it is never NULL, and never freed.
        unsafe { CStr::from_ptr(acm_get_opts_file()) }.to_owned()
    };
    assert_eq!(PathBuf::from(options().into_string().unwrap()), ibacm::cli::opts_file());
    core().set_opts_file("/somewhere/else.cfg".as_ref());
    assert_eq!(options().as_c_str(), c"/somewhere/else.cfg");
    for counter in [5, 0, 5, 6, -1, 7, c_int::MAX, c_int::MIN] {
        acm_increment_counter(counter);
    }
    assert_eq!(core().take_counts(), Some([1, 0, 0, 0, 0, 2, 1]));
    assert_eq!(core().take_counts(), None);
}

#[test]
fn interfaces_without_a_gid() {
    let mut gid = [9; 16];
    // SAFETY: strings, NULL, and a GID.
    unsafe {
        for name in [c"", c"lo", c"../lo", c"no-such-interface-name", c"abcdefghijklmno", c"abcdefghijklmnop"] {
            assert_eq!((acm_if_get_sgid(name.as_ptr(), &mut gid), gid), (-1, [9; 16]), "{name:?}");
        }
        assert_eq!(acm_if_get_sgid(ptr::null(), &mut gid), -1);
        assert_eq!(acm_if_get_sgid(c"lo".as_ptr(), ptr::null_mut()), -1);
    }
}

#[test]
fn panics_stay_inside() {
    assert_eq!(guard(-1, || panic!("meant to")), -1);
}
