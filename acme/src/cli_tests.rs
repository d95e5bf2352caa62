use super::*;

fn parsed(line: &str) -> Command {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse("ib_acme", &words)
}

fn run(line: &str) -> Options {
    match parsed(line) {
        Command::Run(options) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn usage(line: &str) -> String {
    match parsed(line) {
        Command::Usage(why) => why,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn values_stand_glued_or_apart() {
    for line in ["-e2", "-e 2", "-ve2", "-v -e 2 word"] {
        let options = run(line);
        assert!(options.endpoints && options.endpoint == 2, "{line}");
    }
    for (line, perf, endpoint) in [
        ("-P", Perf::Row, 0),
        ("-P col", Perf::Column, 0),
        ("-PCOLUMN", Perf::Column, 0),
        ("-P all", Perf::All, 0),
        ("-P 3", Perf::Endpoint, 3),
        ("-P 0", Perf::Row, 0),
        ("-P co", Perf::Row, 0),
        ("-P -v", Perf::Row, 0),
        ("-P s -s x", Perf::Address, 0),
        ("-e 2 -P 3", Perf::Endpoint, 3),
        ("-P 3 -e 2", Perf::Endpoint, 2),
        ("-e 2 -P col", Perf::Column, 2),
        ("-P 2 -P", Perf::Row, 2),
    ] {
        let options = run(line);
        assert_eq!((options.perf, options.endpoint), (Some(perf), endpoint), "{line}");
    }
    let options = run("-vcd 10.0.0.1 -s a -s b -C 0");
    assert!(options.verify && options.cached_only && options.repetitions == 1);
    assert_eq!(options.destination.as_deref(), Some("10.0.0.1"));
    assert_eq!(options.source.as_deref(), Some("b"), "the last one holds");
    assert_eq!(run("-d x -C -5").repetitions, -5);
    // A dash alone is no value unless it is glued.
    for (line, perf, endpoint) in [
        ("-P 2 -e -", Some(Perf::Endpoint), 2),
        ("-e 2 -P -", Some(Perf::Row), 2),
        ("-e - 2", None, 0),
        ("-e 2 -ve - 3", None, 2),
        ("-e 2 -e-", None, 0),
        ("-e -- -", None, 0),
    ] {
        let options = run(line);
        assert_eq!((options.perf, options.endpoint), (perf, endpoint), "{line}");
    }
    assert_eq!(run("-O - -D x").opts_file.as_deref(), Some("ibacm_opts.cfg".as_ref()));
    assert_eq!(run("-O- -D x").opts_file.as_deref(), Some("-".as_ref()));
    assert_eq!(run("-d -").destination.as_deref(), Some("-"));
    assert_eq!(run("-A").addr_file.as_deref(), Some("ibacm_addr.cfg".as_ref()));
    assert_eq!(run("-A a -Ob").addr_file.as_deref(), Some("a".as_ref()));
    assert_eq!(run("-A a -Ob").opts_file.as_deref(), Some("b".as_ref()));
}

#[test]
fn what_is_missing_or_useless_is_said() {
    for (line, why) in [
        ("", "the options do not say what to do"),
        ("-v", "the options do not say what to do"),
        ("-s x", "-s needs -d, or -P s"),
        ("-s x -A", "-s needs -d, or -P s"),
        ("-s x -P", "-s needs -d, or -P s"),
        ("-P s", "-P s needs -s, which has the address of the endpoint"),
        ("-P s -d x", "-P s needs -s, which has the address of the endpoint"),
        ("foo", "'foo' is no command (there are: check, completions)"),
        ("-v check", "'check' has to be the first word"),
        ("-P --stats", "--stats, --parallel and --warmup need -d, which has what to resolve"),
        ("-e --parallel 4", "--stats, --parallel and --warmup need -d, which has what to resolve"),
        ("-A --warmup 0", "--stats, --parallel and --warmup need -d, which has what to resolve"),
    ] {
        assert_eq!(usage(line), format!("ib_acme: {why}"), "{line}");
    }
    assert_eq!(usage("-x"), "ib_acme: invalid option -- 'x'");
    assert_eq!(usage("-d"), "ib_acme: option requires an argument -- 'd'");
    assert_eq!(usage("--nothing"), "ib_acme: unrecognized option '--nothing'");
    assert!(usage("-f x -d y").contains("-f is one of"));
    assert!(usage("-d x --timeout 0").contains("--timeout is"));
    assert!(usage("-d x --timeout nan").contains("--timeout is"));
    assert_eq!(usage("-d x --parallel 5000"), "ib_acme: --parallel is a number from 1 to 4096, not '5000'");
    assert!(usage("-d x --parallel 0").contains("--parallel is") && usage("-d x --warmup -1").contains("--warmup is"));
}

#[test]
fn measuring_is_asked_for_by_what_belongs_to_it() {
    assert!(!run("-d x -C 5").stats);
    for line in ["-d x --stats", "-d x --parallel 2", "-d x --warmup 2"] {
        assert!(run(line).stats, "{line}");
    }
    assert_eq!(run("-d x --timeout 0.5").limit, Duration::from_millis(500));
}
