//! Tests of the options file.

use super::*;

fn parsed(text: &str) -> (Options, Vec<String>) {
    let (options, findings) = parse(text.as_bytes(), "o.cfg");
    (options, findings.iter().map(ToString::to_string).collect())
}

/// Parses a text that has nothing wrong in it.
fn good(text: &str) -> Options {
    let (options, findings) = parsed(text);
    assert!(findings.is_empty(), "{text}: {findings:?}");
    options
}

#[test]
fn defaults_are_those_of_the_deployed_service_but_for_depths() {
    let options = good("# nothing\n\n");
    assert_eq!(options, Options::default());
    let shown = options.render();
    for line in [
        "log_file /var/log/ibacm.log",
        "log_level 0",
        "lock_file /run/ibacm.pid",
        "server_port 6125",
        "server_mode unix",
        "acme_plus_kernel_only no",
        "builtin_provider yes",
        "provider_timeout 30000",
        "support_ips_in_addr_cfg no",
        "addr_prot acm",
        "addr_fallback neigh",
        "addr_timeout 1440",
        "route_prot sa",
        "route_timeout -1",
        "loopback_prot local",
        "timeout 2000",
        "retries 2",
        "resolve_depth 64",
        "sa_depth 32",
        "send_depth 32",
        "recv_depth 1024",
        "min_mtu 2048",
        "min_rate 10",
        "multicast_groups 2",
        "route_preload none",
        "route_data_file /etc/rdma/ibacm_route.data",
        "addr_preload none",
        "addr_data_file /etc/rdma/ibacm_hosts.data",
        "max_destinations 65536",
        "negative_cache 0",
        "busy_poll_us 0",
        "metrics_file none",
        "metrics_interval 15",
        "wait_for_device no",
        "provider ibacmp default",
    ] {
        assert!(shown.iter().any(|l| l == line), "{line} not in {shown:?}");
    }
}

#[test]
fn every_option_is_read_and_rendering_is_read_back() {
    let text = "log_file /tmp/a\nlog_level 2\numad_debug_level 1\nlock_file /tmp/l\nserver_port 65535\nserver_mode OPEN\n\
        acme_plus_kernel_only yes\nprovider_lib_path /p\nbuiltin_provider no\nprovider_timeout 3600000\nsupport_ips_in_addr_cfg 1\naddr_prot ACM\naddr_fallback NONE\naddr_timeout -1\n\
        route_prot Acm\nroute_timeout 5\nloopback_prot NONE\ntimeout 1\nretries 0\nresolve_depth 8\nsa_depth 9\n\
        send_depth 10\nrecv_depth 11\nmin_mtu 4096\nmin_rate 400\nmulticast_groups 16\nroute_preload full_opensm_v1\nroute_data_file /r\n\
        addr_preload acm_hosts\naddr_data_file /h\nmax_destinations 16\nnegative_cache 250\nbusy_poll_us 10000\nmetrics_file /m\nmetrics_interval 3600\nwait_for_device true\n\
        provider other default\nprovider ibacmp 0xFE80000000000000\nprovider x 12\n";
    let options = good(text);
    let expected = Options {
        log_file: LogTarget::File("/tmp/a".into()),
        log_level: 2,
        umad_debug_level: 1,
        lock_file: "/tmp/l".into(),
        server_port: 65535,
        server_mode: ServerMode::Open,
        acme_plus_kernel_only: true,
        provider_lib_path: "/p".into(),
        default_provider: "other".into(),
        default_line: LineNumber(None),
        providers: vec![
            ProviderLine { name: "ibacmp".into(), prefix: 0xfe80_0000_0000_0000, line: LineNumber(None) },
            ProviderLine { name: "x".into(), prefix: 12, line: LineNumber(None) },
        ],
        builtin_provider: false,
        provider_timeout: 3_600_000,
        support_ips_in_addr_cfg: true,
        addr_prot: AddrProt::Acm,
        addr_fallback: AddrFallback::None,
        addr_timeout: None,
        route_prot: RouteProt::Acm,
        route_timeout: Some(5),
        loopback_prot: LoopbackProt::None,
        timeout: 1,
        retries: 0,
        resolve_depth: 8,
        sa_depth: 9,
        send_depth: 10,
        recv_depth: 11,
        min_mtu: 5,
        min_rate: 21,
        multicast_groups: 16,
        route_preload: RoutePreload::OpensmFullV1,
        route_data_file: "/r".into(),
        addr_preload: AddrPreload::AcmHosts,
        addr_data_file: "/h".into(),
        max_destinations: 16,
        negative_cache: 250,
        busy_poll_us: 10_000,
        metrics_file: Some("/m".into()),
        metrics_interval: 3600,
        wait_for_device: true,
    };
    assert_eq!(options, expected);
    assert_eq!(good(&options.render().join("\n")), options);
    assert_eq!(text.lines().count(), options.render().len(), "an option is missing in this test");
}

