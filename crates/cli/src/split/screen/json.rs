//! Output of a splitter with `--json`: one JSON object per line. `docs/formats.md` specifies the
//! fields.

use std::io;

use anabranch_comps::{
    CloseReason, DownReason, Drops, Event, FarEndCounters, PathCounters, Pinned, Silent, Snapshot,
    StayReason, StreamCounters,
};
use anabranch_multipath::Time;
use anabranch_splitter::paths::Egress;
use anabranch_splitter::split::{ActiveSettings, FarEndNews, Screen};
use anabranch_splitter::steer::Plan;
use serde::Serialize;
use serde_json::Value;

use super::advice;
use super::session_table::SessionTable;
use crate::screen::lines::Lines;

/// A screen (output for the user) that prints JSON objects.
pub(super) struct Json {
    out: Lines,
    /// Name that the user has given to this running program (`--name`), if any.
    name: Option<String>,
    session_table: SessionTable,
    /// Time of the latest event. Warnings use it, because they have no time of their own.
    now: Time,
}

impl Json {
    /// Creates a screen that prints JSON objects to stdout. Each object contains `name`, the value
    /// of `--name`, if there is one.
    ///
    /// # Errors
    /// The writer thread cannot be started.
    pub(super) fn new(name: Option<String>) -> io::Result<Json> {
        Ok(Json { name, ..Json::to(Lines::stdout()?) })
    }

    /// Creates a screen that prints objects to `out`.
    pub(super) fn to(out: Lines) -> Json {
        Json { out, name: None, session_table: SessionTable::default(), now: Time::ZERO }
    }

    fn report(&mut self, now: Time, record: Record<'_>) {
        self.now = now;
        self.print(&self.line(now, record));
    }

    fn print(&self, text: &str) {
        self.out.print(text, |lines| self.lost(self.now, lines));
    }

    fn lost(&self, now: Time, lines: u64) -> String {
        self.line(now, Record::Lost { lines })
    }

    fn line(&self, now: Time, record: Record<'_>) -> String {
        write(&Line { record, name: self.name.as_deref(), time: now.secs_f64() })
    }

    fn about(&self, event: &str, now: Time, about: &ActiveSettings) -> String {
        self::about(event, self.name.as_deref(), now, about)
    }
}

impl Screen for Json {
    fn listening(&mut self, about: &ActiveSettings) {
        self.session_table.begin(about);
        self.print(&self.about("listening", Time::ZERO, about));
        advice::warnings(about).iter().for_each(|text| self.warn(text));
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.now = now;
        self.session_table.begin(about);
        self.print(&self.about("reloaded", now, about));
    }

    fn event(&mut self, now: Time, event: &Event) {
        self.session_table.open(event);
        let text = self.line(now, record(&self.session_table, event));
        self.session_table.close(event);
        self.now = now;
        self.print(&text);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let stats = Record::Stats(Stats::of(&self.session_table, snapshot));
        self.report(now, stats);
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        let stats = Record::Summary(Stats::of(&self.session_table, snapshot));
        self.out.last(&self.line(now, stats), |lines| self.lost(now, lines));
    }

    fn far_end(&mut self, now: Time, news: &FarEndNews) {
        self.now = now;
        let (state, seconds) = match news {
            FarEndNews::Up => ("up", None),
            FarEndNews::Lost => ("lost", None),
            FarEndNews::Left => ("left", None),
            FarEndNews::Unanswered { waited } => ("unanswered", Some(waited.as_secs_f64())),
        };
        let text = advice::far_end(self.session_table.server(None), news);
        self.report(now, Record::FarEnd { state, seconds, text });
    }

    fn warn(&mut self, text: &str) {
        self.report(self.now, Record::Warning { text });
    }
}

/// Returns the settings `about` as a JSON object with the event name `event`. The object contains
/// `name`, the value of `--name`, if there is one.
pub(in crate::split) fn about(
    event: &str,
    name: Option<&str>,
    now: Time,
    about: &ActiveSettings,
) -> String {
    write(&About {
        event,
        name,
        time: now.secs_f64(),
        listen: about.listen.map(|listen| listen.to_string()),
        server: about.server.map(|server| server.to_string()),
        far_end: about.far_end,
        tun: about.tun.as_ref().map(Interface::from),
        schedule: &about.schedule,
        every: &about.every,
        redraw: about.redraw.as_deref(),
        jitter: about.jitter.as_deref(),
        decoys: about.decoys.as_deref(),
        seed: about.seed,
        udp_payload: about.udp_payload,
        tunnel_mtu: about.tunnel_mtu,
        paths: about.egresses.iter().chain(&about.others).map(PathFields::from).collect(),
    })
}

