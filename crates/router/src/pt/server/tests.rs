//! Tests of a server that run its event loop one turn at a time.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::*;
use crate::pt::{ClientSettings, ListenerKind, PtClient, SCHEDULE, Shapes};

fn station(profile: &str, site: SocketAddr) -> PtServer {
    let profile: Profile = profile.parse().unwrap();
    PtServer::new(ServerSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        key: ServerKey::generate(&mut generator().unwrap()),
        profile,
        onward: Onward::Plain(site),
        site: profile.family().wants_site.then_some(site),
        schedule: Spec::over_windows(SCHEDULE).unwrap(),
        memory: 1 << 20,
        links: 9,
        covers: Covers::default(),
    })
    .unwrap()
}

fn turn(station: &mut impl Station) {
    let pause = Some(Duration::from_millis(10));
    let ready: Vec<Ready> = station.poller().wait(pause).unwrap().collect();
    let now = station.clock().now();
    ready.into_iter().for_each(|ready| station.take(now, ready));
    station.work(now);
}

/// Runs the server until `is_so` returns true. Panics after 1,000 turns of the event loop.
fn until(station: &mut PtServer, mut is_so: impl FnMut(&PtServer) -> bool) {
    for _ in 0..1_000 {
        turn(station);
        if is_so(station) {
            return;
        }
    }
    panic!("it does not come to that");
}

/// Connects to the server like a peer that is not a client, with a request that only the site
/// answers.
fn visit(station: &PtServer) -> TcpStream {
    let mut visitor = TcpStream::connect(station.bridge().address).unwrap();
    visitor.write_all(b"TRACE / HTTP/1.1\r\n\r\n").unwrap();
    visitor
}

fn is_visited(station: &PtServer) -> bool {
    station.addresses.keys().any(|one| station.is_strangers(*one))
}

#[test]
fn nothing_stays_of_a_visit_whoever_ends_it_first() {
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut station = station("http-opaque", site.local_addr().unwrap());
    for (first, answers) in [("site", true), ("site", false), ("visitor", true), ("visitor", false)]
    {
        let visitor = visit(&station);
        until(&mut station, is_visited);
        let mut served = site.accept().unwrap().0;
        if answers {
            served.write_all(&[7; 30_000]).unwrap();
            // The answer is forwarded first, so that the end arrives separately, without data.
            (0..20).for_each(|_| turn(&mut station));
        }
        visitor.set_nonblocking(true).unwrap();
        let ends = [&visitor, &served];
        for end in if first == "site" { [1, 0] } else { [0, 1] } {
            while { ends[0] }.read(&mut [0; 9_000]).is_ok_and(|count| count > 0) {}
            ends[end].shutdown(Shutdown::Write).unwrap();
            (0..20).for_each(|_| turn(&mut station));
        }
        until(&mut station, |station| station.wires.len() == 0);
        assert!(station.addresses.is_empty() && !is_visited(&station), "{first} {answers}");
    }
}

#[test]
fn a_stranger_who_makes_way_leaves_nothing_of_his_at_the_site() {
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut station = station("http-opaque", site.local_addr().unwrap());
    station.most = 2;
    // The site sends nothing, so the server has sent nothing to the stranger, either.
    let _first = visit(&station);
    until(&mut station, is_visited);
    let first = *station.addresses.keys().next().unwrap();
    let _second = visit(&station);
    until(&mut station, |station| !station.addresses.contains_key(&first) && is_visited(station));
    assert_eq!((station.wires.len(), station.is_strangers(first)), (2, false));
}

#[test]
fn a_stranger_who_takes_nothing_is_hung_up_on_after_a_minute() {
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut station = station("http-opaque", site.local_addr().unwrap());
    let _visitor = visit(&station);
    until(&mut station, is_visited);
    let mut served = site.accept().unwrap().0;
    served.set_nonblocking(true).unwrap();
    let (page, mut full) = (vec![7; 1 << 20], 0);
    // Fills the buffers of both sockets and the station's queue.
    until(&mut station, |_| {
        full = if served.write(&page).is_ok() { 0 } else { full + 1 };
        full > 20
    });
    let now = station.clock().now();
    station.sweep(now);
    station.sweep(now + Duration::from_secs(59));
    assert_eq!(station.wires.len(), 2);
    station.sweep(now + Duration::from_secs(60));
    assert_eq!((station.wires.len(), station.addresses.len()), (0, 0));
}

/// Returns whether a program's link opens within 100 turns of the event loops. These turns take at
/// most about 2 s.
fn comes_up(client: &mut PtClient, server: &mut PtServer) -> bool {
    let _program = TcpStream::connect(client.addresses().unwrap()[0]).unwrap();
    (0..100).any(|_| {
        turn(client);
        turn(server);
        client.events().iter().any(|event| matches!(event, PtEvent::Up(Some(_))))
    })
}

