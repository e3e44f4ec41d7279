//! Output of a far end as JSON objects, one per line: for each event, and for the counters every
//! second.

use std::io;

use anabranch_comps::Flow;
use anabranch_multipath::Time;
use anabranch_splitter::far_end::secret_text;
use anabranch_splitter::merge::{ActiveSettings, ClientSnapshot, News, Screen, Snapshot};
use serde::Serialize;
use serde_json::Value;

use crate::screen::lines::Lines;

/// A screen (output for the user) that prints JSON objects.
pub(super) struct Json {
    out: Lines,
    /// Name that the user has given to this running program (`--name`); `None` if there is none.
    name: Option<String>,
    now: Time,
}

impl Json {
    /// Creates a screen that prints the objects of the running program called `name` to stdout.
    ///
    /// # Errors
    /// The writer thread cannot be started.
    pub(super) fn new(name: Option<String>) -> io::Result<Json> {
        Ok(Json { out: Lines::stdout()?, name, now: Time::ZERO })
    }
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
    Listening(About<'a>),
    Reloaded(About<'a>),
    Began { client: &'a str, from: String, server: &'a str },
    NoServer { client: &'a str, server: &'a str },
    Ended { client: &'a str },
    Path { client: &'a str, path: u16, state: &'static str, from: Option<String> },
    ServerRefused { server: String },
    Warning { text: &'a str },
    Lost { lines: u64 },
    Stats(Stats<'a>),
    Summary(Stats<'a>),
}

#[derive(Serialize)]
struct About<'a> {
    listen: String,
    listen_tcp: Option<String>,
    listen_tls: Option<String>,
    tls_fingerprint: Option<&'a str>,
    #[serde(rename = "behind")]
    web_server: Option<String>,
    public: String,
    servers: Vec<Server<'a>>,
    tun: Option<Interface<'a>>,
    clients: &'a [String],
    schedule: &'a str,
    every: &'a str,
    redraw: Option<&'a str>,
    jitter: Option<&'a str>,
    decoys: Option<&'a str>,
    seed: u64,
}

#[derive(Serialize)]
struct Server<'a> {
    name: &'a str,
    at: String,
}

#[derive(Serialize)]
struct Interface<'a> {
    name: &'a str,
    addresses: [String; 2],
}

#[derive(Serialize)]
struct Stats<'a> {
    flows: usize,
    handshakes: u64,
    strangers: u64,
    missed: u64,
    unsent: u64,
    hurried: u64,
    refused: u64,
    streams: Option<Streams>,
    clients: Vec<Client<'a>>,
}

/// Counters of all TCP and TLS connections.
#[derive(Serialize)]
struct Streams {
    bound: usize,
    strangers: usize,
    handed: u64,
    aged: u64,
}

/// Counters of the stream (a TCP or TLS connection) that carries a path.
#[derive(Serialize)]
struct PathStream {
    queued_bytes: u64,
    aged: u64,
}

#[derive(Serialize)]
struct Client<'a> {
    name: &'a str,
    up: bool,
    lost: u64,
    patience_ms: f64,
    decoys: Decoys,
    paths: Vec<Path>,
}

/// Counters of decoys, which are sent on idle paths.
#[derive(Serialize)]
struct Decoys {
    in_packets: u64,
    in_bytes: u64,
    out_packets: u64,
    out_bytes: u64,
}

impl From<[Flow; 2]> for Decoys {
    fn from([sent, received]: [Flow; 2]) -> Decoys {
        Decoys {
            in_packets: received.datagrams,
            in_bytes: received.bytes,
            out_packets: sent.datagrams,
            out_bytes: sent.bytes,
        }
    }
}

#[derive(Serialize)]
struct Path {
    from: Option<String>,
    up: bool,
    stream: Option<PathStream>,
    in_packets: u64,
    in_bytes: u64,
    out_packets: u64,
    out_bytes: u64,
}

impl Json {
    fn report(&mut self, now: Time, record: Record<'_>) {
        self.now = now;
        self.out.print(&self.line(now, record), |lines| self.line(now, Record::Lost { lines }));
    }

    fn line(&self, now: Time, record: Record<'_>) -> String {
        let line = Line { record, name: self.name.as_deref(), time: now.secs_f64() };
        serde_json::to_string(&line).expect("these types have string keys, so JSON can hold them")
    }
}

/// Returns the settings of the program as a JSON object.
pub(super) fn about(about: &ActiveSettings) -> Value {
    value(&Record::Listening(About::from(about)))
}

/// Returns the counters as a JSON object.
pub(super) fn counters(snapshot: &Snapshot) -> Value {
    value(&stats(snapshot))
}

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("these types have string keys, so JSON can hold them")
}

