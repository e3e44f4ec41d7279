//! Test of covers in headless Chromium. A cover is a web object (picture, script, ...) in which
//! camouflage hides data. The browser opens each object after bytes were hidden in it. Pictures
//! must decode, and JSON and scripts must parse. No script is executed.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use anabranch_stego::{Hiding, Object};
use base64ct::{Base64, Encoding};

use super::CrawlError;

/// Maximum total size, in bytes, of the objects that one test page contains.
const BATCH: usize = 1 << 20;
/// Timeout for one test page in the browser.
const PATIENCE: Duration = Duration::from_secs(120);
/// Command-line options of the browser; the address of the test page follows them.
const OPTIONS: [&str; 10] = [
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--dump-dom",
    "--virtual-time-budget=60000",
    // With this proxy on loopback, no object can make the browser connect to a server.
    "--proxy-server=127.0.0.1:9",
];
/// HTML of the test page. The page's list `given` has a pair for each object: its kind, and its
/// content in base64. A script replaces the page's body by one digit for each object: 1 if the
/// browser accepts the object, otherwise 0.
const PAGE: &str = "<!doctype html><meta charset=utf-8><body><script>
const text = data => new TextDecoder('utf-8', {fatal: true})
  .decode(Uint8Array.from(atob(data), one => one.charCodeAt(0)));
async function takes([kind, data]) {
  try {
    if (kind === 'image') {
      const one = new Image();
      one.src = 'data:image/jpeg;base64,' + data;
      await one.decode();
      return one.naturalWidth > 0;
    }
    if (kind === 'json') JSON.parse(text(data));
    if (kind === 'script') new Function(text(data));
    return true;
  } catch (error) { return false; }
}
(async () => {
  const verdicts = [];
  for (const one of given) verdicts.push(await takes(one) ? '1' : '0');
  document.body.textContent = 'verdicts:' + verdicts.join('') + '.';
})();
</script>";
/// Text in the body of the test page that precedes the digits. Each digit is the browser's verdict
/// on one object.
const BEGINS: &str = "verdicts:";

/// Path of the browser's executable.
#[derive(Clone, Debug)]
pub struct Browser(pub PathBuf);

/// The browser's verdict about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The browser accepts the object with hidden bytes.
    Takes,
    /// The browser rejects the object with hidden bytes.
    Rejects,
}

impl Browser {
    /// Hides random bytes in each object and returns the browser's verdicts about the changed
    /// objects. None of `objects` may be [`Hiding::Opaque`], which a browser cannot check.
    ///
    /// # Errors
    /// The browser cannot be started, or does not answer.
    pub fn ask(&self, objects: &[&Object]) -> Result<Vec<Verdict>, CrawlError> {
        let (mut verdicts, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
        for object in objects {
            let noise: Vec<u8> =
                (0..object.hides()).map(|at| (at ^ at >> 5).wrapping_mul(193) as u8).collect();
            let body = object.changed(&noise);
            bytes += body.len();
            batch.push((kind(object), Base64::encode_string(&body)));
            if bytes >= BATCH {
                verdicts.extend(self.open(&batch)?);
                (batch, bytes) = (Vec::new(), 0);
            }
        }
        if !batch.is_empty() {
            verdicts.extend(self.open(&batch)?);
        }
        Ok(verdicts)
    }

    /// Opens a test page with the objects of `batch` in the browser, and returns the verdicts.
    fn open(&self, batch: &[(&str, String)]) -> Result<Vec<Verdict>, CrawlError> {
        let to_error = |why: String| CrawlError::Browser(why);
        let folder = tempfile::tempdir().map_err(|error| to_error(error.to_string()))?;
        let page = folder.path().join("page.html");
        let given = serde_json::to_string(batch).map_err(|error| to_error(error.to_string()))?;
        let text = format!("<script>const given = {given};</script>{PAGE}");
        fs::write(&page, text).map_err(|error| to_error(error.to_string()))?;
        let mut command = Command::new(&self.0);
        // Chromium's sandbox does not work for root.
        command.args(rustix::process::geteuid().is_root().then_some("--no-sandbox"));
        command.args(OPTIONS).arg(format!("--user-data-dir={}/own", folder.path().display()));
        command.arg(format!("file://{}", page.display())).env("HOME", folder.path());
        let streams =
            run(&mut command).map_err(|why| to_error(format!("{}: {why}", self.0.display())))?;
        let digits = streams.split(BEGINS).nth(1).and_then(|rest| rest.split('.').next());
        let of = |digit: char| if digit == '1' { Verdict::Takes } else { Verdict::Rejects };
        let verdicts: Vec<Verdict> = digits.unwrap_or_default().chars().map(of).collect();
        if verdicts.len() != batch.len() {
            let (received, asked) = (verdicts.len(), batch.len());
            return Err(to_error(format!("the browser checked only {received} of {asked} files")));
        }
        Ok(verdicts)
    }
}

fn kind(object: &Object) -> &'static str {
    let json = |(name, kind): &(String, String)| {
        name.eq_ignore_ascii_case("content-type") && kind.to_ascii_lowercase().contains("json")
    };
    match object.hiding() {
        Hiding::Image => "image",
        Hiding::Text if object.headers().iter().any(json) => "json",
        Hiding::Text | Hiding::Opaque => "script",
    }
}

