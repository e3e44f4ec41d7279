//! Shapes: recorded traffic patterns that connections imitate. A shape is a list of steps, each
//! with direction, bytes and the pause before it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

/// Maximum bytes of one step of a traffic pattern, so that a socket's send buffer accepts it at
/// once.
const STEP: usize = 16 << 10;
/// Minimum bytes that the client sends first in a traffic pattern. They contain a handshake or a
/// token, and the pattern's index. The server's answer has the same minimum.
const FIRST: usize = 64;
/// Maximum pause in a traffic pattern before an end sends.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of steps in a shape (recorded traffic pattern). In each step one end sends.
const STEPS: usize = 4_096;
/// Maximum number of shapes (recorded traffic patterns) in a collection.
const SHAPES: usize = 1_024;
/// Maximum number of characters in a shape's name.
const NAME: usize = 64;
/// Minimum bytes of the largest step of each direction in a traffic pattern, so that a chunk of
/// the link's stream fits.
const PIECE: usize = 600;
/// Maximum gap between two packets of one direction that are recorded as one step of a traffic
/// pattern.
const TOGETHER: Duration = Duration::from_millis(1);
/// The built-in shapes (traffic patterns of real connections), recorded by `bench/shapes.py`.
const RECORDED: &str = include_str!("recorded.txt");

/// One step of a traffic pattern: bytes that one end sends together, and the pause before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whether the client sends these bytes; otherwise the server does.
    pub up: bool,
    /// Number of bytes in the step: 1 to 16,384.
    pub bytes: usize,
    /// Pause from the end of the previous step to the beginning of this step: whole milliseconds,
    /// up to 10 s.
    pub pause: Duration,
}

/// A shape: the traffic pattern of a whole connection, as a list of steps (direction, bytes,
/// pause).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    name: String,
    steps: Arc<[Step]>,
}

/// A collection of shapes (recorded traffic patterns). Both ends must have the same collection,
/// because the client sends only the index of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    shapes: Arc<[Shape]>,
    /// For each [`LoadHint`] (expected load), the indices of the shapes (traffic patterns) with
    /// suitable rates. The indices are computed once, because computing them for each connection
    /// would be slow.
    best: Arc<[Vec<usize>; 3]>,
    longest_pause: Duration,
    digest: [u8; 32],
}

/// Error: a text or a recording is not a valid shape (traffic pattern), or not a valid collection
/// of shapes. It contains the reason in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeFault(String);

impl fmt::Display for ShapeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ShapeFault {}

/// A packet of a recorded connection: whether the client sent it, its bytes of payload, and the
/// time at which it passed.
pub type RecordedPacket = (bool, usize, Duration);

