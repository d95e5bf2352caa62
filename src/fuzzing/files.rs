//! Configuration files and preload files.

use std::path::Path;

use ibacm_wire::client::TYPE_NAME;

use super::input::Input;
use super::names;
use crate::addr::Addr;
use crate::addrfile::{self, AddrName, AddrPkey};
use crate::options::text::MAX_FINDINGS;
use crate::options::{self, Finding, LogTarget, Options};
use crate::preload::{RouteParser, Routes, Wanted, parse_hosts, parse_routes};

/// The first byte says which kind of file the rest is.
pub fn files(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let bytes = input.all();
    match kind & 3 {
        0 => options_file(bytes),
        1 => address_file(bytes, kind & 4 != 0),
        2 => hosts_file(bytes),
        _ => routes_file(bytes, 1 + usize::from(kind >> 2)),
    }
}

/// Each finding is one line of the log.
fn findings(found: &[Finding]) {
    assert!(found.len() <= MAX_FINDINGS + 1);
    for f in found {
        let line = f.to_string();
        assert!(line.len() < 1024 && !line.contains('\n'), "{line:?}");
    }
}

/// Whether a text stands in a file of options as itself.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER) && !text.starts_with('#')
}

/// Whether the options can be said in lines: what is no text cannot.
fn can_be_said(o: &Options) -> bool {
    let log = match &o.log_file {
        LogTarget::File(path) => Some(path.as_path()),
        _ => None,
    };
    let files = [&o.lock_file, &o.provider_lib_path, &o.route_data_file, &o.addr_data_file];
    let mut paths = files.iter().map(|p| p.as_path()).chain(log);
    paths.all(|p: &Path| p.to_str().is_some_and(is_word)) && is_word(&o.default_provider)
}

fn options_file(bytes: &[u8]) {
    let (read, found) = options::parse(bytes, "f");
    findings(&found);
    assert!(read.providers.len() <= options::MAX_PROVIDERS);
    if !can_be_said(&read) {
        return;
    }
    // the options in force, said as lines, are the same options
    let lines = read.render().join("\n");
    let (again, found) = options::parse(lines.as_bytes(), "f");
    assert!(found.is_empty(), "{found:?} in {lines}");
    assert_eq!(again.render().join("\n"), lines);
}

fn address_file(bytes: &[u8], allow_ip: bool) {
    let (entries, found) = addrfile::parse(bytes, "f", allow_ip);
    findings(&found);
    assert!(entries.len() <= addrfile::MAX_ENTRIES);
    for e in &entries {
        if let AddrName::Name(name) = &e.name {
            assert!((1..=addrfile::MAX_NAME).contains(&name.len()) && !name.contains(&0));
        }
        assert!((1..=addrfile::MAX_DEVICE).contains(&e.device.len()) && (1..=254).contains(&e.port));
        assert!(allow_ip || matches!(e.name, AddrName::Name(_)));
        assert!(e.pkey != AddrPkey::Value(0) || e.line != 0);
    }
}

fn hosts_file(bytes: &[u8]) {
    let (hosts, found) = parse_hosts(bytes, "f");
    findings(&found);
    assert!(hosts.len() <= bytes.len() / 4);
    for host in 0..names::HOSTS {
        let (kind, bytes) = names::address(host, host);
        let addr = if kind == TYPE_NAME { Addr::name(&bytes) } else { Addr::ip(names::ip(host, host)) };
        let _ = hosts.find(&addr);
    }
}

/// Everything that is known, in an order.
fn all(routes: &Routes) -> Vec<String> {
    let from = (0..64).filter_map(|lid| Some((lid, routes.from(names::gid(0).interface_id(), lid)?)));
    from.map(|(lid, from)| {
        let known: Vec<_> = (0..64).filter_map(|to| from.to_lid(to)).collect();
        let guids: Vec<_> = (0..8).map(|h| from.to_guid(names::gid(h).interface_id())).collect();
        format!("{lid} {} {known:?} {guids:?}", from.len())
    })
    .collect()
}

fn routes_file(bytes: &[u8], piece: usize) {
    let guids = [names::gid(0).interface_id()];
    let (whole, found) = parse_routes(bytes, "f", Wanted::Ports(&guids));
    findings(&found);
    // a file is read in pieces
    let mut parser = RouteParser::new("f", Wanted::Ports(&guids));
    bytes.chunks(piece).for_each(|p| parser.feed(p));
    let (pieces, same) = parser.finish();
    assert_eq!(found, same, "findings depend on pieces");
    assert_eq!(all(&whole), all(&pieces), "paths depend on pieces");
    // whoever only checks finds no less
    let checked = parse_routes(bytes, "f", Wanted::Check).1;
    findings(&checked);
}
