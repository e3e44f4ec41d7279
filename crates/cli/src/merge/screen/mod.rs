//! What a far end tells: a live view on a terminal, lines for a log, or objects.

mod json;
mod live;
mod model;
mod plain;
mod posting;

use std::io;

use anabranch_splitter::far_end::INTERFACE;
use anabranch_splitter::merge::{News, Screen};

use super::options::Options;
use crate::screen::has_terminal;
pub(super) use posting::Posting;

/// The screen that suits the options and the place that stdout leads to.
///
/// # Errors
/// The threads that write cannot be had.
pub(super) fn of(options: &Options) -> io::Result<Box<dyn Screen>> {
    if options.json {
        return Ok(Box::new(json::Json::new()?));
    }
    let plain = plain::Plain::new(options.quiet, options.verbose)?;
    if options.quiet || !has_terminal() {
        return Ok(Box::new(plain));
    }
    Ok(Box::new(live::Live::new(plain)))
}

/// News in words.
fn words(news: &News) -> String {
    match news {
        News::Began { client, from, server } if server.is_empty() => {
            format!("'{client}' has come, from {from}")
        }
        News::Began { client, from, server } => {
            format!("'{client}' has come, from {from}, for '{server}'")
        }
        News::NoServer { client, server } if server.is_empty() => {
            format!("'{client}' names none of the servers here: it needs --behind NAME")
        }
        News::NoServer { client, server } if server == INTERFACE => {
            format!("'{client}' has IP packets to send, and there is no interface here: see --tun")
        }
        News::NoServer { client, server } => {
            format!("'{client}' asks for '{server}', which is not here: see --to")
        }
        News::Ended { client } => format!("'{client}' has gone"),
        News::PathUp { client, path, from } => {
            format!("'{client}' is heard by path {path}, from {from}")
        }
        News::PathDown { client, path } => {
            format!("'{client}' is not heard by path {path} any more")
        }
        News::ServerRefused { server } => {
            format!("no server listens at {server}: its port is closed")
        }
    }
}

fn is_warning(news: &News) -> bool {
    matches!(news, News::NoServer { .. } | News::ServerRefused { .. })
}
