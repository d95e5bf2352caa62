//! The kernel's local service in the loop: its questions, handed to the engine as a client's are.

use std::net::IpAddr;

use ibacm_wire::Gid;
use ibacm_wire::client::resolve_request;

use super::Daemon;
use super::requests::Routing;
use super::timed::TimedEngine;
use crate::engine::{self, Link, Outcome, PortId, RouteLookup, Unroutable};
use crate::local_service::Resolver;
use crate::local_service::message::{PathQuestion, Question, ip_entries};
use crate::log;
use crate::map::Map;
use crate::rdma_nl::RdmaNl;
use crate::route::Sources;
use crate::rtnl::Rtnl;
use crate::time::Time;
use crate::token::{self, kind};

/// Hands questions of the kernel to the engine.
struct Questions<'a> {
    engine: &'a mut TimedEngine,
    sources: &'a mut Sources,
    rtnl: Option<&'a Rtnl>,
    ports: &'a Map<PortId, (usize, usize)>,
    now: Time,
}

impl Questions<'_> {
    /// The GID of the port that is named; an error if there is no such port.
    fn port_gid(&self, question: &PathQuestion) -> Result<Option<Gid>, ()> {
        if question.device.is_empty() || !question.path.sgid().is_zero() {
            return Ok(None);
        }
        let mut ports = self.ports.keys().filter_map(|id| self.engine.port(*id));
        let named = |p: &&engine::PortInfo| p.device.as_bytes() == question.device && p.port == question.port;
        ports.find(named).map(|p| Some(p.gid())).ok_or(())
    }

    /// Only the interface tells which of several links such an address is on: the source address, and the link. An
    /// error if there is none, or the kernel does not say which.
    fn scoped_source(&mut self, dest: IpAddr, interface: u32) -> Result<Option<(IpAddr, Link)>, ()> {
        match dest {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                let (gid, pkey) = self.rtnl.and_then(|r| r.link(interface)).ok_or(())?;
                let source = self.sources.source_for(dest, Some(interface)).map_err(|e| {
                    log!(2, "no source address for {dest} on interface {interface}: {e}");
                })?;
                Ok(Some((source, Link { gid: Gid(gid), pkey })))
            }
            _ => Ok(None),
        }
    }
}

/// The kernel's routing for a question that is about one link.
struct OnLink<'a> {
    routing: Routing<'a>,
    link: Option<Link>,
}

impl RouteLookup for OnLink<'_> {
    fn source_for(&mut self, dest: IpAddr) -> Result<IpAddr, Unroutable> {
        self.routing.source_for(dest)
    }

    fn link(&self) -> Option<Link> {
        self.link
    }
}

impl Resolver for Questions<'_> {
    fn ask(&mut self, id: engine::ClientId, question: &Question, wait: bool, reply: &mut Vec<u8>) -> Outcome {
        log!(2, "the kernel asks {question}");
        let mut link = None;
        let entries = match question {
            Question::Path(question) => self.port_gid(question).map(|gid| vec![question.entry(gid, wait)]),
            Question::Ip { dest, interface } => self.scoped_source(*dest, *interface).map(|scoped| {
                link = scoped.map(|(_, link)| link);
                ip_entries(*dest, scoped.map(|(source, _)| source), wait)
            }),
        };
        let Ok(entries) = entries else { return Outcome::Close };
        let (request, length) = resolve_request(0, &entries);
        let request = request.get(..length).unwrap_or_default();
        let mut routes = OnLink { routing: Routing(self.sources), link };
        self.engine.request(self.now, id, request, &mut routes, reply)
    }
}

impl Daemon {
    /// Serves the kernel through this socket.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn serve_kernel(&mut self, socket: RdmaNl) -> std::io::Result<()> {
        socket.register(self.poll.registry(), token::pack(kind::RDMA_NETLINK, 0, 0))?;
        self.kernel = Some(socket);
        Ok(())
    }

    /// The socket has something to read or takes something again (`event`), or there is some left from before.
    pub(super) fn kernel_questions(&mut self, event: bool) {
        let Some(kernel) = &mut self.kernel else { return };
        let now = self.now;
        let mut questions = Questions {
            engine: &mut self.engine,
            sources: &mut self.sources,
            rtnl: self.rtnl.as_ref(),
            ports: &self.ports,
            now,
        };
        if event {
            kernel.on_ready(now, &mut questions);
        } else {
            kernel.run_pending(now, &mut questions);
            kernel.on_time(now);
        }
    }

    /// Leaves the kernel to the subnet administrator.
    pub(super) fn leave_kernel(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            kernel.close();
        }
    }
}
