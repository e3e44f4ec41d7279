//! Execution of one measurement of the splitting overhead.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use super::super::runner::Unit as _;
use super::super::stage::Stage;
use super::super::{Missing, Probe, Programs};
use super::session::Session;
use super::{Limit, Measured, Settings, System, Unit, mosh, quic, wireguard};

/// Scheduling priority (niceness) of all measured programs. They have priority over other work of
/// the machine, but not over the emulator's thread, which forwards the packets.
const NICE: i32 = -5;

/// Executor of measurements. Each measurement has its own emulated network, which is removed
/// afterwards.
#[derive(Debug)]
pub struct Bench {
    programs: Programs,
    splitter: PathBuf,
    limit: Limit,
    seed: u64,
    words: Vec<String>,
}

impl Bench {
    /// Creates an executor of measurements for `settings`. `splitter` is the `anabranch` under
    /// test, and `programs` an optional directory with third-party programs.
    ///
    /// # Errors
    /// Programs that are needed were not found. The error names all of them.
    pub fn new(
        settings: &Settings,
        splitter: PathBuf,
        programs: Option<&Path>,
    ) -> Result<Bench, Missing> {
        let mut found = Programs::new(programs);
        let mut wanted: Vec<_> = settings.systems.iter().flat_map(|&s| needs(s)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        found.find(&wanted)?;
        let Settings { limit, seed, splitter: words, .. } = settings.clone();
        Ok(Bench { programs: found, splitter, limit, seed, words })
    }

    /// Returns the third-party programs that were found.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Makes the measurement `unit`. If `stop` is set, the measurement ends soon, and its result
    /// is useless.
    ///
    /// # Errors
    /// A step of the set-up fails. An interrupted transfer is no error.
    pub fn measure(&self, unit: &Unit, stop: &AtomicBool) -> Result<Measured, String> {
        self.run(unit, stop).map_err(|error| error.to_string())
    }

    fn run(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<Measured> {
        // All threads and programs of the measurement inherit this niceness. Without privilege,
        // the niceness does not change.
        let _ = rustix::process::setpriority_process(None, NICE);
        let stage = Stage::build(&unit.net.rtts()[..unit.paths])?;
        let mut session = self.serve(unit.system, &stage)?;
        let (weights, words) = self.schedule(unit);
        let _splitter = stage.split(&self.splitter, session.port(), &words)?;
        let (before, probe) = (stage.traffic(), Probe::start());
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let arrived = session.transfer(&stage, self.limit, stop)?;
        let carried = stage.traffic().since(&before);
        Ok(Measured {
            unit: unit.id(),
            system: unit.system,
            net: unit.net,
            paths: unit.paths,
            every: unit.every,
            repetition: unit.repetition,
            weights,
            started: started.as_secs_f64(),
            seconds: arrived.seconds,
            bytes: arrived.bytes,
            longest_gap: arrived.longest_gap,
            up: carried.up,
            down: carried.down,
            error: arrived.error.unwrap_or_default(),
            machine: probe.finish(),
        })
    }

    fn serve<'a>(&'a self, system: System, stage: &'a Stage) -> io::Result<Box<dyn Session + 'a>> {
        match (system, system.maker()) {
            (_, Some(maker)) => quic::serve(maker, stage, &self.programs, self.limit),
            (System::Mosh, None) => mosh::serve(stage, &self.programs),
            (_, None) => wireguard::serve(stage, &self.programs),
        }
    }

    /// Returns the weights of the paths, and the splitter's options for `unit`. Measurements
    /// without switching are the baseline: each repetition uses a single path, and consecutive
    /// repetitions take the paths in turn. They ignore the user's additional options, so that the
    /// baseline stays the same.
    fn schedule(&self, unit: &Unit) -> (Vec<f64>, Vec<String>) {
        let first = unit.repetition as usize % unit.paths;
        let (weights, schedule, every, rotate) = if unit.every == 0 {
            let only = (0..unit.paths).map(|path| f64::from(u8::from(path == first)));
            (only.collect(), "round-robin".to_owned(), "never".to_owned(), first)
        } else {
            let weights = unit.weights(self.seed);
            let list: Vec<_> = weights.iter().map(|weight| format!("{weight:.6}")).collect();
            (weights, format!("weights:{}", list.join(",")), format!("{}ms", unit.every), 0)
        };
        let paths = (0..unit.paths).map(|path| (path + rotate) % unit.paths);
        let mut words: Vec<String> =
            paths.flat_map(|path| ["--path".to_owned(), format!("p{path}=if:p{path}")]).collect();
        let seed = unit.seed(self.seed).to_string();
        words.extend(
            ["--schedule", &schedule, "--every", &every, "--seed", &seed].map(str::to_owned),
        );
        if unit.every != 0 {
            words.extend(self.words.iter().cloned());
        }
        (weights, words)
    }
}

fn needs(system: System) -> Vec<(&'static str, &'static str)> {
    match (system, system.maker()) {
        (_, Some(maker)) => maker.needs(),
        (System::Mosh, None) => mosh::NEEDS.to_vec(),
        (_, None) => wireguard::NEEDS.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EVERY, Net, plan};
    use super::*;

    #[test]
    fn what_never_switches_takes_the_paths_in_turn() {
        let settings = Settings {
            systems: vec![System::WireGuard],
            nets: vec![Net::Equal],
            paths: vec![3],
            every: EVERY.to_vec(),
            repetitions: 3,
            limit: Limit { seconds: 1.0, bytes: None },
            seed: 1,
            splitter: vec!["--quic-tuples".to_owned(), "3".to_owned()],
        };
        let (programs, splitter) = (Programs::new(None), PathBuf::from("anabranch"));
        let words = settings.splitter.clone();
        let bench = Bench { programs, splitter, limit: settings.limit, seed: 1, words };
        let mut firsts = Vec::new();
        for unit in plan(&settings) {
            let (weights, words) = bench.schedule(&unit);
            assert_eq!(words.iter().filter(|word| *word == "--path").count(), 3);
            assert_eq!(words.ends_with(&settings.splitter), unit.every != 0, "{words:?}");
            if unit.every == 0 {
                assert!(words.iter().any(|word| word == "never"));
                firsts.push((words[1].clone(), weights));
            } else {
                assert!(words.iter().any(|word| word.starts_with("weights:0.")));
            }
        }
        let expected: Vec<(String, Vec<f64>)> = (0..3)
            .map(|n| {
                (format!("p{n}=if:p{n}"), (0..3).map(|p| f64::from(u8::from(p == n))).collect())
            })
            .collect();
        assert_eq!(firsts, expected);
    }
}
