use super::*;

/// Writes down the calls, and refuses those that begin with `refuses`.
#[derive(Default)]
struct Recorder {
    calls: Vec<String>,
    refuses: Vec<&'static str>,
}

impl Recorder {
    fn open(&mut self, call: String) -> Result<String, i32> {
        let what = call.split_once(' ').map_or(String::new(), |c| c.1.to_owned());
        let refused = self.refuses.iter().any(|r| call.starts_with(r));
        self.calls.push(call);
        if refused { Err(-1) } else { Ok(what) }
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }
}

impl Plugin for Recorder {
    type Device = &'static str;
    type OpenDevice = String;
    type OpenPort = String;
    type OpenEndpoint = String;
    type OpenAddress = String;

    fn is_same(a: &&'static str, b: &&'static str) -> bool {
        a == b
    }
    fn open_device(&mut self, device: &&'static str) -> Result<String, i32> {
        self.open(format!("open_device {device}"))
    }
    fn close_device(&mut self, device: String) {
        self.calls.push(format!("close_device {device}"));
    }
    fn open_port(&mut self, _: PortId, wanted: &Wanted<&'static str>, on: &String) -> Result<String, i32> {
        self.open(format!("open_port {on}/{}", wanted.port))
    }
    fn close_port(&mut self, port: String) {
        self.calls.push(format!("close_port {port}"));
    }
    fn open_endpoint(&mut self, _: EpId, pkey: u16, on: &String) -> Result<String, i32> {
        self.open(format!("open_endpoint {on}/{pkey:x}"))
    }
    fn close_endpoint(&mut self, endpoint: String) {
        self.calls.push(format!("close_endpoint {endpoint}"));
    }
    fn add_address(&mut self, addr: &PluggedAddr, on: &String) -> Result<String, i32> {
        self.open(format!("add_address {on}/{}", String::from_utf8_lossy(&addr.text)))
    }
    fn remove_address(&mut self, addr: String) {
        self.calls.push(format!("remove_address {addr}"));
    }
}

fn addr(place: u32, name: &str) -> PluggedAddr {
    PluggedAddr { place, addr: Addr::name(name.as_bytes()), text: name.into() }
}

fn endpoint(ep: u32, pkey: u16, addrs: &[PluggedAddr]) -> PluggedEndpoint {
    PluggedEndpoint { ep: EpId(ep), pkey, pkey_index: 0, addrs: addrs.to_vec() }
}

