//! `anabranch pt crawl`: makes covers (traffic in which our transport hides data) from an
//! operator's own web site.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use anabranch_router::crawl::{
    Browser, Hiding, HidingObject, HidingObjects, SiteContent, Verdict, crawl, judge, shapes, write,
};
use clap::Args;
use serde_json::json;

use super::log::Log;
use crate::failure::Failure;
use crate::status::PublishedStatus;

const EXAMPLES: &str = "\
EXAMPLES
  Covers from the folder of a web site, each checked in Chromium, and a server that uses them:
    anabranch pt crawl /var/www/html --out covers --browser chromium
    anabranch pt server --listen 0.0.0.0:80 --to 127.0.0.1:22 --key bridge.key \\
        --profile http-site --covers covers --site 127.0.0.1:8080

  Shapes for the profile embed, from connections that tcpdump recorded. Both ends need the file:
    anabranch pt crawl --shape ssh.pcap tls.pcap --out own.shapes

EXIT CODES
  0 done   1 failed while running, for example a full disk   2 bad usage or settings";

/// Make covers (web files in which a server hides data) from a web site, or shapes (sizes and
/// pauses of connections) from recorded traffic.
///
/// Covers are files of a web site in which the profile http-site hides data: baseline JPEGs,
/// base64url text in JSON and scripts, and encrypted bodies. After data was hidden in a file, a
/// strict parser must still accept it. A browser (--browser) must also be able to parse the
/// changed scripts; without a browser, scripts are left out. Only the server needs covers, not its
/// clients. Shapes (--shape) are the sizes and pauses that the profile embed imitates.
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples.")]
pub(super) struct CrawlSide {
    /// Make covers from SOURCE, which is a folder with the files of a web site, a HAR file (as a
    /// browser's developer tools save it), or a capture (pcap, pcapng) of unencrypted HTTP. With
    /// --shape, make shapes from one SOURCE or several, which are captures of any TCP traffic. HAR
    /// files and captures may be gzipped.
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Write the covers (web files in which a server hides data) to PATH, a new folder. With
    /// --shape, no covers are made: PATH is then a new file for the shapes, which are the sizes
    /// and pauses of the recorded connections.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// If SOURCE is a HAR file or a capture, use only the web files of the host HOST [default: the
    /// host of the first HTML page in SOURCE].
    #[arg(long, conflicts_with = "shape")]
    host: Option<String>,
    /// Make shapes (sizes and pauses of recorded connections, for the profile embed) instead of
    /// covers (web files).
    #[arg(long)]
    shape: bool,
    /// Test the covers with the Chromium browser PROGRAM: after data was hidden in a web file, the
    /// browser opens the file. Leave out the files that the browser rejects.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "shape")]
    browser: Option<PathBuf>,
    /// Print the result as a JSON line.
    #[arg(long)]
    json: bool,
}

impl CrawlSide {
    pub(super) fn run(self) -> Result<(), Failure> {
        let log = Log::new((PublishedStatus::named("pt", None, None), None), self.json, false)?;
        // The target is checked first, because a browser may need minutes before the file is
        // written.
        if self.out.symlink_metadata().is_ok() {
            return Err(Failure::trouble(format!(
                "{} already exists: choose another name for --out",
                self.out.display()
            )));
        }
        if self.shape {
            return self.shapes(&log);
        }
        let [source] = &self.sources[..] else {
            return Err(Failure::misuse(
                "covers (web files that hide data) are made from one SOURCE: give only one, or add \
                 --shape to make shapes (sizes and pauses of recorded connections)",
            ));
        };
        let found = crawl(source, self.host.as_deref()).map_err(Failure::misuse)?;
        let mut judged = judge(&found);
        let asked = self.ask(&found, &mut judged)?;
        if judged.kept.is_empty() {
            let (shown, mut why) = (source.display(), left_out(&found, &judged));
            if !found.others.is_empty() {
                why += &format!(
                    ". Other hosts in this HAR file or capture, each with its number of files: {}. \
                     To use one of them, add --host",
                    found.others
                );
            }
            return Err(Failure::misuse(format!(
                "{shown}: no page or file of this site can carry hidden data: {why}"
            )));
        }
        write(&self.out, &found, &judged, self.browser.is_some()).map_err(Failure::trouble)?;
        report(&log, &found, &judged, asked);
        Ok(())
    }