#[test]
fn names_without_case_and_the_last_line_holds() {
    let options = good("RETRIES 3\n  Retries\t4 \r\nLog_File STDERR");
    assert_eq!(options.retries, 4);
    assert_eq!(options.log_file, LogTarget::Stderr);
    assert_eq!(good("log_file stdout").log_file, LogTarget::Stdout);
}

#[test]
fn a_file_of_numbers_can_be_taken_back() {
    for line in ["metrics_file None", "metrics_file no"] {
        assert_eq!(good(&format!("metrics_file /m\n{line}")).metrics_file, None);
    }
}

#[test]
#[cfg(feature = "syslog")]
fn the_system_log() {
    assert_eq!(good("log_file Syslog").log_file, LogTarget::Syslog);
    assert!(good("log_file syslog").render().contains(&String::from("log_file syslog")));
}

#[test]
#[cfg(not(feature = "syslog"))]
fn the_system_log_is_not_there() {
    let (options, findings) = parsed("log_file syslog\n");
    assert_eq!(options, Options::default());
    assert!(findings[0].contains("'syslog'") && findings[0].contains("built without syslog"), "{findings:?}");
}

#[test]
fn bad_values_leave_the_earlier_ones() {
    for bad in [
        "log_level -1",
        "log_level x",
        "umad_debug_level -1",
        "server_port 0",
        "server_port 65536",
        "server_port -1",
        "server_port 99999999999999999999",
        "server_mode tcp",
        "acme_plus_kernel_only maybe",
        "builtin_provider ibacmp",
        "provider_timeout 0",
        "provider_timeout 3600001",
        "addr_prot sa",
        "addr_fallback sa",
        "addr_timeout -2",
        "addr_timeout 99999999999",
        "route_prot ip",
        "route_timeout never",
        "loopback_prot remote",
        "timeout 0",
        "timeout -5",
        "timeout 3600001",
        "metrics_file ibacm.prom",
        "retries -1",
        "retries 101",
        "resolve_depth 0",
        "sa_depth 0",
        "send_depth 0",
        "recv_depth 0",
        "sa_depth 65537",
        "sa_depth 0x10",
        "min_mtu 1500",
        "min_mtu 0",
        "min_mtu 8192",
        "min_rate 3",
        "min_rate 0",
        "multicast_groups 0",
        "multicast_groups 17",
        "route_preload opensm",
        "addr_preload hosts",
        "max_destinations 15",
        "max_destinations 16777217",
        "negative_cache -1",
        "busy_poll_us -1",
        "busy_poll_us 10001",
        "metrics_interval 0",
        "metrics_interval 3601",
        "metrics_file",
        "wait_for_device 5 minutes",
        "retries",
        "log_file",
        "log_file # nothing",
    ] {
        let (options, findings) = parsed(&format!("\n{bad}\n"));
        assert_eq!(findings.len(), 1, "{bad}: {findings:?}");
        assert!(findings[0].starts_with("o.cfg:2: warning: "), "{findings:?}");
        if !bad.contains("minutes") {
            assert_eq!(options, Options::default(), "{bad}");
        }
    }
    let (options, findings) = parsed("sa_depth 7\nsa_depth 0\n");
    assert_eq!(options.sa_depth, 7);
    assert_eq!(findings, ["o.cfg:2: warning: sa_depth: bad value '0', expected 1 to 65536; 7 stays"]);
}

#[test]
fn what_a_number_starts_with_is_used() {
    let (options, findings) = parsed(
        "retries 3x\ntimeout 2500ms\nsa_depth 4.5\nmin_rate 2.6\naddr_timeout 5min\nsupport_ips_in_addr_cfg 1x\n\
         log_level 9\numad_debug_level 99999999999999999999\nmax_destinations +100k\n",
    );
    let expected = Options {
        retries: 3,
        timeout: 2500,
        sa_depth: 4,
        min_rate: rates::RATE_2_5,
        addr_timeout: Some(5),
        support_ips_in_addr_cfg: true,
        log_level: 2,
        umad_debug_level: 2,
        max_destinations: 100,
        ..Options::default()
    };
    assert_eq!((options, findings.len()), (expected, 9));
    assert_eq!(findings[0], "o.cfg:1: warning: retries: '3x', expected 0 to 100; '3' is used");
    assert_eq!(findings[6], "o.cfg:7: warning: log_level: '9', expected 0 to 2; '2' is used");
    for bad in
        ["retries x3", "retries -", "retries +", "log_level -9", "log_level 00x", "sa_depth 0x10", "timeout -5ms"]
    {
        let (options, findings) = parsed(bad);
        assert_eq!((options, findings.len()), (Options::default(), 1), "{bad}");
    }
}

