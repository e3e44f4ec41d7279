//! Name resolution for exits: a stub resolver on its own thread, so that look-ups do not block a
//! relay's event loop.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::SystemTime;

use anabranch_onion::StreamKey;
use anabranch_onion::wire::message::Answer;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};
use hickory_resolver::{Hosts, TokioResolver};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Path of the system's hosts file.
const HOSTS: &str = "/etc/hosts";
/// Maximum number of name look-ups in progress at the same time.
const WAITING: usize = 1024;

/// A name to resolve for a stream.
pub(super) struct Question {
    /// Stream whose client requested the look-up. For an exit stream, the name is its
    /// destination's.
    pub(super) stream: StreamKey,
    /// Name to resolve. For a reverse look-up, it is under `in-addr.arpa` or `ip6.arpa`.
    pub(super) name: String,
}

/// The answers to a name look-up.
#[derive(Debug)]
pub(super) struct LookupResult {
    /// Stream for which the name was resolved.
    pub(super) stream: StreamKey,
    /// The answers; at least one.
    pub(super) answers: Vec<Answer>,
}

/// Handle of the resolver's thread, which ends when the handle is dropped.
pub(super) struct Resolver {
    questions: UnboundedSender<(Question, OwnedSemaphorePermit)>,
    places: Arc<Semaphore>,
    found: Receiver<LookupResult>,
    waker: UnixStream,
    trouble: Option<String>,
}

impl Resolver {
    /// Starts a resolver with the system's name servers (`/etc/resolv.conf`) and hosts file. If no
    /// servers are configured, the resolver uses only the hosts file, and
    /// [`trouble`](Resolver::trouble) returns the reason.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn start() -> io::Result<Resolver> {
        match hickory_resolver::system_conf::read_system_conf() {
            Ok((config, options)) => Resolver::with(config, options, HOSTS.into()),
            Err(error) => {
                let (config, options) = (ResolverConfig::default(), ResolverOpts::default());
                let none = Resolver::with(config, options, HOSTS.into())?;
                let trouble = Some(format!(
                    "host names cannot be resolved: cannot read /etc/resolv.conf: {error}"
                ));
                Ok(Resolver { trouble, ..none })
            }
        }
    }

    fn with(
        config: ResolverConfig,
        mut options: ResolverOpts,
        hosts: PathBuf,
    ) -> io::Result<Resolver> {
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        // Random case hardens queries against off-path spoofing; C tor has the same default.
        options.case_randomization = true;
        let (questions, asked) = unbounded_channel();
        let (answers, found) = channel();
        let (waker, signal) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        signal.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
        let resolver = builder.build().map_err(io::Error::other)?;
        let hosts = HostsFile { path: hosts, state: None };
        let resolving = NameThread { resolver, hosts, answers, signal: Arc::new(signal) };
        let work = move || runtime.block_on(resolving.work(asked));
        thread::Builder::new().name("names".into()).spawn(work)?;
        let places = Arc::new(Semaphore::new(WAITING));
        Ok(Resolver { questions, places, found, waker, trouble: None })
    }

    /// Returns the reason why only names in the hosts file can be resolved; `None` if other names
    /// can be resolved, too.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns a socket that becomes readable when there are answers.
    pub(super) fn waker(&self) -> &UnixStream {
        &self.waker
    }

    /// Starts to resolve a name. Returns `question` if too many look-ups are in progress.
    pub(super) fn ask(&self, question: Question) -> Result<(), Question> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return Err(question) };
        self.questions.send((question, place)).map_err(|refused| refused.0.0)
    }

    /// Returns the answers that have arrived since the last call.
    pub(super) fn take(&mut self) -> Vec<LookupResult> {
        let mut wake_ups = [0; 64];
        while io::Read::read(&mut self.waker, &mut wake_ups)
            .is_ok_and(|count| count == wake_ups.len())
        {}
        self.found.try_iter().collect()
    }
}

/// State of the resolver's thread.
#[derive(Clone)]
struct NameThread {
    resolver: TokioResolver,
    hosts: HostsFile,
    answers: Sender<LookupResult>,
    signal: Arc<UnixStream>,
}

/// The hosts file, which may change while the relay runs.
#[derive(Clone)]
struct HostsFile {
    path: PathBuf,
    /// Modification time and length of the hosts file when it was last read; `None` if there was
    /// no file.
    state: Option<(SystemTime, u64)>,
}