#[test]
fn a_link_that_is_done_keeps_no_descriptor_though_it_is_remembered() {
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = station("nosteg", relay.local_addr().unwrap());
    let kind = ListenerKind::Bridge(Box::new(server.bridge().clone()));
    let mut client = PtClient::new(ClientSettings {
        listen: vec![("127.0.0.1:0".parse().unwrap(), kind)],
        schedule: Spec::over_windows(SCHEDULE).unwrap(),
        shapes: Shapes::default(),
    })
    .unwrap();
    let mut program = TcpStream::connect(client.addresses().unwrap()[0]).unwrap();
    program.write_all(b"question").unwrap();
    program.shutdown(Shutdown::Write).unwrap();
    relay.set_nonblocking(true).unwrap();
    let mut both = |is_so: &mut dyn FnMut(&PtServer) -> bool| {
        let done = (0..500).any(|_| {
            turn(&mut client);
            turn(&mut server);
            is_so(&server)
        });
        assert!(done, "it does not come to that");
    };
    let mut served = None;
    both(&mut |_| {
        served = relay.accept().ok();
        served.is_some()
    });
    let mut served = served.unwrap().0;
    served.write_all(b"answer").unwrap();
    served.shutdown(Shutdown::Write).unwrap();
    both(&mut |server| server.hosts.values().all(Option::is_none));
    assert_eq!((server.hosts.len(), server.core.links()), (1, 1));
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    served.set_nonblocking(false).unwrap();
    served.read_to_end(&mut asked).unwrap();
    program.set_nonblocking(true).unwrap();
    for _ in 0..500 {
        turn(&mut client);
        turn(&mut server);
        // Bytes that have arrived stay in `answered`, even if the end of the stream has not
        // arrived yet.
        if program.read_to_end(&mut answered).is_ok() {
            break;
        }
    }
    assert_eq!([&asked[..], &answered[..]], [&b"question"[..], b"answer"]);
}

#[test]
fn a_machine_whose_clock_is_set_while_it_runs_takes_clients() {
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = station("nosteg", site.local_addr().unwrap());
    let kind = ListenerKind::Bridge(Box::new(server.bridge().clone()));
    let mut client = PtClient::new(ClientSettings {
        listen: vec![("127.0.0.1:0".parse().unwrap(), kind)],
        schedule: Spec::over_windows(SCHEDULE).unwrap(),
        shapes: Shapes::default(),
    })
    .unwrap();
    server.core.set_wall(0);
    assert!(!comes_up(&mut client, &mut server));
    let now = server.clock().now();
    server.sweep(now);
    assert!(comes_up(&mut client, &mut server));
}

/// Runs the client or server until it connects to `listener`. Returns the source address of that
/// connection.
fn comes_from(listener: &TcpListener, station: &mut impl Station) -> String {
    for _ in 0..1_000 {
        turn(station);
        if let Ok((_, peer)) = listener.accept() {
            return peer.ip().to_string();
        }
    }
    panic!("nobody connects");
}

#[test]
fn own_connections_come_from_the_address_that_is_named_but_for_those_on_this_machine() {
    let named = Outbound { v4: "127.0.0.9".parse().ok(), v6: None };
    // The kernel connects 0.0.0.0 to this machine, but it is not a loopback address.
    for (to, from) in [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.9")] {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = SocketAddr::new(to.parse().unwrap(), port);
        let mut server = station("http-opaque", to).with_outbound(named);
        let _visitor = visit(&server);
        assert_eq!(comes_from(&listener, &mut server), from, "a bridge's to its site");
        let _link = server.connect(None).unwrap();
        assert_eq!(comes_from(&listener, &mut server), from, "a bridge's to its relay");
        let bridge = Bridge { address: to, ..server.bridge().clone() };
        let settings = ClientSettings {
            listen: vec![("127.0.0.1:0".parse().unwrap(), ListenerKind::Bridge(Box::new(bridge)))],
            schedule: Spec::over_windows(SCHEDULE).unwrap(),
            shapes: Shapes::default(),
        };
        let mut client = PtClient::new(settings).unwrap().with_outbound(named);
        let _program = TcpStream::connect(client.addresses().unwrap()[0]).unwrap();
        assert_eq!(comes_from(&listener, &mut client), from, "a client's to its bridge");
    }
}

#[test]
fn nothing_leaves_by_another_address_where_the_named_one_is_not_to_be_had() {
    let nobodys = Outbound { v4: "192.0.2.77".parse().ok(), v6: None };
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = station("nosteg", "192.0.2.1:9".parse().unwrap()).with_outbound(nobodys);
    let error = server.connect(None).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable);
    server.onward = Onward::Plain(site.local_addr().unwrap());
    assert!(server.connect(None).is_ok());
}