/// Returns the counters as a JSON object.
pub(super) fn stats(session_table: &SessionTable, snapshot: &Snapshot) -> Value {
    let stats = serde_json::to_value(Stats::of(session_table, snapshot));
    stats.expect("these types have string keys, so JSON can hold them")
}

fn write(object: &impl Serialize) -> String {
    serde_json::to_string(object).expect("these types have string keys, so JSON can hold them")
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    record: Record<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    time: f64,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Record<'a> {
    Opened {
        session: u64,
        client: String,
        server: Option<String>,
    },
    Session {
        session: u64,
        client: Option<String>,
        protocol: &'static str,
        confidence: &'static str,
        one_path: Option<&'static str>,
    },
    NumbersInClear {
        session: u64,
        protocol: &'static str,
        text: String,
    },
    Unanswered {
        session: u64,
        server: Option<String>,
        seconds: f64,
        last: Option<f64>,
    },
    Answered {
        session: u64,
        server: Option<String>,
        seconds: f64,
    },
    Kept {
        session: u64,
        path: String,
        reason: &'static str,
        text: String,
    },
    FarEnd {
        state: &'static str,
        seconds: Option<f64>,
        text: String,
    },
    TuplesCut {
        session: u64,
        wanted: usize,
        used: usize,
    },
    Pinned {
        session: u64,
        path: String,
    },
    Released {
        session: u64,
        rtt_ms: Option<f64>,
    },
    Path {
        path: String,
        state: &'static str,
        reason: Option<&'static str>,
        session: Option<u64>,
    },
    Skewed {
        session: u64,
        path: String,
        percent: u8,
        followed: bool,
    },
    Closed {
        session: u64,
        client: Option<String>,
        reason: &'static str,
    },
    Refused {
        client: String,
        datagrams: u64,
    },
    Loop {
        client: String,
    },
    Warning {
        text: &'a str,
    },
    Lost {
        lines: u64,
    },
    Stats(Stats),
    Summary(Stats),
}

#[derive(Serialize)]
struct Stats {
    sessions: usize,
    silent: Option<SilentFields>,
    opened: u64,
    never_split: UnsplitSessions,
    no_path: u64,
    waiting: usize,
    hurried: u64,
    looped: u64,
    refused: u64,
    missed: u64,
    not_returned: u64,
    foreign: u64,
    housekeeping: u64,
    paths: Vec<Path>,
    removed: Option<RemovedPath>,
    far_end: Option<FarEnd>,
}

#[derive(Serialize)]
struct FarEnd {
    up: bool,
    lost: u64,
    patience_ms: f64,
    decoys: Decoys,
}

/// Counters of decoys, which are sent on idle paths.
#[derive(Serialize)]
struct Decoys {
    up_packets: u64,
    up_bytes: u64,
    down_packets: u64,
    down_bytes: u64,
}

impl From<FarEndCounters> for FarEnd {
    fn from(FarEndCounters { up, lost, patience, decoys }: FarEndCounters) -> FarEnd {
        let [sent, received] = decoys;
        let decoys = Decoys {
            up_packets: sent.datagrams,
            up_bytes: sent.bytes,
            down_packets: received.datagrams,
            down_bytes: received.bytes,
        };
        FarEnd { up, lost, patience_ms: patience.as_secs_f64() * 1000.0, decoys }
    }
}

#[derive(Serialize)]
struct UnsplitSessions {
    sessions: u64,
    first: Vec<u64>,
    reasons: Vec<&'static str>,
}

/// Counters of sessions whose servers do not answer.
#[derive(Serialize)]
struct SilentFields {
    sessions: usize,
    seconds: f64,
    last: Option<f64>,
}

impl From<Silent> for SilentFields {
    fn from(Silent { sessions, waited, last }: Silent) -> SilentFields {
        SilentFields { sessions, seconds: waited.as_secs_f64(), last: last.map(|at| at.secs_f64()) }
    }
}

#[derive(Serialize)]
struct RemovedPath {
    up_packets: u64,
    up_bytes: u64,
    down_packets: u64,
    down_bytes: u64,
    switches: u64,
    copies: u64,
    refused: u64,
    drops: DroppedDatagrams,
}

