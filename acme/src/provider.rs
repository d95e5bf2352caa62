//! Which provider is behind an endpoint. What helps with the built-in one need not help with a vendor's plug-in.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use libibacm::{Client, Endpoint};

/// The provider that is part of the service, and of the package's.
const BUILTIN: &str = "ibacmp";
/// How long a question may take that only makes advice better, and all such of one advice.
pub const SOON: Duration = Duration::from_secs(1);

/// The endpoint's provider, if that is a plug-in.
pub fn plugin(endpoint: &Endpoint) -> Option<String> {
    let name = endpoint.provider.to_string();
    (!name.is_empty() && !name.eq_ignore_ascii_case(BUILTIN)).then_some(name)
}

/// Plug-ins that may have been asked for a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plugins {
    names: BTreeSet<String>,
    /// Nobody else serves anything.
    all: bool,
}

impl Plugins {
    /// Those of these endpoints; where one of them has the source, of that one.
    pub fn of(endpoints: &[Endpoint], source: Option<&str>) -> Plugins {
        let plain = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
        let has = |e: &Endpoint, source: &str| {
            e.addresses.iter().any(|a| plain(&a.to_string()).eq_ignore_ascii_case(&plain(source)))
        };
        let mine = source.and_then(|source| endpoints.iter().find(|e| has(e, source)));
        let asked: Vec<&Endpoint> = mine.map_or_else(|| endpoints.iter().collect(), |e| vec![e]);
        let names: Vec<String> = asked.iter().filter_map(|e| plugin(e)).collect();
        Plugins { all: names.len() == asked.len(), names: names.into_iter().collect() }
    }

    /// Those of a service that tells soon.
    pub fn ask(client: &Client, source: Option<&str>) -> Plugins {
        let quick = Client::new(client.target().clone()).with_limit(client.limit().min(SOON));
        let end = Instant::now() + SOON;
        let mut endpoints = Vec::new();
        for number in 1..=u8::MAX {
            match quick.endpoint(number) {
                Ok(endpoint) if Instant::now() < end => endpoints.push(endpoint),
                _ => break,
            }
        }
        Plugins::of(&endpoints, source)
    }

    /// Advice for what may have failed for a plug-in's sake: `usual` is that for the built-in provider.
    pub fn advise(&self, usual: String) -> String {
        let names = self.names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let look = "look into the service's log and at the plug-in's own configuration";
        match (self.names.len(), self.all) {
            (0, _) => usual,
            (1, true) => format!("paths are found by the provider {names}, a plug-in: {look}"),
            (_, true) => format!("paths are found by providers that are plug-ins ({names}): {look}"),
            (_, false) => format!("{usual}. Where the provider is a plug-in ({names}; ib_acme -e shows it), {look}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(provider: &str, address: &str) -> Endpoint {
        let addresses = vec![address.into()];
        Endpoint { device_guid: 1, port: 1, ports: 1, pkey: 0xffff, provider: provider.into(), addresses }
    }

    #[test]
    fn plug_ins_are_named_where_they_may_have_been_asked() {
        let usual = || "usual".to_owned();
        let [own, other, third] =
            [endpoint("ibacmp", "10.0.0.1/16"), endpoint("mine", "10.1.0.1/16"), endpoint("third", "h1")];
        let advise = |endpoints: &[&Endpoint], source| {
            let endpoints: Vec<Endpoint> = endpoints.iter().map(|e| (*e).clone()).collect();
            Plugins::of(&endpoints, source).advise(usual())
        };
        assert_eq!(advise(&[], None), "usual");
        assert_eq!(advise(&[&own], None), "usual");
        assert_eq!(advise(&[&own, &other], Some("10.0.0.1")), "usual");
        assert!(advise(&[&other], None).starts_with("paths are found by the provider mine, a plug-in: look into"));
        assert!(advise(&[&own, &other], Some("10.1.0.1")).starts_with("paths are found by the provider mine,"));
        assert!(advise(&[&other, &third], None).contains("(mine, third)"));
        assert!(advise(&[&own, &third], Some("H1")).starts_with("paths are found by the provider third,"));
        let mixed = advise(&[&own, &other], None);
        assert!(mixed.starts_with("usual. Where the provider is a plug-in (mine; "), "{mixed}");
    }
}
