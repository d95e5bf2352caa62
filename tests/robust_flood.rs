//! What strangers send: whatever of it is dropped is counted, one by one, and floods of it use bounded memory and push
//! nothing out that is in use.

#[path = "util/beside.rs"]
mod beside;
#[path = "util/rob.rs"]
mod rob;
#[path = "util/acme_run.rs"]
mod run;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use beside::Beside;
use fabric::PortLine;
use ibacm_wire::client::EP_FLAG_SOURCE;
use ibacm_wire::datagram::PEER_MAX_GIDS;
use rob::{dest, enter, forge, memory, request, response, settles, source, steady_descriptors};
use run::Tool;
use util::client::{between, name};
use util::{Client, Lab, PATIENCE, Shared, wait_for};

static LAB: Shared = Shared::new(|o| o.hosts = 3);

/// A counter of H1, as `ib_acme -P --json` has it.
fn counter(lab: &Lab<'_>, key: &str) -> u64 {
    let json = Tool::Ours.words(lab, "H1", "-P --json").stdout;
    let value = json.split_once(&format!("\"{key}\": ")).unwrap_or_else(|| panic!("no {key} in {json}")).1;
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|e| panic!("{key}: {e} in {json}"))
}

/// All of `what` is dropped and counted under this key, and nothing of it elsewhere.
#[track_caller]
fn all_counted(lab: &Lab<'_>, key: &str, what: impl FnOnce() -> u64) {
    const KEYS: [&str; 5] =
        ["datagrams_malformed", "datagrams_foreign", "datagrams_unasked", "claims_refused", "peers_refused"];
    let before = KEYS.map(|key| counter(lab, key));
    let sent = what();
    let wanted: Vec<u64> = KEYS.iter().zip(before).map(|(k, n)| if *k == key { n + sent } else { n }).collect();
    let counted = || KEYS.map(|key| counter(lab, key));
    let all = wait_for(PATIENCE, || (counted().as_slice() == wanted).then_some(()));
    assert!(all.is_some(), "{sent} for {key}: {:?} instead of {wanted:?} of {KEYS:?}", counted());
}

#[test]
fn whatever_is_dropped_is_counted() {
    let lab = enter(&LAB);
    let mut daemon = lab.ours("H1", "timeout 300\nretries 0\n");
    let _peer = lab.ours("H2", "");
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let group = one.joined[0].0;
    let mut client = Client::connect(&lab, "H1");
    let since = lab.sniff_next().unwrap();
    let question = between("10.77.0.1", "10.77.0.2");
    let path = client.resolve(&question).path();
    // What the two have said to each other, for later.
    let sniffed = |host| lab.sniffed(Some(host), since).unwrap().into_iter().map(|d| d.data);
    let asked = sniffed("H1").next().expect("a request");
    let answered = sniffed("H2").find(|data| data[3] == 0x81).expect("a response");

    let good = request(1, &source("10.77.9.1"), &dest("10.77.0.1"), &[group]);
    all_counted(&lab, "datagrams_malformed", || {
        let mut wrong: Vec<Vec<u8>> = (0..good.len()).map(|n| good[..n].to_vec()).collect();
        let mut with = |at: usize, value: u8| {
            let mut data = good.clone();
            data[at] = value;
            wrong.push(data);
        };
        // More groups than there is room for, up to 255 of them; types of addresses; the class's header.
        ((PEER_MAX_GIDS + 1) as u8..=u8::MAX).for_each(|count| with(20, count));
        (0..=u8::MAX).filter(|kind| !(1..=5).contains(kind)).for_each(|kind| with(16, kind));
        (0..=u8::MAX).filter(|kind| !(1..=5).contains(kind)).for_each(|kind| with(18, kind));
        for at in [0, 1, 2, 6, 7] {
            (0..=u8::MAX).filter(|value| *value != good[at]).for_each(|value| with(at, value));
        }
        (0..=u8::MAX).filter(|method| ![1, 0x81].contains(method)).for_each(|method| with(3, method));
        wrong.iter().for_each(|data| forge(&lab, &one, false, &three, data, ""));
        // Nobody can have sent these.
        let impossible = ["slid=0", "slid=0xc005", "sgid=ff02::1", "sgid=::", "grh=no"];
        impossible.iter().for_each(|from| forge(&lab, &one, false, &three, &good, from));
        (wrong.len() + impossible.len()) as u64
    });
    all_counted(&lab, "datagrams_foreign", || {
        let mut other = group;
        other[15] ^= 1;
        for groups in [&[][..], &[other], &[other; PEER_MAX_GIDS]] {
            forge(&lab, &one, true, &three, &request(1, &source("10.77.9.1"), &dest("10.77.0.1"), groups), "count=20");
        }
        60
    });
    all_counted(&lab, "claims_refused", || {
        for own in [source("10.77.0.1"), source("fd77::1"), name(EP_FLAG_SOURCE, "h1"), name(EP_FLAG_SOURCE, "H1")] {
            forge(&lab, &one, true, &three, &request(5, &own, &dest("10.77.0.1"), &[group]), "count=20");
        }
        // What it has sent itself, once more, by somebody else; to this host alone, as others would answer it.
        forge(&lab, &one, false, &three, &asked, "count=20");
        100
    });
    all_counted(&lab, "datagrams_unasked", || {
        for tid in 0..500 {
            forge(&lab, &one, false, &three, &response(tid, group), "");
        }
        // The answer to what was asked, when that is over: by the peer, by another one, and to all.
        forge(&lab, &one, false, &two, &answered, "count=100");
        forge(&lab, &one, false, &three, &answered, "count=100");
        forge(&lab, &one, true, &three, &answered, "count=100");
        800
    });
    // Nothing has come of any of it.
    let queries = lab.path_queries("H1");
    assert_eq!(client.resolve(&question).path(), path);
    assert_eq!(lab.path_queries("H1"), queries);
    for own in ["10.77.0.1", "fd77::1"] {
        assert_eq!(client.resolve(&between("10.77.0.1", own)).path().dlid(), one.lid, "{own}");
    }
    assert!(daemon.is_alive());
    assert!(daemon.said().lines().count() < 50, "nor do they fill the log: {}", daemon.said());
}