#[derive(Serialize)]
struct Path {
    name: String,
    state: &'static str,
    silent_sessions: usize,
    pinned: Option<PinnedFlows>,
    up_packets: u64,
    up_bytes: u64,
    down_packets: u64,
    down_bytes: u64,
    rtt_ms: Option<f64>,
    switches: u64,
    copies: u64,
    refused: u64,
    drops: DroppedDatagrams,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<PathStream>,
}

/// Counters of the stream (a TCP or TLS connection) that carries a path.
#[derive(Serialize)]
struct PathStream {
    kind: &'static str,
    queued_bytes: u64,
    aged: u64,
    ended: u64,
    replaced: u64,
}

#[derive(Serialize)]
struct PinnedFlows {
    flows: u64,
    up_packets: u64,
    up_bytes: u64,
    down_packets: u64,
    down_bytes: u64,
}

impl From<Pinned> for PinnedFlows {
    fn from(Pinned { flows, up, down }: Pinned) -> PinnedFlows {
        PinnedFlows {
            flows,
            up_packets: up.datagrams,
            up_bytes: up.bytes,
            down_packets: down.datagrams,
            down_bytes: down.bytes,
        }
    }
}

#[derive(Serialize)]
struct DroppedDatagrams {
    full: u64,
    too_big: u64,
    unreachable: u64,
}

#[derive(Serialize)]
struct About<'a> {
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    time: f64,
    listen: Option<String>,
    server: Option<String>,
    far_end: bool,
    tun: Option<Interface<'a>>,
    schedule: &'a str,
    every: &'a str,
    redraw: Option<&'a str>,
    jitter: Option<&'a str>,
    decoys: Option<&'a str>,
    seed: u64,
    udp_payload: Option<u32>,
    tunnel_mtu: Option<u32>,
    paths: Vec<PathFields<'a>>,
}

#[derive(Serialize)]
struct Interface<'a> {
    name: &'a str,
    netns: Option<&'a str>,
    mtu: u32,
    udp: String,
    route: bool,
    mark: u32,
    steps: Vec<String>,
}

impl<'a> From<&'a Plan> for Interface<'a> {
    fn from(plan: &'a Plan) -> Interface<'a> {
        Interface {
            name: &plan.request.tun,
            netns: plan.request.netns.as_deref(),
            mtu: plan.mtu,
            udp: plan.request.ports.to_string(),
            route: plan.request.route,
            mark: plan.own,
            steps: plan.describe(),
        }
    }
}

#[derive(Serialize)]
struct PathFields<'a> {
    name: &'a str,
    interface: Option<&'a str>,
    source: Option<String>,
    gateway: Option<String>,
    mtu: Option<u32>,
    ports: u16,
    proxy: Option<String>,
    overhead: u32,
    note: Option<&'a str>,
}

impl<'a> From<&'a Egress> for PathFields<'a> {
    fn from(egress: &'a Egress) -> PathFields<'a> {
        PathFields {
            name: &egress.name,
            interface: egress.device.as_deref(),
            source: egress.sends_as.map(|ip| ip.to_string()),
            gateway: egress.gateway.map(|ip| ip.to_string()),
            mtu: egress.mtu,
            ports: egress.ports,
            proxy: egress.proxy.map(|proxy| proxy.to_string()),
            overhead: egress.overhead(),
            note: egress.note.as_deref(),
        }
    }
}

impl Stats {
    fn of(session_table: &SessionTable, snapshot: &Snapshot) -> Stats {
        let paths = snapshot.paths.iter().enumerate();
        let named = paths.map(|(index, counters)| {
            let pinned = snapshot.pinned.get(index).copied();
            Path::of(session_table.path(anabranch_multipath::PathId::at(index)), counters, pinned)
        });
        Stats {
            sessions: snapshot.sessions,
            silent: snapshot.silent.map(SilentFields::from),
            opened: snapshot.opened,
            never_split: UnsplitSessions {
                sessions: snapshot.unsplit.sessions,
                first: snapshot.unsplit.first.iter().map(|(id, _)| id.0).collect(),
                reasons: snapshot.unsplit.first.iter().map(|(_, why)| kept(*why)).collect(),
            },
            no_path: snapshot.no_path,
            waiting: snapshot.waiting,
            hurried: snapshot.hurried,
            looped: snapshot.looped,
            refused: snapshot.refused,
            missed: snapshot.missed,
            not_returned: snapshot.not_returned,
            foreign: snapshot.foreign,
            housekeeping: snapshot.housekeeping,
            paths: named.collect(),
            removed: RemovedPath::of(&snapshot.removed),
            far_end: snapshot.far_end.map(FarEnd::from),
        }
    }
}

