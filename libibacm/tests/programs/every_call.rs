//! Makes every call of a client: every_call SOCKET IPV4 IPV6 SOURCE_NAME NAME
//! Prints a line for each.

use std::time::{Duration, Instant};

use libibacm::{Address, Client, Error, Path, PathRecord, Request, Scope, Session, Target};

fn path(what: &str, result: Result<Path, Error>) {
    match result {
        Ok(path) => {
            let hex: String = path.record.0.iter().map(|b| format!("{b:02x}")).collect();
            println!("{what} {hex}");
        }
        Err(e) => println!("{what} {e}"),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, v4, v6, from, to] = &arguments[..] else { return };
    let target = Target::parse(socket).unwrap_or_default();
    let limit = Duration::from_secs(15);
    let client = Client::new(target.clone()).with_limit(limit);
    println!("connect {:?}", client.connect().is_ok());
    let ip = |text: &str| text.parse().ok().map(|ip| client.resolve_ip(None, ip));
    let found = ip(v4).and_then(Result::ok).map(|p| p.record).unwrap_or_default();
    ip(v4).into_iter().for_each(|found| path("ip", found));
    ip(v6).into_iter().for_each(|found| path("ip6", found));
    path("name", client.resolve_name(Some(from), to));
    path("resolve", client.resolve(Some(Address::parse(from)), Address::parse(to)));
    path("cached", client.resolve_cached(None, Address::parse(v4)));
    let mut part = PathRecord::default();
    part.set_dlid(found.dlid());
    part.set_slid(found.slid());
    path("path", client.resolve_path(&part));
    path("query", client.query_path(&part));
    println!("counters {}", client.counters(Scope::Totals).is_ok_and(|c| c.resolve >= 6));
    println!("of-endpoint {}", client.counters(Scope::Endpoint(1)).is_ok());
    println!("endpoint {}", client.endpoint(1).is_ok_and(|e| e.addresses.iter().any(|a| a == from)));
    println!("of-port {}", client.endpoint_of_port(1, 1).is_ok());
    println!("endpoints {}", client.endpoints().map_or(0, |all| all.len()));
    let destinations = vec![Address::parse(v4); 100];
    let mut right = 0;
    client.resolve_many(None, &destinations, |_, p| right += usize::from(p.is_ok_and(|p| p.record == found)));
    println!("many {right}");

    let mut session = Session::new(target);
    for _ in 0..100 {
        let request = Request::Resolve { source: None, destination: Address::parse(v4), cached_only: false };
        if session.submit(request, Instant::now() + limit).is_err() {
            println!("not submitted");
        }
    }
    let mut right = 0;
    while session.pending() > 0 {
        session.on_ready();
        while let Some((_, result)) = session.next_result() {
            right += usize::from(result.is_ok());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("session {right}");
}