impl HostsFile {
    fn state(path: &Path) -> Option<(SystemTime, u64)> {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Returns the parsed hosts file if it has changed since the last call; `None` otherwise.
    fn changed(&mut self) -> Option<Hosts> {
        let state = HostsFile::state(&self.path);
        if state == self.state {
            return None;
        }
        self.state = state;
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(fs::File::open(&self.path).ok()?).ok()?;
        Some(hosts)
    }
}

impl NameThread {
    async fn work(mut self, mut asked: UnboundedReceiver<(Question, OwnedSemaphorePermit)>) {
        while let Some((question, place)) = asked.recv().await {
            if let Some(hosts) = self.hosts.changed() {
                self.resolver.set_hosts(Arc::new(hosts));
            }
            let resolving = self.clone();
            tokio::spawn(async move {
                resolving.answer(question).await;
                drop(place);
            });
        }
    }

    async fn answer(&self, question: Question) {
        let answers = self.look_up(&question.name).await;
        let answers = answers.unwrap_or_else(|error| vec![without_answer(&error)]);
        let found = LookupResult { stream: question.stream, answers };
        if self.answers.send(found).is_ok() {
            // If the pipe is full, a wake-up is pending already.
            let _ = io::Write::write(&mut &*self.signal, &[1]);
        }
    }

