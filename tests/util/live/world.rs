//! What is right at a moment: the fabric's ports, who has which address, and the answers that follow from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use fabric::PortLine;
use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_QUERY_SA};
use ibacm_wire::{Gid, PathRecord};

use super::super::util::Lab;
use super::super::util::client;
use super::hosts::{BLUE, COMMON, RED};

/// A port of a host: its name and the number of its device.
pub type Place = (&'static str, usize);

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub place: Place,
    /// Without the bit of membership.
    pub partition: u16,
}

/// The fabric and the hosts' addresses.
#[derive(Clone, Debug, Default)]
pub struct World {
    ports: Vec<PortLine>,
    owners: BTreeMap<&'static str, Owner>,
    /// Nobody answers there: no service, or no device.
    pub silent: Vec<Place>,
    /// Addresses that their owner has given up. Nobody says so: the old answer is as good as a failure.
    pub left: Vec<&'static str>,
    /// Own ports to whose interface no route leads.
    pub unrouted: Vec<Place>,
    /// There is no SA.
    pub no_sa: bool,
}

/// What a client wants to know, before it is known which LIDs and GIDs that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// From an own address, or whatever the service chooses, to an address.
    Address(Option<&'static str>, &'static str),
    /// The path to a port by its LID.
    Lid(Place),
    /// The path to a port by its GID, from this own port or whatever the service chooses.
    Gid(Option<usize>, Place),
    /// From the first own port, with something in the question that was not asked before, so that the SA is asked.
    Fresh(Place),
    /// The SA's own word, likewise.
    Sa(Place),
}

/// A question as it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Address(Option<&'static str>, &'static str),
    Path { sgid: Option<[u8; 16]>, dgid: Option<[u8; 16]>, dlid: u16, how: How },
}

/// How a path is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Plain,
    Fresh,
    Sa,
}

/// The parts of a path record that the fabric decides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub sgid: [u8; 16],
    pub dgid: [u8; 16],
    pub slid: u16,
    pub dlid: u16,
    pub partition: u16,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} LID {} -> {} LID {}", Gid(self.sgid), self.slid, Gid(self.dgid), self.dlid)?;
        write!(f, " in {:#06x}", self.partition)
    }
}

impl From<PathRecord> for Ends {
    fn from(path: PathRecord) -> Ends {
        Ends {
            sgid: path.sgid().0,
            dgid: path.dgid().0,
            slid: path.slid(),
            dlid: path.dlid(),
            partition: path.pkey() & 0x7fff,
        }
    }
}

/// What may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// These paths and no other.
    pub paths: Vec<Ends>,
    /// A failure is wrong.
    pub must: bool,
}

impl Right {
    /// Whether a client that may be told either sees no difference.
    pub fn is_like(&self, other: &Right) -> bool {
        let ends = |r: &Right| -> BTreeSet<_> { r.paths.iter().map(|e| (e.sgid, e.dgid, e.slid, e.dlid)).collect() };
        self.must == other.must && ends(self) == ends(other)
    }
}

impl World {
    /// The fabric as it is, with the addresses that were known before.
    pub fn look(&mut self, lab: &Lab<'_>) {
        self.ports = lab.ports().expect("the subnet answers");
    }

    /// An address has this owner from now on.
    pub fn own(&mut self, address: &'static str, place: Place, partition: u16) {
        self.owners.insert(address, Owner { place, partition });
        self.left.retain(|a| *a != address);
    }

    /// Nobody has it any more.
    pub fn disown(&mut self, address: &'static str) {
        self.owners.remove(address);
    }

    /// Nobody has it any more, but its peers cannot know.
    pub fn leave(&mut self, address: &'static str) {
        self.left.push(address);
    }

    pub fn port(&self, (host, device): Place) -> Option<&PortLine> {
        let name = format!("mlx5_{device}");
        self.ports.iter().find(|p| p.host == host && p.device == name)
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        const HOSTS: [&str; 3] = ["H1", "H2", "H3"];
        HOSTS.into_iter().flat_map(|h| [(h, 0), (h, 1)]).filter(|p| self.port(*p).is_some())
    }

    /// A port that works for its host in this partition.
    fn serves(&self, place: Place, partition: u16) -> bool {
        let up = self.port(place).is_some_and(|p| p.state == 4 && p.pkeys.iter().any(|k| k & 0x7fff == partition));
        up && !self.silent.contains(&place)
    }

    /// The own ports that a question can start from, with the partition where it says one.
    fn sources(&self, question: &Question) -> Vec<(Place, Option<u16>)> {
        let own = || self.places().filter(|(host, _)| *host == "H1");
        match question {
            Question::Address(Some(source), _) => match self.owners.get(source) {
                Some(o) if o.place.0 == "H1" => vec![(o.place, Some(o.partition))],
                _ => Vec::new(),
            },
            Question::Path { sgid: Some(gid), .. } => {
                own().filter(|p| self.port(*p).is_some_and(|p| p.gid == *gid)).map(|p| (p, None)).collect()
            }
            // The kernel chooses an own address of the destination's network.
            Question::Address(None, to) => {
                let near = |(address, o): (&&'static str, &Owner)| {
                    (o.place.0 == "H1" && network(address) == network(to)).then_some((o.place, Some(o.partition)))
                };
                self.owners.iter().filter_map(near).collect()
            }
            Question::Path { .. } => own().map(|p| (p, None)).collect(),
        }
    }