impl RemovedPath {
    fn of(counters: &PathCounters) -> Option<RemovedPath> {
        (*counters != PathCounters::default()).then(|| RemovedPath {
            up_packets: counters.up.datagrams,
            up_bytes: counters.up.bytes,
            down_packets: counters.down.datagrams,
            down_bytes: counters.down.bytes,
            switches: counters.switches,
            copies: counters.copies,
            refused: counters.refused,
            drops: DroppedDatagrams::of(counters.drops),
        })
    }
}

impl DroppedDatagrams {
    fn of(Drops { full, too_big, unreachable }: Drops) -> DroppedDatagrams {
        DroppedDatagrams { full, too_big, unreachable }
    }
}

impl Path {
    fn of(name: String, counters: &PathCounters, pinned: Option<Pinned>) -> Path {
        Path {
            name,
            state: state(counters.works),
            silent_sessions: counters.silent_sessions,
            pinned: pinned.map(PinnedFlows::from),
            up_packets: counters.up.datagrams,
            up_bytes: counters.up.bytes,
            down_packets: counters.down.datagrams,
            down_bytes: counters.down.bytes,
            rtt_ms: counters.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            switches: counters.switches,
            copies: counters.copies,
            refused: counters.refused,
            drops: DroppedDatagrams::of(counters.drops),
            stream: counters.stream.map(PathStream::from),
        }
    }
}

impl From<StreamCounters> for PathStream {
    fn from(stream: StreamCounters) -> PathStream {
        let StreamCounters { kind, queued, aged, ended, replaced } = stream;
        PathStream { kind, queued_bytes: queued, aged, ended, replaced }
    }
}

fn record(session_table: &SessionTable, event: &Event) -> Record<'static> {
    let client = |session| session_table.client(session).map(|client| client.to_string());
    match *event {
        Event::Opened { session, client, server } => Record::Opened {
            session: session.0,
            client: client.to_string(),
            server: server.map(|server| server.to_string()),
        },
        Event::Recognised { session, protocol, confidence } => Record::Session {
            session: session.0,
            client: client(session),
            protocol: protocol.name(),
            confidence: confidence.name(),
            one_path: protocol.family().one_path,
        },
        Event::NumbersInClear { session, protocol } => Record::NumbersInClear {
            session: session.0,
            protocol: protocol.name(),
            text: advice::numbers_in_clear(protocol),
        },
        Event::Unanswered { session, server, waited, last } => Record::Unanswered {
            session: session.0,
            server: session_table.server(server).map(|server| server.to_string()),
            seconds: waited.as_secs_f64(),
            last: last.map(|at| at.secs_f64()),
        },
        Event::Answered { session, server, waited } => Record::Answered {
            session: session.0,
            server: session_table.server(server).map(|server| server.to_string()),
            seconds: waited.as_secs_f64(),
        },
        Event::Kept { session, path, why } => Record::Kept {
            session: session.0,
            path: session_table.path(path),
            reason: kept(why),
            text: advice::kept(why),
        },
        Event::TuplesCut { session, wanted, used } => {
            Record::TuplesCut { session: session.0, wanted, used }
        }
        Event::Pinned { session, path } => {
            Record::Pinned { session: session.0, path: session_table.path(path) }
        }
        Event::Released { session, rtt } => {
            let rtt_ms = rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
            Record::Released { session: session.0, rtt_ms }
        }
        Event::Down { path, session, reason } => Record::Path {
            path: session_table.path(path),
            state: state(false),
            reason: Some(down(reason)),
            session: session.map(|session| session.0),
        },
        Event::Up { path, session } => Record::Path {
            path: session_table.path(path),
            state: state(true),
            reason: None,
            session: session.map(|session| session.0),
        },
        Event::Skewed { session, path, percent, followed } => {
            Record::Skewed { session: session.0, path: session_table.path(path), percent, followed }
        }
        Event::Closed { session, reason } => {
            Record::Closed { session: session.0, client: client(session), reason: closed(reason) }
        }
        Event::Refused { client, datagrams } => {
            Record::Refused { client: client.to_string(), datagrams }
        }
        Event::Loop { client } => Record::Loop { client: client.to_string() },
    }
}

fn state(works: bool) -> &'static str {
    if works { "up" } else { "down" }
}