/// Waits until `process` ends. Returns its exit status, or `None` after the timeout `PATIENCE`.
fn end_of(process: &mut Child) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(status) = process.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// Runs `command` until it exits, and returns its output.
fn run(command: &mut Command) -> Result<String, String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.process_group(0).spawn().map_err(|error| error.to_string())?;
    let mut out = process.stdout.take().ok_or("the browser has no output")?;
    let reader = thread::spawn(move || {
        let mut streams = Vec::new();
        out.read_to_end(&mut streams).map(|_| String::from_utf8_lossy(&streams).into_owned())
    });
    let group = rustix::process::Pid::from_child(&process);
    let ended = end_of(&mut process);
    // The browser's child processes are killed, too, because they may hold the output open and
    // write to the folder.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let Some(ended) = ended.map_err(|error| error.to_string())? else {
        let _ = process.wait();
        return Err(format!("no answer within {} s", PATIENCE.as_secs()));
    };
    if !ended.success() {
        return Err(ended.to_string());
    }
    reader
        .join()
        .map_err(|_| "the browser's output cannot be read")?
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn object() -> Object {
        let body = format!("[{}1]", format!("\"{}\",", "aB3_".repeat(60)).repeat(9));
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Object::new("/a.json", headers, body.as_bytes()).unwrap()
    }

    /// Returns the result of a check whose browser is replaced by the shell script `script`.
    fn verdicts_of(script: &str) -> Result<Vec<Verdict>, String> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("browser");
        // A shell writes the file. If this process wrote it, a child process that another test
        // forks meanwhile could hold it open for writing, and it could not be executed ("Text file
        // busy").
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat >\"$0\"; chmod 700 \"$0\""]).arg(&program).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        write!(shell.stdin.take().unwrap(), "#!/bin/sh\n{script}\n").unwrap();
        assert!(shell.wait().unwrap().success());
        Browser(program).ask(&[&object(), &object()]).map_err(|error| error.to_string())
    }

    #[test]
    fn verdicts_are_read_and_a_browser_that_fails_is_told() {
        use Verdict::{Rejects, Takes};
        assert_eq!(verdicts_of("echo '<body>verdicts:10.</body>'"), Ok(vec![Takes, Rejects]));
        for (script, why) in [
            ("echo '<body></body>'", "checked only 0 of 2 files"),
            ("echo verdicts:1.", "checked only 1 of 2 files"),
            ("exit 3", "exit status: 3"),
        ] {
            let error = verdicts_of(script).unwrap_err();
            assert!(
                error.starts_with("the browser's check failed: ") && error.contains(why),
                "{error}"
            );
        }
        // A remaining child process keeps the browser's output open, but the check must not wait
        // for it.
        let began = Instant::now();
        assert_eq!(verdicts_of("sleep 60 & echo verdicts:10."), Ok(vec![Takes, Rejects]));
        assert!(began.elapsed() < Duration::from_secs(30));
        let none = Browser("/nowhere/chromium".into()).ask(&[&object()]).unwrap_err().to_string();
        assert!(none.contains("/nowhere/chromium: No such file"), "{none}");
    }
}