#[test]
fn ten_thousand_made_up_peers() {
    const PEERS: u32 = 10_000;
    let lab = enter(&LAB);
    let mut daemon = lab.ours("H1", "max_destinations 2048\n");
    let _peers = (lab.ours("H2", ""), lab.ours("H3", ""));
    let [one, two, three] = lab.hosts(["H1", "H2", "H3"]);
    let group = one.joined[0].0;
    let known = between("10.77.0.1", "10.77.0.2");
    let good = Beside::start(&lab, "H1", vec![known, between("10.77.0.1", "fd77::1")]);
    let before = steady_descriptors(daemon.pid());
    let mut used = vec![memory(daemon.pid())];
    let keys = ["peers_limited", "cache_evicted", "datagrams_unasked", "datagrams_malformed"];
    let counts = keys.map(|key| counter(&lab, key));
    let sent = lab.stat("ucast.H1.sent").unwrap_or(0);
    for n in 0..PEERS {
        let mut gid = two.gid;
        gid[8..12].copy_from_slice(&n.to_be_bytes());
        let liar = PortLine { lid: 1000 + n as u16, gid, qpns: vec![n + 1], ..two.clone() };
        let from = source(&format!("10.77.{}.{}", 100 + n / 250, 1 + n % 250));
        forge(&lab, &one, true, &liar, &request(u64::from(n) + 1, &from, &dest("10.77.0.1"), &[group]), "");
        match n % 4 {
            // Some of them answer what nobody has asked, and some know no better.
            0 => forge(&lab, &one, false, &liar, &response(u64::from(n), group), ""),
            1 => forge(&lab, &one, false, &liar, &[n as u8; 256], ""),
            _ => {}
        }
        if n % 2500 == 2499 {
            used.push(memory(daemon.pid()));
        }
    }
    let grown = || keys.iter().zip(counts).map(|(key, n)| counter(&lab, key) - n).collect::<Vec<_>>();
    let quarter = u64::from(PEERS) / 4;
    let all = wait_for(PATIENCE, || (grown()[2..] == [quarter, quarter]).then_some(()));
    assert!(all.is_some(), "{:?} more of {keys:?}", grown());
    println!("{used:?} KiB, {:?} more of {keys:?}", grown());
    assert!(grown()[0] > 0, "the administrator is not asked about all of them: {:?} more of {keys:?}", grown());
    assert!(grown()[1] > u64::from(PEERS) / 2, "those that were longest unheard go: {:?} of {keys:?}", grown());
    let answered = lab.stat("ucast.H1.sent").unwrap_or(0) - sent;
    assert!(answered > u64::from(PEERS) / 2, "{answered} of {PEERS} have a response");
    assert!(used[4] < used[0] + 8 * 1024, "{used:?} KiB");
    assert!(used[4] < used[2] + 512, "memory grows: {used:?} KiB");
    // What is in use is still known, and others are found both ways.
    good.was_served();
    let mut client = Client::connect(&lab, "H1");
    let asked = lab.count("mcast.H1.", "sent");
    assert_eq!(client.resolve(&known).path().dlid(), two.lid);
    assert_eq!(lab.count("mcast.H1.", "sent"), asked, "it was known");
    assert_eq!(client.resolve(&between("10.77.0.1", "10.77.0.3")).path().dlid(), three.lid);
    let mut other = Client::connect(&lab, "H3");
    assert_eq!(other.resolve(&between("10.77.0.3", "10.77.0.1")).path().dlid(), one.lid);
    drop(client);
    settles(daemon.pid(), before);
    assert!(daemon.is_alive());
    assert!(daemon.said().lines().count() < 50, "nor do they fill the log: {}", daemon.said());
}