impl Shape {
    /// Creates a shape (traffic pattern) with these steps.
    ///
    /// # Errors
    /// The name is not 1 to 64 letters, digits, `-`, `_` and `.`, or a step is out of bounds. The
    /// client has to begin with at least 64 bytes. The server has to answer with at least 64 bytes
    /// before the client continues, and has to send the last step.
    pub fn new(name: &str, steps: Vec<Step>) -> Result<Shape, ShapeFault> {
        let fault =
            |why: &str| Err(ShapeFault(format!("shape '{name}' (a recorded connection): {why}")));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=NAME).contains(&name.len()) || !name.bytes().all(plain) {
            return fault("the name of a shape has 1 to 64 letters, digits, '-', '_' and '.'");
        }
        if steps.len() > STEPS {
            return fault("there are more than 4,096 steps ('up' and 'down' lines): remove some");
        }
        let fits = |step: &Step| (1..=STEP).contains(&step.bytes) && step.pause <= PAUSE;
        if !steps.iter().all(fits) {
            return fault(
                "a step ('up' or 'down' line) needs 1 to 16,384 bytes and a pause of 10,000 ms at \
                 most",
            );
        }
        if !steps.first().is_some_and(|step| step.up && step.bytes >= FIRST) {
            return fault(
                "the first step must go from client to server ('up'), with at least 64 bytes",
            );
        }
        if answer(&steps[1..]) < FIRST {
            return fault(
                "after the first step, the server must send at least 64 bytes ('down') before \
                 the client continues",
            );
        }
        if steps.last().is_some_and(|step| step.up) {
            return fault("the last step must go from server to client ('down')");
        }
        Ok(Shape { name: name.to_owned(), steps: steps.into() })
    }

    /// Creates the shape of a recorded connection. Packets of one direction within 1 ms of each
    /// other form a step, and pauses of more than 10 s are shortened to 10 s. The shape begins
    /// with the first step that [`Shape::new`] accepts as a client's first step; earlier steps are
    /// dropped. Steps of the client at the end are dropped, too.
    ///
    /// # Errors
    /// No steps are left, or the errors of [`Shape::new`].
    pub fn of_record(name: &str, packets: &[RecordedPacket]) -> Result<Shape, ShapeFault> {
        let mut steps = together(packets);
        let begins = |at: &usize| {
            steps[*at].up && steps[*at].bytes >= FIRST && answer(&steps[*at + 1..]) >= FIRST
        };
        let start = (0..steps.len()).find(begins).unwrap_or(steps.len());
        steps.drain(..start);
        while steps.last().is_some_and(|step| step.up) {
            steps.pop();
        }
        if let Some(first) = steps.first_mut() {
            first.pause = Duration::ZERO;
        }
        // A shape that was cut short must not end with a step of the client either.
        while steps.len() > STEPS || steps.last().is_some_and(|step| step.up) {
            steps.truncate(STEPS.min(steps.len() - 1));
        }
        Shape::new(name, steps)
    }

    /// Returns the name of the shape.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the steps of the shape (direction, bytes and pause), in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the steps of the shape as a shared reference, so that a connection need not copy
    /// them.
    pub(super) fn shared_steps(&self) -> Arc<[Step]> {
        Arc::clone(&self.steps)
    }

    /// Returns the maximum time for which either end sends nothing in this shape (traffic
    /// pattern).
    fn longest_pause(&self) -> Duration {
        let longest = |up: bool| {
            let (mut most, mut since) = (Duration::ZERO, Duration::ZERO);
            for step in self.steps() {
                since += step.pause;
                if step.up == up {
                    (most, since) = (most.max(since), Duration::ZERO);
                }
            }
            most.max(since)
        };
        longest(true).max(longest(false))
    }

    /// Returns the shape's average rate in bytes per second. `way` selects the client's bytes
    /// (`Some(true)`), the server's (`Some(false)`) or both (`None`). The duration is the sum of
    /// the pauses plus 100 ms; network delay is not included.
    fn rate(&self, way: Option<bool>) -> u64 {
        let counts = |step: &&Step| way.is_none_or(|up| step.up == up);
        let bytes: usize = self.steps.iter().filter(counts).map(|step| step.bytes).sum();
        let pauses: Duration = self.steps.iter().map(|step| step.pause).sum();
        bytes as u64 * 1_000 / (pauses.as_millis() as u64 + 100)
    }
}

/// The expected load of a new connection, for the choice of its traffic pattern. The variants have
/// the order of [`Shapes::best`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadHint {
    /// Little data is expected.
    Quiet,
    /// Much data from the client is expected.
    Up,
    /// Much data from the server is expected.
    Down,
}

/// Returns the number of bytes that the server sends in `steps` before the client first sends.
fn answer(steps: &[Step]) -> usize {
    steps.iter().take_while(|step| !step.up).map(|step| step.bytes).sum()
}