#[test]
fn unknown_names_and_what_stands_behind_a_value() {
    let (options, findings) = parsed("retires 9\nretries 9 times\nretries 8 # times\n");
    assert_eq!(options.retries, 8);
    assert_eq!(
        findings,
        ["o.cfg:1: warning: unknown option 'retires'", "o.cfg:2: warning: 'times' after the value is ignored"]
    );
    let (options, _) = parsed("retries 9 times\n");
    assert_eq!(options.retries, 9, "what always worked goes on working");
}

#[test]
fn booleans() {
    for (word, value) in [
        ("yes", true),
        ("YES", true),
        ("true", true),
        ("1", true),
        ("2", true),
        ("-1", true),
        ("0x1", true),
        ("010", true),
        ("on", true),
        ("no", false),
        ("False", false),
        ("0", false),
        ("0x0", false),
    ] {
        assert_eq!(good(&format!("acme_plus_kernel_only {word}")).acme_plus_kernel_only, value, "{word}");
        assert_eq!(good(&format!("support_ips_in_addr_cfg {word}")).support_ips_in_addr_cfg, value, "{word}");
    }
}

#[test]
fn rates_in_gigabits() {
    for (text, code) in [("2", 2), ("2.5", 2), ("5", 5), ("100", 16), ("1200", 24)] {
        let options = good(&format!("min_rate {text}"));
        assert_eq!(options.min_rate, code);
        assert_eq!(good(&options.render().join("\n")), options);
    }
}

#[test]
fn providers() {
    let options =
        good("provider a 0xfe80000000000000\nPROVIDER b 010\nprovider c DEFAULT\nprovider d 18446744073709551615");
    let prefixes: Vec<u64> = options.providers.iter().map(|p| p.prefix).collect();
    assert_eq!(prefixes, [0xfe80_0000_0000_0000, 8, u64::MAX]);
    assert_eq!(options.default_provider, "c");
    let long = "n".repeat(64);
    for bad in [
        "provider",
        "provider a",
        "provider a 0x",
        "provider a xyz",
        "provider a -1",
        "provider a 0x+1",
        "provider a 09",
        "provider a 0x1fe80000000000000",
        &format!("provider {long} default"),
        &format!("provider {long} 1"),
    ] {
        let (options, findings) = parsed(bad);
        assert_eq!(findings.len(), 1, "{bad}");
        assert_eq!(options, Options::default(), "{bad}");
    }
    let (options, findings) = parsed(&"provider a 1\n".repeat(MAX_PROVIDERS + 1));
    assert_eq!((options.providers.len(), findings.len()), (MAX_PROVIDERS, 1));
    assert_eq!(parsed("provider a 1 2").1.len(), 1);
}

#[test]
fn nothing_makes_it_panic() {
    // A fixed generator, so that a failure can be had again.
    let mut state = 0x9e37_79b9_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let words = ["retries", "provider", "min_rate", "log_file", "#", "\0", "-1", "0x", "\n", " ", "\u{ff}", "default"];
    for _ in 0..2_000 {
        let mut text = Vec::new();
        for _ in 0..next() % 40 {
            text.extend(words[next() as usize % words.len()].bytes());
            text.push(next() as u8);
        }
        let (options, _) = parse(&text, "f");
        options.render();
    }
}

#[test]
fn long_tokens_are_whole_or_refused() {
    for length in [31, 32, 119, 120, 127, 128, 129, 255, 256, 257, 4_000] {
        let path = format!("/{}", "p".repeat(length - 1));
        assert_eq!(good(&format!("lock_file {path}\n")).lock_file, PathBuf::from(path));
    }
    let (options, findings) = parsed(&format!("lock_file /{}\nretries 7", "p".repeat(4_096)));
    assert_eq!(options, Options { retries: 7, ..Options::default() });
    assert!(findings[0].starts_with("o.cfg:1: error: line of "), "{findings:?}");
}

#[test]
fn of_two_defaults_the_last_holds_and_is_said() {
    let (options, findings) = parse(b"provider one default\nprovider ONE default\n\nprovider two default\n", "f");
    assert_eq!((options.default_provider.as_str(), options.default_line.0), ("two", Some(4)));
    let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["f:4: warning: provider: 'two' is the default, and no longer 'ONE' of line 2"]);
    let (options, _) = parse(b"#\nprovider one 1\n", "f");
    assert_eq!((options.default_line.0, options.providers[0].line.0), (None, Some(2)));
}

#[test]
fn a_prefix_that_looks_hexadecimal_gets_a_hint() {
    let hint = |prefix: &str| {
        let (options, findings) = parse(format!("provider x {prefix}\n").as_bytes(), "f");
        (options.providers.len(), findings.iter().any(|f| f.text.contains("0x in front")))
    };
    for (prefix, expected) in [
        ("fe80000000000000", (0, true)),
        ("1000000000000001", (1, true)),
        ("0100000000000001", (1, true)),
        ("0000000000000001", (1, false)),
        ("0xfe80000000000000", (1, false)),
        ("18338657682652659712", (1, false)),
        ("12", (1, false)),
    ] {
        assert_eq!(hint(prefix), expected, "{prefix}");
    }
}
