//! What the distribution's tools show of our service, beside what they show of the distribution's own.

mod util;

use ibacm_wire::client::{Counter, EP_FLAG_DEST, EP_FLAG_SOURCE, Status};
use util::client::{between, ip, name};
use util::{Client, Lab, PATIENCE, Program, Shared, partitions, succeed, wait_for};

static SIMPLE: Shared = Shared::new(|_| {});

/// One host with two adapters of two ports, all of them in three partitions.
static LARGE: Shared = Shared::new(|o| {
    (o.hosts, o.hcas, o.hca_ports) = (1, 2, 2);
    o.partitions =
        Some(partitions("large", "Default=0x7fff,ipoib:ALL=full;\nRed=0x0123:ALL=full;\nBlue=0x0456:ALL=full;\n"));
});

/// Lines of counters with figures and separators left as they are but every number replaced.
fn without_figures(said: &str) -> String {
    let line = |line: &str| {
        if line.starts_with("svc,") || !line.contains([',', ':']) {
            return line.to_owned();
        }
        let figure = |word: &str| if word.trim().parse::<u64>().is_ok() { "N".to_owned() } else { word.to_owned() };
        line.split([',', ':']).map(figure).collect::<Vec<_>>().join(",")
    };
    said.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn show(lab: &Lab<'_>, program: Program, names: &str, questions: &[&[&str]]) -> Vec<String> {
    let _daemon = lab.start_named(program, "H1", "", names);
    lab.acme("H1", &["-f", "i", "-d", "10.77.0.1"]);
    questions.iter().map(|q| lab.acme("H1", q)).collect()
}

#[test]
fn queries_print_the_same() {
    let lab = SIMPLE.enter();
    let questions: &[&[&str]] = &[
        &["-e"],
        &["-e", "1"],
        &["-e", "2"],
        &["-P"],
        &["-P", "1"],
        &["-P", "all"],
        &["-P", "col"],
        &["-P", "s", "-s", "10.77.0.1"],
        &["-P", "s", "-s", "fd77::1"],
        &["-P", "s", "-s", "10.77.0.2"],
        &["-P", "s", "-f", "n", "-s", "h1"],
        &["-P", "s", "-f", "n", "-s", "nobody"],
        &["-e", "-P"],
    ];
    let names = "h1 mlx5_0 1 default\nother mlx5_0 1 default\n";
    let ours = show(&lab, Program::Ours, names, questions);
    let stock = show(&lab, Program::Stock, names, questions);
    for (question, (ours, stock)) in questions.iter().zip(ours.iter().zip(&stock)) {
        assert_eq!(without_figures(ours), without_figures(stock), "{question:?}");
    }
    assert!(ours[0].contains("ibacmp,10.77.0.1/16,fd77::1/64,h1,other\n"), "{}", ours[0]);
    assert!(ours[3].contains(",0,1,0,0,0,0,1\n"), "one request, answered from the cache: {}", ours[3]);
}

/// Names on every port of the large host, and children of some of its interfaces.
fn furnish(lab: &Lab<'_>) -> &'static str {
    lab.add_interface("H1", "ib0.8123", "0x8123 10.90.0.1/24 fd90::1/64").unwrap();
    lab.add_interface("H1", "ib1.8456", "0x8456 dev=mlx5_0:2 10.91.0.1/24").unwrap();
    lab.add_interface("H1", "ib3.8123", "0x8123 dev=mlx5_1:2 10.92.0.1/24").unwrap();
    "one mlx5_0 1 default\none-red mlx5_0 1 0x8123\none-blue mlx5_0 1 0x0456\ntwo mlx5_0 2 default\n\
     three mlx5_1 1 0x8123\nfour mlx5_1 2 default\nfour-blue mlx5_1 2 0x8456\n"
}

fn strip(lab: &Lab<'_>) {
    for name in ["ib0.8123", "ib1.8456", "ib3.8123"] {
        lab.remove_interface("H1", name).unwrap();
    }
}

#[test]
fn endpoints_of_many_ports_are_listed_in_the_same_order() {
    let lab = LARGE.enter();
    let names = furnish(&lab);
    let questions: Vec<Vec<String>> =
        (0..10).map(|n| if n == 0 { vec!["-e".into()] } else { vec!["-e".into(), n.to_string()] }).collect();
    let questions: Vec<Vec<&str>> = questions.iter().map(|q| q.iter().map(String::as_str).collect()).collect();
    let questions: Vec<&[&str]> = questions.iter().map(Vec::as_slice).collect();
    let ours = show(&lab, Program::Ours, names, &questions);
    let stock = show(&lab, Program::Stock, names, &questions);
    strip(&lab);
    assert_eq!(ours[0].matches(",ibacmp,").count(), 10, "{}", ours[0]);
    for (question, (ours, stock)) in questions.iter().zip(ours.iter().zip(&stock)) {
        assert_eq!(ours, stock, "{question:?}");
    }
}

/// The lines that `ib_acme -e` prints for endpoints.
fn endpoints(lab: &Lab<'_>) -> Vec<String> {
    lab.acme("H1", &["-e"]).lines().filter(|l| l.contains(",ibacmp,")).map(str::to_owned).collect()
}

#[test]
fn counters_of_an_endpoint_are_found_by_its_number_and_its_address() {
    let lab = LARGE.enter();
    let names = furnish(&lab);
    let _daemon = lab.start_named(Program::Ours, "H1", "", names);
    let mut client = Client::connect(&lab, "H1");
    // As many questions to an endpoint as its number, answered by itself.
    let addresses =
        ["three", "10.79.0.1", "four-blue", "10.92.0.1", "four", "one-blue", "10.90.0.1", "one", "10.91.0.1"];
    let entry = |flags, text: &str| if text.contains('.') { ip(flags, text) } else { name(flags, text) };
    for (number, address) in addresses.iter().enumerate() {
        for _ in 0..=number {
            client.resolve(&[entry(EP_FLAG_SOURCE, address), entry(EP_FLAG_DEST, address)]).path();
        }
    }
    for (number, address) in addresses.iter().enumerate() {
        let wanted = number as u64 + 1;
        let by_address = client.performance(0, &[entry(EP_FLAG_SOURCE, address)]).counters();
        assert_eq!(by_address[Counter::Resolve as usize], wanted, "{address}");
        assert_eq!(by_address[Counter::RouteCache as usize], wanted, "{address}");
        let by_number = client.performance(number as u8 + 1, &[]).counters();
        assert_eq!(by_number, by_address, "endpoint {} has {address}", number + 1);
    }
    assert_eq!(client.counters()[Counter::Resolve as usize], 45);
    assert_eq!(client.performance(10, &[]).counters(), [0; 7], "nobody has asked the last endpoint");
    assert_eq!(client.performance(11, &[]).header.status, Status::Esrcaddr as u8);
    assert_eq!(client.performance(0, &[ip(EP_FLAG_SOURCE, "10.1.2.3")]).header.status, Status::Esrcaddr as u8);
    assert_eq!(client.endpoint(0, 0).header.status, Status::Einval as u8);
    assert_eq!(client.endpoint(11, 0).header.status, Status::Einval as u8);
    assert_eq!(client.endpoint(6, 1).header.status, Status::Einval as u8, "port 1 of both devices has five");
    // The tool numbers them the same way.
    let said = lab.acme("H1", &["-P", "3"]);
    assert!(said.contains(",0,3,0,0,0,0,3\n"), "{said}");
    assert_eq!(lab.acme("H1", &["-P", "all"]).lines().filter(|l| l.starts_with('/')).count(), 10);
    drop(client);
    strip(&lab);
}

#[test]
fn every_address_of_an_endpoint_is_shown() {
    let lab = SIMPLE.enter();
    let long = "a-name-of-sixty-three-bytes-which-is-as-long-as-names-can-be-xyz";
    let long = &long[..63];
    let names: String = (0..20).map(|n| format!("name-{n} mlx5_0 1 default\n")).collect();
    let _daemon = lab.start_named(Program::Ours, "H1", "", &format!("{names}{long} mlx5_0 1 default\n"));
    let added: Vec<String> = (2..52).map(|n| format!("10.77.7.{n}")).collect();
    for address in &added {
        succeed(lab.exec("H1", "ip").args(["addr", "add", &format!("{address}/16"), "dev", "ib0"]));
    }
    let shown = wait_for(PATIENCE, || {
        let shown = endpoints(&lab);
        shown[0].contains("10.77.7.51/16").then_some(shown)
    });
    for address in &added {
        succeed(lab.exec("H1", "ip").args(["addr", "del", &format!("{address}/16"), "dev", "ib0"]));
    }
    let shown = shown.expect("the addresses are noticed");
    assert_eq!(shown.len(), 1, "{shown:?}");
    let fields: Vec<&str> = shown[0].split(',').collect();
    let own = ["10.77.0.1/16", "fd77::1/64", long, "name-0", "name-19"].map(str::to_owned);
    for address in own.into_iter().chain(added.iter().map(|a| format!("{a}/16"))) {
        assert!(fields.contains(&address.as_str()), "{address} is not in {}", shown[0]);
    }
    let gone = wait_for(PATIENCE, || (!endpoints(&lab)[0].contains("10.77.7.")).then_some(()));
    assert!(gone.is_some(), "removed addresses stay");
    let mut client = Client::connect(&lab, "H1");
    let reply = client.resolve(&between("10.77.7.2", "10.77.0.1"));
    assert_eq!(reply.header.status, Status::Esrcaddr as u8);
}
