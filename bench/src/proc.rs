//! Numbers of processes and sockets from `/proc`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Resources of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time since its start, user and system of all its threads, in seconds.
    pub cpu: f64,
    /// Memory in RAM (`VmRSS`), in bytes.
    pub rss: u64,
    /// Open files.
    pub files: u64,
}

impl Usage {
    /// Reads the current numbers of process `pid`.
    ///
    /// # Errors
    /// `NotFound` if there is none; `InvalidData` if the kernel's format is unknown.
    pub fn of(pid: u32) -> io::Result<Usage> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rss = field(&status, "VmRSS:").ok_or(ErrorKind::InvalidData)? * 1024;
        let files = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
        Ok(Usage { cpu: cpu(pid)?, rss, files })
    }
}

/// Returns the CPU time of `pid` in seconds, from the scheduler's statistics in nanoseconds if the
/// kernel has them, otherwise from `stat` in hundredths of a second.
///
/// # Errors
/// Those of [`Usage::of`].
pub fn cpu(pid: u32) -> io::Result<f64> {
    match threads_cpu(Path::new(&format!("/proc/{pid}/task"))) {
        Ok(nanos) if nanos > 0 => Ok(nanos as f64 / 1e9),
        _ => stat_cpu(&fs::read_to_string(format!("/proc/{pid}/stat"))?),
    }
}

/// Returns the nanoseconds of CPU time of all living threads.
fn threads_cpu(tasks: &Path) -> io::Result<u64> {
    let nanos = |thread: io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        first.ok_or_else(|| ErrorKind::InvalidData.into())
    };
    fs::read_dir(tasks)?.map(nanos).sum()
}

/// Returns `utime + stime` of a line of `stat`: fields 14 and 15, counted from the end of the
/// name, which may contain anything.
fn stat_cpu(line: &str) -> io::Result<f64> {
    let tail = line.rsplit_once(')').ok_or(ErrorKind::InvalidData)?.1;
    let ticks = tail.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().map_err(|_| ErrorKind::InvalidData)?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// UDP sockets of this network namespace, and kernel memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    /// Sockets in use, IPv4 and IPv6.
    pub count: u64,
    /// Memory accounted to their queues, in bytes.
    pub queues: u64,
    /// Memory of all kernel objects, including sockets and files, in bytes (`Slab`).
    pub objects: u64,
}

impl Sockets {
    /// Reads the current numbers.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn now() -> io::Result<Sockets> {
        let v4 = fs::read_to_string("/proc/net/sockstat")?;
        let v6 = fs::read_to_string("/proc/net/sockstat6").unwrap_or_default();
        let count = after(&v4, "UDP:", "inuse") + after(&v6, "UDP6:", "inuse");
        let queues = after(&v4, "UDP:", "mem") * rustix::param::page_size() as u64;
        let memory = fs::read_to_string("/proc/meminfo")?;
        let objects = field(&memory, "Slab:").ok_or(ErrorKind::InvalidData)? * 1024;
        Ok(Sockets { count, queues, objects })
    }
}

/// Returns whether an IPv4 or IPv6 UDP socket of this network namespace is bound to `port`.
///
/// # Errors
/// Those of the kernel.
pub fn bound(port: u16) -> io::Result<bool> {
    let ending = format!(":{port:04X}");
    let holds = |table: &str| {
        let mut locals = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        locals.any(|local| local.ends_with(&ending))
    };
    let v6 = fs::read_to_string("/proc/net/udp6").unwrap_or_default();
    Ok(holds(&fs::read_to_string("/proc/net/udp")?) || holds(&v6))
}

/// Returns the number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the number after the word `name` in the line that starts with `line`; 0 if there is
/// none.
fn after(text: &str, line: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|text| text.strip_prefix(line)).unwrap_or_default();
    let value = line.split_whitespace().skip_while(|&word| word != name).nth(1);
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_process_uses_cpu_time() {
        let pid = std::process::id();
        let (start, before) = (Instant::now(), Usage::of(pid).unwrap());
        while start.elapsed() < Duration::from_millis(50) {}
        let after = Usage::of(pid).unwrap();
        assert!(after.cpu > before.cpu && after.cpu - before.cpu < 10.0);
        assert!(after.rss > 100_000 && after.files >= 3);
    }

    #[test]
    fn both_accounts_of_cpu_time_agree() {
        let line = fs::read_to_string("/proc/self/stat").unwrap();
        let ticks = stat_cpu(&line).unwrap();
        assert!((cpu(std::process::id()).unwrap() - ticks).abs() < 0.2);
        let odd = "7 (a) b) R 1 1 1 0 -1 0 0 0 0 0 150 50 0";
        assert_eq!(stat_cpu(odd).unwrap(), 2.0);
    }

    #[test]
    fn a_port_is_bound_while_its_socket_lives() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(bound(port).unwrap() && Sockets::now().unwrap().count >= 1);
        drop(socket);
        assert!(!bound(port).unwrap());
    }

    #[test]
    fn numbers_are_found_behind_their_names() {
        let text = "sockets: used 9\nUDP: inuse 4 mem 12\n";
        assert_eq!(after(text, "UDP:", "mem"), 12);
        assert_eq!(after(text, "TCP:", "mem"), 0);
        assert_eq!(field("VmRSS:\t  310 kB\n", "VmRSS:"), Some(310));
    }
}