/// Groups consecutive packets of one direction, within [`TOGETHER`], into steps of at most
/// [`STEP`] bytes.
fn together(packets: &[RecordedPacket]) -> Vec<Step> {
    let (mut steps, mut before): (Vec<Step>, Option<RecordedPacket>) = (Vec::new(), None);
    for &(up, bytes, at) in packets.iter().filter(|(_, bytes, _)| *bytes > 0) {
        let since = before.map_or(Duration::ZERO, |(_, _, before)| at.saturating_sub(before));
        let joins = before.is_some_and(|(same, ..)| same == up) && since < TOGETHER;
        let (mut left, mut pause) = (bytes, Duration::from_millis(millis(since)).min(PAUSE));
        if joins && let Some(last) = steps.last_mut() {
            let more = left.min(STEP - last.bytes);
            (last.bytes, left, pause) = (last.bytes + more, left - more, Duration::ZERO);
        }
        while left > 0 {
            steps.push(Step { up, bytes: left.min(STEP), pause });
            (left, pause) = (left - left.min(STEP), Duration::ZERO);
        }
        before = Some((up, bytes, at));
    }
    steps
}

fn millis(time: Duration) -> u64 {
    u64::try_from((time + Duration::from_micros(500)).as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "shape {}", self.name)?;
        for step in self.steps() {
            let who = if step.up { "up" } else { "down" };
            writeln!(f, "{who} {} {}", step.bytes, step.pause.as_millis())?;
        }
        Ok(())
    }
}

impl fmt::Display for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shapes.iter().try_for_each(|shape| shape.fmt(f))
    }
}

impl Default for Shapes {
    fn default() -> Shapes {
        Shapes::recorded()
    }
}

impl Shapes {
    /// Creates a collection of the given shapes (traffic patterns).
    ///
    /// # Errors
    /// There are no shapes or more than 1,024, two have the same name, or one direction has no
    /// step with room for a chunk of the stream (600 bytes).
    pub fn new(shapes: Vec<Shape>) -> Result<Shapes, ShapeFault> {
        let fault = |why: String| Err(ShapeFault(why));
        if !(1..=SHAPES).contains(&shapes.len()) {
            return fault(format!(
                "the file has {} shapes (recorded connections), but must have 1 to 1,024",
                shapes.len()
            ));
        }
        for (place, shape) in shapes.iter().enumerate() {
            if shapes[..place].iter().any(|other| other.name == shape.name) {
                return fault(format!(
                    "two shapes (recorded connections) have the name '{}': rename one of them",
                    shape.name
                ));
            }
        }
        for up in [true, false] {
            let all = shapes.iter().flat_map(Shape::steps);
            if !all.filter(|step| step.up == up).any(|step| step.bytes >= PIECE) {
                let way = if up { "up" } else { "down" };
                return fault(format!(
                    "no line '{way}' has 600 bytes or more in any shape (recorded connection), but \
                     data in this direction needs one"
                ));
            }
        }
        let text: String = shapes.iter().map(Shape::to_string).collect();
        let digest = digest(&SHA256, text.as_bytes()).as_ref().try_into();
        let digest: [u8; 32] = digest.expect("a SHA-256 hash has 32 bytes");
        Ok(Shapes {
            best: Arc::new(
                [LoadHint::Quiet, LoadHint::Up, LoadHint::Down].map(|hint| best(&shapes, hint)),
            ),
            longest_pause: shapes.iter().map(Shape::longest_pause).max().unwrap_or_default(),
            digest,
            shapes: shapes.into(),
        })
    }

    /// Parses a collection of shapes (traffic patterns): lines `shape NAME`, each followed by its
    /// steps as `up BYTES MILLISECONDS` or `down BYTES MILLISECONDS`. Empty lines and lines that
    /// begin with `#` are ignored.
    ///
    /// # Errors
    /// A line has another form (the error names the line), or the errors of [`Shape::new`] and
    /// [`Shapes::new`].
    pub fn parse(text: &str) -> Result<Shapes, ShapeFault> {
        let (mut shapes, mut open): (Vec<Shape>, Option<(&str, Vec<Step>)>) = (Vec::new(), None);
        for (number, line) in text.lines().enumerate() {
            let fault = |why: &str| ShapeFault(format!("line {}: {why}", number + 1));
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match (&words[..], &mut open) {
                ([], _) => {}
                ([first, ..], _) if first.starts_with('#') => {}
                (["shape", name], _) => {
                    if let Some((name, steps)) = open.replace((*name, Vec::new())) {
                        shapes.push(Shape::new(name, steps)?);
                    }
                }
                ([way @ ("up" | "down"), bytes, pause], Some((_, steps))) => {
                    let step = step(*way == "up", bytes, pause);
                    steps.push(step.ok_or_else(|| {
                        fault("BYTES and MS (milliseconds) must be whole numbers")
                    })?);
                }
                ([_, _, _], None) => {
                    return Err(fault("a line 'shape NAME' is missing before this line"));
                }
                _ => {
                    return Err(fault(
                        "the line is not 'shape NAME', 'up BYTES MS' or 'down BYTES MS'",
                    ));
                }
            }
        }
        if let Some((name, steps)) = open {
            shapes.push(Shape::new(name, steps)?);
        }
        Shapes::new(shapes)
    }