    /// Where a question leads.
    fn destinations(&self, question: &Question) -> Vec<Place> {
        let matching = |is: &dyn Fn(&PortLine) -> bool| -> Vec<Place> {
            self.places().filter(|place| self.port(*place).is_some_and(is)).collect()
        };
        match question {
            Question::Address(_, address) => self.owners.get(address).map(|o| o.place).into_iter().collect(),
            Question::Path { dgid: Some(gid), .. } => matching(&|p| p.gid == *gid),
            Question::Path { dlid, .. } => matching(&|p| p.lid == *dlid),
        }
    }

    /// The ports at both ends of a question.
    pub fn ends(&self, question: &Question) -> Vec<Place> {
        let sources = self.sources(question).into_iter().map(|s| s.0);
        sources.chain(self.destinations(question)).collect()
    }

    /// What the answer to a question has to be.
    pub fn right(&self, question: &Question) -> Right {
        let (sources, destinations) = (self.sources(question), self.destinations(question));
        let mut right = Right { paths: Vec::new(), must: !sources.is_empty() && !destinations.is_empty() };
        if let Question::Address(_, address) = question {
            right.must &= !self.left.contains(address);
        }
        if matches!(question, Question::Address(None, _)) {
            right.must &= !sources.iter().any(|(place, _)| self.unrouted.contains(place));
        }
        right.must &= !(self.no_sa && question.needs_sa());
        for (source, partition) in sources {
            let open = partition.is_none();
            for to in &destinations {
                let (Some(s), Some(d)) = (self.port(source), self.port(*to)) else { continue };
                // Where the question leaves the partition open the SA chooses one.
                for partition in partition.map_or(vec![COMMON, RED, BLUE], |p| vec![p]) {
                    let starts = self.serves(source, partition);
                    let whole = starts && self.serves(*to, partition);
                    right.must &= whole || (open && partition != COMMON);
                    // Of a peer that is down nobody may have said so yet: what was true of it is no lie.
                    if starts && (whole || to.0 != "H1") {
                        let (slid, dlid) = (s.lid, d.lid);
                        right.paths.push(Ends { sgid: s.gid, dgid: d.gid, slid, dlid, partition });
                    }
                }
            }
        }
        right.must &= !right.paths.is_empty();
        right
    }
}

impl Topic {
    /// The question that this is now. `None` if there is no such port.
    pub fn question(self, world: &World) -> Option<Question> {
        let gid = |place| world.port(place).map(|p| p.gid);
        let path = |sgid, place, how| Some(Question::Path { sgid, dgid: Some(gid(place)?), dlid: 0, how });
        match self {
            Topic::Address(source, to) => Some(Question::Address(source, to)),
            Topic::Lid(place) => {
                let dlid = world.port(place)?.lid;
                (dlid != 0).then_some(Question::Path { sgid: None, dgid: None, dlid, how: How::Plain })
            }
            Topic::Gid(Some(own), place) => path(Some(gid(("H1", own))?), place, How::Plain),
            Topic::Gid(None, place) => path(None, place, How::Plain),
            Topic::Fresh(place) => path(Some(gid(("H1", 0))?), place, How::Fresh),
            Topic::Sa(place) => path(Some(gid(("H1", 0))?), place, How::Sa),
        }
    }
}

impl Question {
    /// Whether nothing but the SA can answer it.
    pub fn needs_sa(&self) -> bool {
        matches!(self, Question::Path { how: How::Fresh | How::Sa, .. })
    }

    /// The request's entries; `number` makes it one that was not asked before, where that is wanted.
    pub fn entries(&self, number: u64) -> Vec<Entry> {
        match self {
            Question::Address(source, to) => {
                let source = source.map(|s| address(EP_FLAG_SOURCE, s));
                source.into_iter().chain([address(EP_FLAG_DEST, to)]).collect()
            }
            Question::Path { sgid, dgid, dlid, how } => {
                let mut path = PathRecord::default();
                path.set_sgid(Gid(sgid.unwrap_or_default()));
                path.set_dgid(Gid(dgid.unwrap_or_default()));
                path.set_dlid(*dlid);
                if *how == How::Fresh {
                    path.set_service_id(number);
                }
                vec![Entry::path(if *how == How::Sa { FLAG_QUERY_SA } else { 0 }, &path)]
            }
        }
    }
}

/// The network that an address is in: /16 and /64 here.
fn network(address: &str) -> Option<Vec<u8>> {
    Some(match address.parse().ok()? {
        IpAddr::V4(a) => a.octets()[..2].to_vec(),
        IpAddr::V6(a) => a.octets()[..8].to_vec(),
    })
}

fn address(flags: u32, text: &str) -> Entry {
    match text.parse::<IpAddr>() {
        Ok(_) => client::ip(flags, text),
        Err(_) => client::name(flags, text),
    }
}
