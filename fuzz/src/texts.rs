//! Texts that users write on the command line: an accepted text keeps its meaning when it is
//! displayed and parsed again, and its value can be used.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Boundary, Every, Jitter, LegView, PathView, Silence, Time, seed};
use anabranch_os::netlink::Prefix;
use anabranch_os::target::Target;
use anabranch_router::onion::authorities::Authority;
use anabranch_splitter::paths::{MAX_NAME, MAX_PORTS, PathSpec, StreamKind};
use anabranch_splitter::steer::{PortRange, Ports};

/// Checks every kind of text that a flag of `anabranch split` accepts.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    path_reads_back(text).inspect(path);
    reads_back::<Target>(text).inspect(|target| assert!(target.port > 0));
    reads_back::<Prefix>(text).inspect(|prefix| _ = reads_back::<Prefix>(&network(*prefix)));
    reads_back::<PortRange>(text)
        .inspect(|range| assert!(Ports::with(std::slice::from_ref(range)).contains(443)));
    if let Some(every) = reads_back::<Every>(text) {
        boundary(every);
    }
    reads_back::<Silence>(text).inspect(|silence| assert!(!silence.least().is_zero()));
    reads_back::<Jitter>(text).inspect(|jitter| assert!(!jitter.most().is_zero()));
    match Authority::parse(text) {
        Ok(authority) => assert!(!authority.name.is_empty(), "{text:?}"),
        Err(error) => assert!(!error.to_string().contains('\n'), "more than one line: {text:?}"),
    }
    if let Ok(spec) = Spec::over_windows(text) {
        schedule(&spec, PathView::leg(Some(RTT), 9, LegView::NOTHING));
    }
    if let Ok(spec) = text.parse::<Spec>() {
        schedule(&spec, PathView::open());
    }
}

/// Checks that an accepted text is shown in a form with the same meaning.
fn reads_back<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    let value: T = text.parse().ok()?;
    let shown = value.to_string();
    assert_eq!(shown.parse().ok().as_ref(), Some(&value), "{text:?} is shown as {shown:?}");
    Some(value)
}

/// Checks the same for a path, except that dots are displayed in place of a password.
fn path_reads_back(text: &str) -> Option<PathSpec> {
    let spec: PathSpec = text.parse().ok()?;
    let shown = spec.to_string();
    if !shown.contains(":...@") {
        return reads_back(text);
    }
    let again: PathSpec = shown.parse().expect("what is shown is a path");
    assert_eq!(again.to_string(), shown, "{text:?}");
    let by_stream = spec.stream.as_ref().and_then(StreamKind::proxy);
    let proxy = spec.proxy.as_ref().or(by_stream);
    assert!(proxy.is_some_and(|proxy| proxy.login.is_some()), "{text:?}");
    Some(again)
}

/// Checks the names of paths and devices: names become files and devices go to the kernel, so
/// neither may lead elsewhere.
fn path(spec: &PathSpec) {
    assert!((1..=MAX_NAME).contains(&spec.name.len()) && !spec.name.contains('/'), "{spec}");
    assert!((1..=MAX_PORTS).contains(&spec.ports), "{spec}");
    let device = spec.device.as_deref().unwrap_or("lo");
    assert!((1..16).contains(&device.len()) && !device.contains('/'), "{spec}");
}

fn network(prefix: Prefix) -> String {
    let network = prefix.network();
    assert_eq!(network.network(), network, "clearing twice is clearing once");
    network.to_string()
}

/// Checks that a run of any accepted length begins, and carries at least one unit.
fn boundary(every: Every) {
    let mut boundary = Boundary::new(every, seed::stream(1, 0, "fuzz"));
    for now in [Time::ZERO, Time::from_secs(1), Time::MAX] {
        boundary.begin(now);
        assert!(boundary.packets_left() > 0, "{every} never carries anything");
        boundary.spend(1);
    }
}

/// Round-trip time of a circuit.
const RTT: Duration = Duration::from_millis(20);

/// Checks that an accepted schedule chooses only paths that exist and are usable.
fn schedule(spec: &Spec, open: PathView) {
    for paths in 1..=4 {
        let Ok(mut scheduler) = spec.build(paths, seed::stream(1, 0, "fuzz")) else { continue };
        let mut views = vec![open; paths];
        for round in 0..8 {
            let dead = round % paths;
            views[dead].usable = paths == 1;
            let chosen = scheduler.choose(Time::from_millis(round as u64), &views);
            let good =
                chosen.is_some_and(|path| path.index() < paths && views[path.index()].usable);
            assert!(good, "{spec} of {paths} chose {chosen:?} where {dead} is dead");
            views[dead].usable = true;
        }
    }
}