    fn shapes(&self, log: &Log) -> Result<(), Failure> {
        let (set, notes) = shapes(&self.sources).map_err(Failure::misuse)?;
        let to_error = |error| Failure::trouble(format!("{}: {error}", self.out.display()));
        let mut file = File::create_new(&self.out).map_err(to_error)?;
        file.write_all(set.to_string().as_bytes()).map_err(|error| {
            // An incomplete set of covers is useless, so it is removed.
            let _ = fs::remove_file(&self.out);
            to_error(error)
        })?;
        let steps: usize = set.all().iter().map(|shape| shape.steps().len()).sum();
        let names: Vec<&str> = set.all().iter().map(|shape| shape.name()).collect();
        let mut text = format!(
            "wrote {} shapes (sizes and pauses of recorded connections) with {steps} messages in \
             all: {}",
            names.len(),
            names.join(", ")
        );
        notes.iter().for_each(|note| text += &format!("\n{note}"));
        let event = json!({"event": "shapes", "names": names, "steps": steps, "notes": notes});
        log.print(&event, &text);
        Ok(())
    }

    /// Drops the objects (web files with hidden data) that the browser rejects. Without a browser,
    /// drops all scripts. Returns the number of accepted objects and the number of tested objects;
    /// `None` without a browser.
    fn ask(
        &self,
        found: &SiteContent,
        judged: &mut HidingObjects,
    ) -> Result<Option<[usize; 2]>, Failure> {
        let Some(program) = &self.browser else {
            judged.retain("a script, which only a browser (--browser) can check", |kept| {
                !kept.wants_browser(found)
            });
            return Ok(None);
        };
        // Opaque objects are not tested, because a browser does not inspect encrypted content.
        let asked = judged.kept.iter().filter(|kept| kept.object.hiding() != Hiding::Opaque);
        let (places, objects): (Vec<usize>, Vec<_>) =
            asked.map(|kept| (kept.place, &kept.object)).unzip();
        let verdicts = Browser(program.clone()).ask(&objects).map_err(Failure::trouble)?;
        let taken = verdicts.iter().filter(|verdict| **verdict == Verdict::Takes).count();
        let verdicts: BTreeMap<usize, Verdict> = places.into_iter().zip(verdicts).collect();
        judged.retain("the browser rejects it", |kept| {
            verdicts.get(&kept.place) != Some(&Verdict::Rejects)
        });
        Ok(Some([taken, verdicts.len()]))
    }
}

fn report(log: &Log, found: &SiteContent, judged: &HidingObjects, asked: Option<[usize; 2]>) {
    let (mut kinds, mut hides) = (BTreeMap::<&str, usize>::new(), 0);
    for HidingObject { object, .. } in &judged.kept {
        let kind = match object.hiding() {
            Hiding::Opaque => "opaque",
            Hiding::Text => "text",
            Hiding::Image => "image",
        };
        *kinds.entry(kind).or_default() += 1;
        hides += object.hides();
    }
    let (objects, pages, kept) = (found.objects.len(), found.pages.len(), judged.kept.len());
    let of = list(kinds.iter().map(|(kind, count)| ((*kind).to_owned(), *count)));
    let of = if of.is_empty() { of } else { format!(" ({of})") };
    let mut text = format!(
        "the web site has {objects} files and {pages} pages; {kept} of the files{of} can carry \
         hidden data, at most {hides} bytes in all"
    );
    let why = left_out(found, judged);
    if !why.is_empty() {
        text += &format!("\nfiles left out: {why}");
    }
    if let Some([taken, asked]) = asked {
        let rate = 100.0 * taken as f64 / asked.max(1) as f64;
        text += &format!(
            "\nthe browser accepted {taken} of {asked} files with hidden data, {rate:.1} %"
        );
    }
    let event = json!({
        "event": "covers", "objects": objects, "pages": pages, "kept": kept, "kinds": kinds,
        "hides": hides, "left_out": all_left_out(found, judged), "browser": asked,
    });
    log.print(&event, &text);
}

/// Counts the objects (web files) that cannot hide data, by reason.
fn all_left_out(found: &SiteContent, judged: &HidingObjects) -> BTreeMap<String, usize> {
    let mut all = found.left_out.clone();
    judged.refused.iter().for_each(|(why, count)| *all.entry(why.clone()).or_default() += count);
    all
}

fn left_out(found: &SiteContent, judged: &HidingObjects) -> String {
    list(all_left_out(found, judged).into_iter().map(|(why, count)| (format!("× {why}"), count)))
}

fn list(counts: impl Iterator<Item = (String, usize)>) -> String {
    let all: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
    all.join(", ")
}