    async fn look_up(&self, text: &str) -> Result<Vec<Answer>, NetError> {
        let mut name = Name::from_utf8(text)?;
        // Clients send complete names, so this machine's search domains must not be appended.
        name.set_fqdn(true);
        let found: Vec<Answer> = if is_of_address(&name) {
            let lookup = self.resolver.reverse_lookup(name).await?;
            lookup.answers().iter().filter_map(|record| host(&record.data)).collect()
        } else {
            let lookup = self.resolver.lookup_ip(name).await?;
            let mut addresses: Vec<IpAddr> = lookup.iter().collect();
            addresses.sort_by_key(IpAddr::is_ipv6);
            addresses.into_iter().map(Answer::Address).collect()
        };
        Ok(if found.is_empty() { vec![Answer::Never] } else { found })
    }
}

/// Returns whether `name` is the name for a reverse look-up of a complete address (RFC 1035,
/// section 3.5; RFC 3596, section 2.5).
fn is_of_address(name: &Name) -> bool {
    name.parse_arpa_name().is_ok_and(|network| network.prefix_len() == network.max_prefix_len())
}

fn host(data: &RData) -> Option<Answer> {
    let RData::PTR(name) = data else { return None };
    Some(Answer::Name(name.0.to_utf8().trim_end_matches('.').to_owned()))
}

/// Converts the failure `error` of a look-up into the answer for the client. The answer is a
/// permanent error if a name server denied the name or its records, or if the name is malformed.
/// Otherwise it is a temporary error.
fn without_answer(error: &NetError) -> Answer {
    let for_good = error.is_nx_domain() || error.is_no_records_found();
    let no_name = matches!(error, NetError::Proto(_));
    if for_good || no_name { Answer::Never } else { Answer::Later }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::rdata::{A, AAAA, PTR};
    use hickory_resolver::proto::rr::{Record, RecordType};

    use super::*;

    /// Timeout of a resolver for an answer that arrives.
    const LONG: Duration = Duration::from_secs(30);
    /// Timeout of a resolver for an answer that does not arrive.
    const SHORT: Duration = Duration::from_millis(300);

    /// Returns the answers or the error of the tests' name server.
    fn records_of(name: &str, kind: RecordType) -> Result<Vec<RData>, ResponseCode> {
        match (name, kind) {
            ("both.example.", RecordType::A) => Ok(vec![RData::A(A::new(192, 0, 2, 1))]),
            ("both.example." | "six.example.", RecordType::AAAA) => {
                Ok(vec![RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))])
            }
            ("1.2.0.192.in-addr.arpa.", RecordType::PTR) => {
                Ok(vec![RData::PTR(PTR("both.example.".parse().unwrap()))])
            }
            ("broken.example.", _) => Err(ResponseCode::ServFail),
            ("six.example." | "empty.example.", _) => Ok(Vec::new()),
            _ => Err(ResponseCode::NXDomain),
        }
    }

    fn response(question: &[u8]) -> Option<Vec<u8>> {
        let mut message = Message::from_vec(question).ok()?;
        let query = message.queries.first()?.clone();
        let name = query.name().to_lowercase().to_string();
        let (code, answers) = match records_of(&name, query.query_type()) {
            Ok(answers) => (ResponseCode::NoError, answers),
            Err(code) => (code, Vec::new()),
        };
        message.metadata.response_code = code;
        for data in answers {
            message.add_answer(Record::from_rdata(query.name().clone(), 17, data));
        }
        (name != "silent.example.").then(|| message.into_response().to_vec().ok()).flatten()
    }

    /// Returns a resolver with the timeout `patience`. Its name server is a thread of this test.
    fn resolver(patience: Duration) -> Resolver {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut connection = ConnectionConfig::udp();
        connection.port = socket.local_addr().unwrap().port();
        let server = NameServerConfig::new([127, 0, 0, 1].into(), true, vec![connection]);
        thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((length, peer)) = socket.recv_from(&mut bytes) {
                if let Some(reply) = response(&bytes[..length]) {
                    socket.send_to(&reply, peer).unwrap();
                }
            }
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut options = ResolverOpts::default();
        (options.timeout, options.attempts) = (patience, 1);
        Resolver::with(config, options, HOSTS.into()).unwrap()
    }

    fn answers(resolver: &mut Resolver, name: &str) -> Vec<Answer> {
        let question = Question { stream: StreamKey(1), name: name.into() };
        assert!(resolver.ask(question).is_ok());
        loop {
            std::thread::sleep(Duration::from_millis(2));
            if let Some(found) = resolver.take().pop() {
                return found.answers;
            }
        }
    }

    fn address(text: &str) -> Answer {
        Answer::Address(text.parse().unwrap())
    }

    #[test]
    fn names_have_addresses_of_both_kinds_and_addresses_have_names() {
        let mut resolver = resolver(LONG);
        let both = [address("192.0.2.1"), address("2001:db8::1")];
        assert_eq!(answers(&mut resolver, "both.example"), both);
        assert_eq!(answers(&mut resolver, "six.example"), [address("2001:db8::1")]);
        let name = [Answer::Name("both.example".into())];
        assert_eq!(answers(&mut resolver, "1.2.0.192.in-addr.arpa"), name);
    }

    #[test]
    fn what_a_server_denies_is_denied_for_good_and_what_it_does_not_know_is_not() {
        let mut answered = resolver(LONG);
        let never = ["no.such.example", "empty.example", "2.2.0.192.in-addr.arpa", "a..b"];
        for name in never {
            assert_eq!(answers(&mut answered, name), [Answer::Never], "{name}");
        }
        assert_eq!(answers(&mut answered, "broken.example"), [Answer::Later]);
        let mut unanswered = resolver(SHORT);
        assert_eq!(answers(&mut unanswered, "silent.example"), [Answer::Later]);
    }

    #[test]
    fn the_table_of_hosts_counts_without_any_server() {
        let (config, options) = (ResolverConfig::default(), ResolverOpts::default());
        let mut resolver = Resolver::with(config, options, HOSTS.into()).unwrap();
        let found = answers(&mut resolver, "localhost");
        let is_local = |answer: &Answer| matches!(answer, Answer::Address(a) if a.is_loopback());
        assert!(!found.is_empty() && found.iter().all(is_local), "{found:?}");
        assert_eq!(answers(&mut resolver, "both.example"), [Answer::Later]);
    }

    #[test]
    fn a_table_of_hosts_that_changes_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let (config, options) = (ResolverConfig::default(), ResolverOpts::default());
        let mut resolver = Resolver::with(config, options, path.clone()).unwrap();
        assert_eq!(answers(&mut resolver, "new.example"), [Answer::Later]);
        fs::write(&path, "192.0.2.9 new.example\n").unwrap();
        assert_eq!(answers(&mut resolver, "new.example"), [address("192.0.2.9")]);
        fs::write(&path, "2001:db8::99 new.example\n").unwrap();
        assert_eq!(answers(&mut resolver, "new.example"), [address("2001:db8::99")]);
    }

    #[test]
    fn no_more_questions_are_under_way_than_may_be() {
        let resolver = resolver(LONG);
        let ask = |n| {
            let name = "silent.example".into();
            resolver.ask(Question { stream: StreamKey(n), name })
        };
        assert!((0..WAITING as u64).all(|n| ask(n).is_ok()));
        assert!(ask(9999).is_err());
    }

    #[test]
    fn parts_of_addresses_are_names_like_others() {
        let is = |text: &str| is_of_address(&text.parse().unwrap());
        assert!(is("1.2.0.192.in-addr.arpa."));
        assert!(is(&("1.".to_owned() + &"0.".repeat(31) + "ip6.arpa.")));
        assert!(!is("1.2.3.in-addr.arpa.") && !is("1.ip6.arpa.") && !is("example."));
    }
}
