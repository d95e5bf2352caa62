//! What is rendered is read by a strict reader.

use super::*;
use ibacm_wire::client::More;

#[path = "../tests/util/prometheus.rs"]
mod prometheus;
use prometheus::parse;

fn endpoint(device: &str, port: u8, pkey: u16) -> EndpointTally {
    let counters = std::array::from_fn(|i| 100 * u64::from(port) + i as u64);
    let more = std::array::from_fn(|i| 1000 * u64::from(port) + i as u64);
    EndpointTally { device: device.into(), port, pkey, counters, more, destinations: 42 }
}

fn snapshot(endpoints: Vec<EndpointTally>) -> Snapshot {
    let gauges = Gauges { up: true, clients: 3, requests: 4, groups: (6, 5), ..Gauges::default() };
    let counters = std::array::from_fn(|i| i as u64);
    Snapshot { counters, more: std::array::from_fn(|i| 50 + i as u64), gauges, endpoints }
}

fn rendered(s: &Snapshot) -> String {
    String::from_utf8(render(s)).expect("it is text")
}

fn series(name: &str, labels: &[(&str, &str)]) -> prometheus::Series {
    (name.to_owned(), labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
}

#[test]
fn every_number_is_there_once_and_what_it_was() {
    let text = rendered(&snapshot(vec![endpoint("mlx5_0", 1, 0xffff), endpoint("mlx5_0", 2, 0x8001)]));
    let numbers = parse(&text).unwrap();
    for (name, value) in [
        ("ibacm_up", 1),
        ("ibacm_clients", 3),
        ("ibacm_open_requests", 4),
        ("ibacm_groups", 6),
        ("ibacm_groups_joined", 5),
        ("ibacm_error_total", 0),
        ("ibacm_resolve_total", 1),
        ("ibacm_route_cache_total", 6),
        ("ibacm_notices_subscribed", 50 + More::NoticesSubscribed as u64),
        ("ibacm_clients_closed_slow_total", 50 + More::ClientsSlow as u64),
        ("ibacm_log_lost_total", 50 + More::LogLost as u64),
        ("ibacm_endpoints_left_out", 0),
    ] {
        assert_eq!(numbers.get(&series(name, &[])), Some(&value), "{name}");
    }
    let second = [("device", "mlx5_0"), ("port", "2"), ("pkey", "0x8001")];
    for (name, value) in [
        ("ibacm_endpoint_no_data_total", 202),
        ("ibacm_endpoint_claims_refused_total", 2000 + More::ClaimsRefused as u64),
        ("ibacm_endpoint_destinations", 42),
    ] {
        assert_eq!(numbers.get(&series(name, &second)), Some(&value), "{name}");
    }
    let of_endpoints = ROWS.iter().chain(&MORE_ROWS).filter(|row| row.kind != Kind::Service).count() + 1;
    let gauges = gauges(&Gauges::default()).len();
    assert_eq!(numbers.len(), 1 + gauges + COUNTERS + MORE + 1 + 2 * of_endpoints);
    // what is the service's is no endpoint's
    assert!(!text.contains("ibacm_endpoint_log_lost"), "{text}");
}

#[test]
fn labels_are_escaped() {
    let device = "a\\b\"c\nd,e=\"1\"} 5";
    let numbers = parse(&rendered(&snapshot(vec![endpoint(device, 1, 1)]))).unwrap();
    let labels = [("device", device), ("port", "1"), ("pkey", "0x0001")];
    assert_eq!(numbers.get(&series("ibacm_endpoint_destinations", &labels)), Some(&42));
}

#[test]
fn the_file_is_bounded_and_says_what_it_leaves_out() {
    for device in ["mlx5_0".to_owned(), "\"".repeat(63)] {
        let mut s = snapshot((0..5000).map(|i| endpoint(&device, 1, i)).collect());
        s.endpoints.iter_mut().for_each(|e| (e.counters, e.more) = ([u64::MAX; COUNTERS], [u64::MAX; MORE]));
        (s.counters, s.more) = ([u64::MAX; COUNTERS], [u64::MAX; MORE]);
        let text = rendered(&s);
        assert!(text.len() < 64 * 1024 && text.len() > 32 * 1024, "{}", text.len());
        let numbers = parse(&text).unwrap();
        let shown = numbers.keys().filter(|(name, _)| name == "ibacm_endpoint_destinations").count() as u64;
        assert_eq!(numbers.get(&series("ibacm_endpoints_left_out", &[])), Some(&(5000 - shown)));
        assert!(shown >= 8, "{shown}");
    }
}

#[test]
fn keys_and_titles_are_good_ones_and_nobody_has_two() {
    let rows: Vec<&Row> = ROWS.iter().chain(&MORE_ROWS).collect();
    for row in &rows {
        assert!(row.key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", row.key);
        assert!(!row.help.contains(['\\', '\n']) && !row.help.ends_with('.'), "{}", row.help);
        assert!(!row.title.contains([',', ':']), "{}", row.title);
        assert_eq!(rows.iter().filter(|r| r.key == row.key || r.title == row.title).count(), 1, "{}", row.key);
    }
}

#[test]
fn the_reader_is_strict() {
    for wrong in [
        "ibacm_a 1\n",
        "# HELP a b\na 1\n",
        "# HELP a b\n# TYPE a counter\na 1\n",
        "# HELP a_total b\n# TYPE a_total gauge\na_total 1\n",
        "# HELP a b\n# TYPE a gauge\na 1",
        "# HELP a b\n# TYPE a gauge\na  1\n",
        "# HELP a b\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a b\n# TYPE a gauge\na{b=\"\\d\"} 1\n",
        "# HELP a b\n# TYPE a gauge\na{b=\"c\" 1\n",
        "# HELP a b\n# TYPE a gauge\na 1\n# HELP a b\n",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    assert!(parse("# HELP a b\n# TYPE a gauge\na{b=\"\\\\\",c=\"\"} 1\n").is_ok());
}