    /// Returns the built-in shapes (traffic patterns of real connections).
    ///
    /// # Panics
    /// The built-in text of the shapes cannot be parsed. A test excludes this.
    #[must_use]
    pub fn recorded() -> Shapes {
        Shapes::parse(RECORDED).expect("a test parses the built-in shapes")
    }

    /// Returns all shapes (traffic patterns) of the collection. A shape's position is the index
    /// that the client sends.
    #[must_use]
    pub fn all(&self) -> &[Shape] {
        &self.shapes
    }

    /// Returns the hash that identifies this collection of shapes.
    pub(crate) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the maximum time for which an end sends nothing in any of the shapes (traffic
    /// patterns).
    pub(crate) fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// Chooses a shape (recorded traffic pattern) by the random number `draw`, among the third of
    /// all shapes that suits the expected load `hint` best. Returns the shape's index.
    pub(crate) fn choose(&self, hint: LoadHint, draw: u16) -> usize {
        let best = &self.best[hint as usize];
        best[usize::from(draw) % best.len()]
    }
}

/// Returns the indices of the third of all shapes (recorded traffic patterns) that suits the load
/// `hint` best, best first.
fn best(shapes: &[Shape], hint: LoadHint) -> Vec<usize> {
    let rate = |shape: &Shape| match hint {
        LoadHint::Quiet => shape.rate(None),
        LoadHint::Up => u64::MAX - shape.rate(Some(true)),
        LoadHint::Down => u64::MAX - shape.rate(Some(false)),
    };
    let mut order: Vec<(u64, usize)> = shapes.iter().map(rate).zip(0..).collect();
    order.sort_unstable();
    order.truncate(shapes.len().div_ceil(3));
    order.into_iter().map(|(_, number)| number).collect()
}

fn step(up: bool, bytes: &str, pause: &str) -> Option<Step> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let whole = digits(bytes) && digits(pause) && bytes.len() <= 6 && pause.len() <= 6;
    let pause = Duration::from_millis(pause.parse().ok()?);
    whole.then_some(Step { up, bytes: bytes.parse().ok()?, pause })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "shape a\nup 700 0\ndown 9000 2\nup 1 3000\ndown 2 250\n";

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_written_is_read_and_comments_say_nothing() {
        let shapes = Shapes::parse(&format!("# two\n\n{SMALL}shape b-2\nup 64 0\ndown 64 1\n"));
        let shapes = shapes.unwrap();
        assert_eq!(shapes.all().len(), 2);
        assert_eq!(Shapes::parse(&shapes.to_string()), Ok(shapes.clone()));
        assert_eq!(shapes.longest_pause(), ms(3_250));
        let recorded = Shapes::recorded();
        assert_eq!(recorded.all().len(), 8, "as docs/guide/camouflage.md says");
        assert_ne!(recorded.digest(), shapes.digest());
    }

    #[test]
    fn a_file_of_an_earlier_program_is_read() {
        let text = include_str!("../../../../../tests/formats/0e0b824b/shapes.txt");
        let shapes = Shapes::parse(text).unwrap();
        assert_eq!(shapes, Shapes::parse(&SMALL.replace("shape a", "shape a-1")).unwrap());
    }