fn port(device: &'static str, port: u8, endpoints: Vec<PluggedEndpoint>) -> Wanted<&'static str> {
    Wanted { device, port, generation: 0, gids: Vec::new(), endpoints }
}

type Map = Few<PortId, Wanted<&'static str>>;

fn wish<const N: usize>(ports: [(PortId, Wanted<&'static str>); N]) -> Map {
    let mut map = Map::default();
    for (id, port) in ports {
        map.insert(id, port);
    }
    map
}

fn two_ports() -> Map {
    let first = port("a", 1, vec![endpoint(0, 0xffff, &[addr(0, "x"), addr(1, "y")])]);
    let second = port("a", 2, vec![endpoint(1, 0xffff, &[addr(0, "z")])]);
    wish([(PortId(0), first), (PortId(1), second)])
}

#[test]
fn from_the_outside_to_the_inside_and_back() {
    let (mut tree, mut plugin) = (Tree::default(), Recorder::default());
    tree.become_(&mut plugin, &two_ports());
    let opened = [
        "open_device a",
        "open_port a/1",
        "open_endpoint a/1/ffff",
        "add_address a/1/ffff/x",
        "add_address a/1/ffff/y",
        "open_port a/2",
        "open_endpoint a/2/ffff",
        "add_address a/2/ffff/z",
    ];
    assert_eq!(plugin.take(), opened);
    assert_eq!(tree.address(PortId(0), EpId(0), 1).map(String::as_str), Some("a/1/ffff/y"));
    tree.become_(&mut plugin, &two_ports());
    assert!(plugin.take().is_empty(), "nothing has changed");
    let mut wanted = two_ports();
    wanted.remove(PortId(0));
    tree.become_(&mut plugin, &wanted);
    let closed =
        ["remove_address a/1/ffff/x", "remove_address a/1/ffff/y", "close_endpoint a/1/ffff", "close_port a/1"];
    assert_eq!(plugin.take(), closed, "the device has a port left");
    tree.become_(&mut plugin, &Map::default());
    let closed = ["remove_address a/2/ffff/z", "close_endpoint a/2/ffff", "close_port a/2", "close_device a"];
    assert_eq!(plugin.take(), closed);
    assert!(tree.address(PortId(0), EpId(0), 1).is_none() && tree.port(PortId(1)).is_none());
}

#[test]
fn what_changes_is_closed_before_what_comes_is_opened() {
    let (mut tree, mut plugin) = (Tree::default(), Recorder::default());
    tree.become_(&mut plugin, &two_ports());
    plugin.take();
    let mut wanted = two_ports();
    // another address in the same place, and another partition
    wanted.get_mut(PortId(0)).expect("it is there").endpoints =
        vec![endpoint(0, 0xffff, &[addr(0, "new"), addr(1, "y")]), endpoint(2, 0x8001, &[addr(0, "part")])];
    tree.become_(&mut plugin, &wanted);
    let calls = [
        "remove_address a/1/ffff/x",
        "add_address a/1/ffff/new",
        "open_endpoint a/1/8001",
        "add_address a/1/8001/part",
    ];
    assert_eq!(plugin.take(), calls);
    wanted.get_mut(PortId(0)).expect("it is there").endpoints[1].pkey_index = 3;
    tree.become_(&mut plugin, &wanted);
    let calls = [
        "remove_address a/1/8001/part",
        "close_endpoint a/1/8001",
        "open_endpoint a/1/8001",
        "add_address a/1/8001/part",
    ];
    assert_eq!(plugin.take(), calls, "the QP names its P_Key by index");
    wanted.get_mut(PortId(1)).expect("it is there").generation = 1;
    tree.become_(&mut plugin, &wanted);
    let calls = [
        "remove_address a/2/ffff/z",
        "close_endpoint a/2/ffff",
        "close_port a/2",
        "open_port a/2",
        "open_endpoint a/2/ffff",
        "add_address a/2/ffff/z",
    ];
    assert_eq!(plugin.take(), calls);
    // the same port of a device that was lost and has come back
    wanted.get_mut(PortId(1)).expect("it is there").device = "b";
    tree.become_(&mut plugin, &wanted);
    let calls = plugin.take();
    assert_eq!(calls[3..5], ["open_device b", "open_port b/2"], "{calls:?}");
}

#[test]
fn an_endpoint_without_addresses_is_not_opened_and_its_last_one_closes_it_with_the_wish() {
    let (mut tree, mut plugin) = (Tree::default(), Recorder::default());
    let mut wanted = wish([(PortId(0), port("a", 1, vec![endpoint(0, 0xffff, &[])]))]);
    tree.become_(&mut plugin, &wanted);
    assert_eq!(plugin.take(), ["open_device a", "open_port a/1"]);
    wanted.get_mut(PortId(0)).expect("it is there").endpoints = vec![endpoint(0, 0xffff, &[addr(0, "x")])];
    tree.become_(&mut plugin, &wanted);
    assert_eq!(plugin.take(), ["open_endpoint a/1/ffff", "add_address a/1/ffff/x"]);
}

#[test]
fn what_cannot_be_opened_costs_what_is_inside_and_is_not_closed() {
    for (refused, calls) in [("open_device", 2), ("open_port a/1", 3), ("open_endpoint a/1", 3), ("add_address a/1", 5)]
    {
        let (mut tree, mut plugin) = (Tree::default(), Recorder { refuses: vec![refused], ..Recorder::default() });
        let mut wanted = two_ports();
        if refused != "open_device" {
            wanted.remove(PortId(1));
        }
        tree.become_(&mut plugin, &wanted);
        let made = plugin.take();
        assert_eq!(made.len(), calls, "{made:?}");
        assert!(tree.has_failures());
        assert!(tree.address(PortId(0), EpId(0), 0).is_none());
        tree.become_(&mut plugin, &wanted);
        assert!(plugin.take().is_empty(), "it is not tried again and again");
        plugin.refuses.clear();
        tree.forgive();
        tree.become_(&mut plugin, &wanted);
        assert!(!plugin.take().is_empty() && !tree.has_failures());
        assert!(tree.address(PortId(0), EpId(0), 0).is_some());
        tree.become_(&mut plugin, &Map::default());
        let closed = plugin.take();
        let count = |what: &str| closed.iter().filter(|c| c.starts_with(what)).count();
        assert_eq!((count("close_device"), count("close_port")), (1, wanted.len()), "{closed:?}");
    }
}

#[test]
fn a_port_that_cannot_be_opened_leaves_no_device_open() {
    let (mut tree, mut plugin) = (Tree::default(), Recorder { refuses: vec!["open_port"], ..Recorder::default() });
    tree.become_(&mut plugin, &two_ports());
    let calls =
        ["open_device a", "open_port a/1", "close_device a", "open_device a", "open_port a/2", "close_device a"];
    assert_eq!(plugin.take(), calls);
    tree.become_(&mut plugin, &Map::default());
    assert!(plugin.take().is_empty());
}