impl<'a> From<&'a ActiveSettings> for About<'a> {
    fn from(about: &'a ActiveSettings) -> About<'a> {
        let servers = about.servers.iter().map(|(name, at)| Server { name, at: at.to_string() });
        About {
            listen: about.listen.to_string(),
            listen_tcp: about.listen_tcp.map(|address| address.to_string()),
            listen_tls: about.listen_tls.as_ref().map(|(address, _)| address.to_string()),
            tls_fingerprint: about.listen_tls.as_ref().map(|(_, sum)| &**sum),
            web_server: about.web_server.as_ref().map(ToString::to_string),
            public: secret_text(&about.public),
            servers: servers.collect(),
            tun: about.tun.as_ref().map(|(name, inner)| Interface {
                name,
                addresses: [inner.four.to_string(), inner.six.to_string()],
            }),
            clients: &about.clients,
            schedule: &about.schedule,
            every: &about.every,
            redraw: about.redraw.as_deref(),
            jitter: about.jitter.as_deref(),
            decoys: about.decoys.as_deref(),
            seed: about.seed,
        }
    }
}

fn stats(snapshot: &Snapshot) -> Stats<'_> {
    let client = |client: &'_ ClientSnapshot| {
        let paths = client.paths.iter().map(|path| Path {
            from: path.from.map(|from| from.to_string()),
            up: path.up,
            stream: path
                .stream
                .map(|stream| PathStream { queued_bytes: stream.queued, aged: stream.aged }),
            in_packets: path.inward.datagrams,
            in_bytes: path.inward.bytes,
            out_packets: path.outward.datagrams,
            out_bytes: path.outward.bytes,
        });
        paths.collect::<Vec<_>>()
    };
    let clients = snapshot.clients.iter().map(|one| Client {
        name: &one.name,
        up: one.up,
        lost: one.lost,
        patience_ms: one.patience.as_secs_f64() * 1000.0,
        decoys: Decoys::from(one.decoys),
        paths: client(one),
    });
    let Snapshot { flows, handshakes, strangers, missed, unsent, hurried, refused, .. } = *snapshot;
    let clients = clients.collect();
    let streams = snapshot.streams.map(|streams| Streams {
        bound: streams.bound,
        strangers: streams.strangers,
        handed: streams.handed,
        aged: streams.aged,
    });
    Stats { flows, handshakes, strangers, missed, unsent, hurried, refused, streams, clients }
}

impl Screen for Json {
    fn listening(&mut self, about: &ActiveSettings) {
        self.report(Time::ZERO, Record::Listening(About::from(about)));
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.report(now, Record::Reloaded(About::from(about)));
    }

    fn news(&mut self, now: Time, news: &News) {
        let record = match news {
            News::Began { client, from, server } => {
                Record::Began { client, from: from.to_string(), server }
            }
            News::NoServer { client, server } => Record::NoServer { client, server },
            News::Ended { client } => Record::Ended { client },
            News::PathUp { client, path, from } => {
                let from = Some(from.to_string());
                Record::Path { client, path: path.0, state: "up", from }
            }
            News::PathDown { client, path } => {
                Record::Path { client, path: path.0, state: "down", from: None }
            }
            News::ServerRefused { server } => Record::ServerRefused { server: server.to_string() },
        };
        self.report(now, record);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.report(now, Record::Stats(stats(snapshot)));
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        let text = self.line(now, Record::Summary(stats(snapshot)));
        self.out.last(&text, |lines| self.line(now, Record::Lost { lines }));
    }

    fn warn(&mut self, text: &str) {
        self.report(self.now, Record::Warning { text });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use anabranch_multipath::PathId;
    use anabranch_splitter::far_end::Inner;

    use super::super::model::tests::snapshot;
    use super::*;
    use crate::screen::earlier::assert_readable;
    use crate::screen::lines::tests::printed;

    fn listening() -> ActiveSettings {
        let inner = Inner { four: Ipv4Addr::LOCALHOST, six: Ipv6Addr::LOCALHOST };
        let at = "192.0.2.1:4500".parse().unwrap();
        ActiveSettings {
            listen: at,
            listen_tcp: None,
            listen_tls: None,
            web_server: None,
            public: [0; 32],
            servers: vec![("wg".to_owned(), at)],
            tun: Some(("anab0".to_owned(), inner)),
            clients: vec!["home".to_owned()],
            schedule: "uniform".to_owned(),
            every: "1s".to_owned(),
            redraw: None,
            jitter: None,
            decoys: None,
            seed: 7,
        }
    }

    #[test]
    fn programs_that_read_earlier_lines_can_read_todays() {
        let (client, path) = ("home".to_owned(), PathId(1));
        let from = "192.0.2.7:5000".parse().unwrap();
        let server = "wg".to_owned();
        let news = [
            News::Began { client: client.clone(), from, server: server.clone() },
            News::NoServer { client: client.clone(), server },
            News::PathUp { client: client.clone(), path, from },
            News::PathDown { client: client.clone(), path },
            News::ServerRefused { server: from },
            News::Ended { client },
        ];
        let mut counters = snapshot([1000, 0]);
        counters.clients.reverse();
        let text = printed(|out| {
            let mut screen = Json { out, name: None, now: Time::ZERO };
            screen.listening(&listening());
            screen.reloaded(Time::ZERO, &listening());
            news.iter().for_each(|news| screen.news(Time::ZERO, news));
            screen.warn("the clock went back");
            screen.snapshot(Time::ZERO, &counters);
            screen.report(Time::ZERO, Record::Lost { lines: 3 });
            screen.finish(Time::ZERO, &counters);
        });
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let earlier = include_str!("../../../../../tests/formats/0e0b824b/events/merge.jsonl");
        assert_readable(earlier, &lines);
    }
}