fn down(reason: DownReason) -> &'static str {
    match reason {
        DownReason::Interface => "interface",
        DownReason::Unreachable => "unreachable",
        DownReason::Proxy => "proxy",
        DownReason::Dialling => "dialling",
        DownReason::NoSocket => "no-socket",
        DownReason::Silent => "silent",
        DownReason::NeverAnswered => "never-answered",
        DownReason::DataUnanswered => "data-unanswered",
        DownReason::Unheard => "unheard",
    }
}

fn kept(why: StayReason) -> &'static str {
    match why {
        StayReason::Short => "short",
        StayReason::Handshake => "handshake",
        StayReason::HandshakePath => "handshake-path",
        StayReason::Protocol(_) => "protocol",
        StayReason::OtherPaths => "other-paths",
        StayReason::Schedule => "schedule",
    }
}

fn closed(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Idle => "idle",
        CloseReason::Evicted => "evicted",
        CloseReason::Unresolved => "unresolved",
        CloseReason::Unreachable => "unreachable",
        CloseReason::Shutdown => "shutdown",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch_comps::protocol::Confidence;
    use anabranch_comps::{Protocol, SessionId};
    use anabranch_multipath::PathId;
    use serde_json::{Value, json};

    use super::*;
    use crate::screen::earlier::assert_readable;
    use crate::screen::lines::tests::printed as printed_lines;
    use crate::split::screen::model::tests::{about, snapshot};

    fn printed(show: impl FnOnce(&mut Json)) -> Vec<Value> {
        let text = printed_lines(|out| show(&mut Json::to(out)));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_recognised_session_is_told_with_its_client() {
        let session = SessionId(0);
        let lines = printed(|screen| {
            let client = "127.0.0.1:9".parse().unwrap();
            screen.event(Time::from_millis(250), &Event::Opened { session, client, server: None });
            let (protocol, confidence) = (Protocol::WireGuard, Confidence::Likely);
            let event = Event::Recognised { session, protocol, confidence };
            screen.event(Time::from_millis(500), &event);
            let (protocol, confidence) = (Protocol::Stun, Confidence::Certain);
            screen.event(Time::ZERO, &Event::Recognised { session, protocol, confidence });
        });
        assert_eq!(
            lines[1],
            json!({
                "event": "session",
                "session": 0,
                "client": "127.0.0.1:9",
                "protocol": "wireguard",
                "confidence": "likely",
                "one_path": null,
                "time": 0.5
            })
        );
        assert_eq!(lines[2]["confidence"], "certain");
        assert!(lines[2]["one_path"].as_str().unwrap().contains("addresses"));
    }

    #[test]
    fn each_object_has_the_name_of_the_run() {
        let show = |screen: &mut Json| {
            screen.warn("late");
            screen.snapshot(Time::from_secs(1), &snapshot(&[(1000, 3000)]));
            screen.finish(Time::from_secs(2), &snapshot(&[(1000, 3000)]));
        };
        let named = printed(|screen| {
            screen.name = Some("home".to_owned());
            show(screen);
        });
        assert_eq!(named.len(), 3);
        assert!(named.iter().all(|line| line["name"] == "home"), "{named:?}");
        assert!(printed(show).iter().all(|line| line.get("name").is_none()), "none was given");
    }

    #[test]
    fn a_path_that_goes_is_told_with_its_reason() {
        let lines = printed(|screen| {
            let (path, reason) = (PathId(1), DownReason::Silent);
            screen.event(Time::ZERO, &Event::Down { path, session: Some(SessionId(7)), reason });
            screen.event(Time::ZERO, &Event::Up { path, session: None });
        });
        assert_eq!(
            lines[0],
            json!({
                "event": "path",
                "path": "1",
                "state": "down",
                "reason": "silent",
                "session": 7,
                "time": 0.0
            })
        );
        assert_eq!(lines[1]["session"], Value::Null);
    }

    #[test]
    fn numbers_in_clear_and_a_server_without_an_answer_have_events_of_their_own() {
        let lines = printed(|screen| {
            let protocol = Protocol::WireGuard;
            let session = SessionId(1);
            screen.event(Time::ZERO, &Event::NumbersInClear { session, protocol });
            let (session, server) = (SessionId(2), "192.0.2.1:51820".parse().ok());
            let waited = std::time::Duration::from_secs(10);
            let last = Some(Time::from_secs(3));
            let event = Event::Unanswered { session, server, waited, last };
            screen.event(Time::from_secs(10), &event);
        });
        assert_eq!(lines[0]["event"], "numbers_in_clear");
        assert_eq!((&lines[0]["session"], &lines[0]["protocol"]), (&json!(1), &json!("wireguard")));
        assert!(
            lines[0]["text"].as_str().unwrap().contains("run a far end in front of the server")
        );
        assert_eq!(
            lines[1],
            json!({
                "event": "unanswered",
                "session": 2,
                "server": "192.0.2.1:51820",
                "seconds": 10.0,
                "last": 3.0,
                "time": 10.0
            })
        );
    }

    #[test]
    fn stats_keep_uplink_and_downlink_apart() {
        let counters = snapshot(&[(1000, 3000)]);
        let lines = printed(|screen| {
            screen.snapshot(Time::from_secs(1), &counters);
            screen.finish(Time::from_secs(2), &counters);
        });
        let path = &lines[0]["paths"][0];
        assert_eq!((&path["up_bytes"], &path["down_bytes"]), (&json!(1000), &json!(3000)));
        assert_eq!((&lines[0]["event"], &lines[1]["event"]), (&json!("stats"), &json!("summary")));
        assert_eq!(lines[0]["paths"], lines[1]["paths"]);
        assert_eq!(path["pinned"], Value::Null);
    }

    #[test]
    fn what_is_pinned_to_a_path_is_told_apart_from_its_sessions() {
        let up = anabranch_comps::Flow { datagrams: 5, bytes: 300 };
        let pinned = Pinned { flows: 2, up, ..Pinned::default() };
        let counters = Snapshot { pinned: vec![pinned], ..snapshot(&[(1000, 3000)]) };
        let lines = printed(|screen| screen.snapshot(Time::ZERO, &counters));
        let path = &lines[0]["paths"][0];
        assert_eq!(
            (&path["pinned"]["flows"], &path["pinned"]["up_bytes"]),
            (&json!(2), &json!(300))
        );
        assert_eq!(path["up_bytes"], 1000);
    }

    #[test]
    fn a_round_trip_that_was_not_measured_is_null() {
        let rtts = [None, Some(Duration::from_millis(20))];
        let lines = printed(|screen| {
            for rtt in rtts {
                screen.event(Time::ZERO, &Event::Released { session: SessionId(0), rtt });
            }
        });
        let rtts: Vec<_> = lines.iter().map(|line| &line["rtt_ms"]).collect();
        assert_eq!(rtts, [&json!(null), &json!(20.0)]);
    }

    #[test]
    fn programs_that_read_earlier_lines_can_read_todays() {
        let (path, session) = (PathId(1), SessionId(0));
        let client = "127.0.0.1:9".parse().unwrap();
        let (server, waited) = ("192.0.2.1:51820".parse().ok(), Duration::from_secs(10));
        let (protocol, confidence) = (Protocol::WireGuard, Confidence::Likely);
        let events = [
            Event::Opened { session, client, server },
            Event::Recognised { session, protocol, confidence },
            Event::NumbersInClear { session, protocol },
            Event::Unanswered { session, server, waited, last: None },
            Event::TuplesCut { session, wanted: 8, used: 4 },
            Event::Pinned { session, path },
            Event::Released { session, rtt: Some(waited) },
            Event::Down { path, session: Some(session), reason: DownReason::Silent },
            Event::Up { path, session: Some(session) },
            Event::Skewed { session, path, percent: 97, followed: false },
            Event::Closed { session, reason: CloseReason::Idle },
            Event::Refused { client, datagrams: 4 },
            Event::Loop { client },
        ];
        let far_end = FarEndCounters { up: true, ..FarEndCounters::default() };
        let removed = PathCounters { switches: 1, ..PathCounters::default() };
        let pinned = vec![Pinned::default()];
        let counters =
            Snapshot { far_end: Some(far_end), removed, pinned, ..snapshot(&[(1000, 3000)]) };
        let lines = printed(|screen| {
            screen.listening(&about(&["wlan", "lte"]));
            screen.reloaded(Time::ZERO, &about(&["wlan", "lte"]));
            screen.far_end(Time::ZERO, &FarEndNews::Up);
            events.iter().for_each(|event| screen.event(Time::ZERO, event));
            screen.warn("the clock went back");
            screen.snapshot(Time::ZERO, &counters);
            screen.report(Time::ZERO, Record::Lost { lines: 3 });
            screen.finish(Time::ZERO, &counters);
        });
        let earlier = include_str!("../../../../../tests/formats/0e0b824b/events/split.jsonl");
        assert_readable(earlier, &lines);
    }
}