    #[test]
    fn a_connection_is_of_a_shape_that_carries_what_is_wished() {
        let shapes = Shapes::recorded();
        for (hint, names) in [
            (LoadHint::Quiet, ["ssh-typed", "https-reading", "https-stream"]),
            (LoadHint::Up, ["https-post", "ssh-store", "ssh-fetch"]),
            (LoadHint::Down, ["https-file", "ssh-fetch", "https-page"]),
        ] {
            let drawn = (0..3).map(|draw| shapes.all()[shapes.choose(hint, draw)].name());
            assert_eq!(drawn.collect::<Vec<_>>(), names, "{hint:?}");
        }
        let one = Shapes::parse(SMALL).unwrap();
        assert_eq!(one.choose(LoadHint::Up, 7), 0);
    }

    #[test]
    fn every_mistake_is_told_in_one_line() {
        let cases = [
            ("", "0 shapes"),
            ("up 700 0", "line 1: a line 'shape NAME' is missing"),
            ("shape", "line 1: the line is not"),
            ("shape a\nleft 1 2", "line 2: the line is not"),
            ("shape a\nup 1", "line 2: the line is not"),
            ("shape a\nup x 2", "line 2: BYTES and MS"),
            ("shape a\nup +7 2", "line 2: BYTES and MS"),
            ("shape a\nup 99999999999999999999 2", "line 2: BYTES and MS"),
            ("shape a", "'a' (a recorded connection): the first step must go"),
            ("shape a/b\nup 700 0\ndown 900 1", "letters"),
            ("shape a\nup 0 0\ndown 900 1", "1 to 16,384"),
            ("shape a\nup 16385 0\ndown 900 1", "1 to 16,384"),
            ("shape a\nup 700 0\ndown 900 10001", "10,000 ms"),
            ("shape a\nup 63 0\ndown 900 1", "the first step must go"),
            ("shape a\ndown 900 1\nup 700 0", "the first step must go"),
            ("shape a\nup 700 0\ndown 63 1\nup 9 1\ndown 900 1", "after the first step"),
            ("shape a\nup 700 0\ndown 900 1\nup 9 9", "the last step must go"),
            ("shape a\nup 700 0\ndown 900 1\nshape a\nup 700 0\ndown 900 1", "two shapes"),
            ("shape a\nup 64 0\ndown 900 1", "no line 'up' has 600"),
            ("shape a\nup 700 0\ndown 64 1", "no line 'down' has 600"),
        ];
        for (text, why) in cases {
            let fault = Shapes::parse(text).unwrap_err().to_string();
            assert!(fault.contains(why) && !fault.contains('\n'), "{text:?}: {fault}");
        }
    }

    #[test]
    fn a_record_is_cut_at_its_ends_and_packets_are_put_together() {
        let at = Duration::from_micros;
        let packets = [
            (false, 40, at(0)),
            (true, 41, at(900)),
            (true, 1_448, at(50_000)),
            (true, 52, at(50_300)),
            (false, 0, at(50_400)),
            (false, 40_000, at(61_600)),
            (false, 100, at(64_000)),
            (true, 30, at(30_064_000)),
            (false, 20, at(30_065_499)),
            (true, 9, at(30_070_000)),
        ];
        let shape = Shape::of_record("one", &packets).unwrap();
        let lines = "shape one\nup 1500 0\ndown 16384 11\ndown 16384 0\ndown 7232 0\n\
            down 100 2\nup 30 10000\ndown 20 1\n";
        assert_eq!(shape.to_string(), lines);
        let none = Shape::of_record("none", &packets[..2]).unwrap_err().to_string();
        assert!(none.contains("the first step must go"), "{none}");
        let long: Vec<RecordedPacket> = (0..9_000).map(|n| (n % 2 == 0, 700, ms(n * 5))).collect();
        assert_eq!(Shape::of_record("long", &long).unwrap().steps().len(), STEPS);
    }
}
