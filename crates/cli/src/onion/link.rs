//! `--link`: the kinds of connections between relays, in the user's order of preference.

use anabranch_onion::LossyCongestion;
use anabranch_router::onion::tap::{Tap, TapKind};
use anabranch_router::onion::{QuicCongestion, QuicLinking, StreamFamily};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::failure::Failure;
use crate::split::forms::OneOrMany;

/// Kinds of links (connections) to other relays, as in `--link`. A kind is used only if the other
/// relay supports it. A kind with the name of a [`StreamFamily`] selects that family for links
/// over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LinkKind {
    /// A TLS connection that delivers all bytes in order, as usual in Tor.
    Tls,
    /// A TLS connection on which a lost TCP segment delays only the circuits whose data it carries.
    Utls,
    /// A QUIC connection with a stream for each circuit, in addition to a TLS connection.
    Quic,
    /// A separate TLS connection to the next relay for each circuit, for comparison.
    TlsPerCircuit,
}

/// Congestion control of QUIC links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum QuicCongestionArg {
    /// Slows down after every loss.
    Cubic,
    /// Sends at the rate at which data arrive.
    Bbr,
}

impl From<QuicCongestionArg> for QuicCongestion {
    fn from(arg: QuicCongestionArg) -> QuicCongestion {
        match arg {
            QuicCongestionArg::Cubic => QuicCongestion::Cubic,
            QuicCongestionArg::Bbr => QuicCongestion::Bbr,
        }
    }
}

/// Settings of links (connections to relays), from `--link` and related options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkOptions {
    /// Kind of the links over TCP.
    pub(super) over_tcp: &'static StreamFamily,
    /// Whether TLS links may deliver records out of order (`--link utls`).
    unordered: bool,
    /// Conditions under which QUIC links are opened alongside other links; `None` if there are no
    /// QUIC links.
    pub(super) quic: Option<QuicLinking>,
    /// Whether each circuit has a link of its own to its next relay.
    pub(super) per_circuit: bool,
}

/// Returns a parser of the kinds for a client's `--link`. Help texts list only the kinds that a
/// client can use. The parser also accepts the kinds for relays, so that
/// [`LinkOptions::of_client`] can explain why a client refuses them.
pub(super) fn client_kinds() -> impl TypedValueParser<Value = LinkKind> {
    let shown = LinkKind::value_variants().iter().filter_map(|kind| {
        let is_of_relays = *kind == LinkKind::TlsPerCircuit;
        Some(kind.to_possible_value()?.hide(is_of_relays))
    });
    PossibleValuesParser::new(shown).try_map(|name| LinkKind::from_str(&name, false))
}

/// Congestion control of the TCP connections between client and exit in the design UDP-OR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentControl(pub(super) LossyCongestion);

impl SegmentControl {
    /// Returns a parser of the names of congestion control algorithms.
    pub(super) fn parser() -> impl TypedValueParser<Value = SegmentControl> {
        let shown =
            |control: LossyCongestion| PossibleValue::new(control.name()).help(control.about());
        PossibleValuesParser::new(LossyCongestion::all().map(shown))
            .try_map(|name| name.parse().map(SegmentControl))
    }
}

impl Default for SegmentControl {
    fn default() -> SegmentControl {
        SegmentControl(LossyCongestion::BBR)
    }
}

impl<'de> Deserialize<'de> for SegmentControl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SegmentControl, D::Error> {
        String::deserialize(deserializer)?.parse().map(SegmentControl).map_err(D::Error::custom)
    }
}

impl LinkOptions {
    /// Parses the list `kinds`. A link has the first of these kinds that the other relay supports.
    /// Every relay supports TLS, which need not be listed.
    ///
    /// # Errors
    /// A kind is listed twice. A kind is listed after TLS, so it would never be used. Or
    /// `tls-per-circuit` is listed together with other kinds.
    pub(super) fn new(kinds: &[LinkKind]) -> Result<LinkOptions, Failure> {
        let place = |kind| kinds.iter().position(|found| *found == kind);
        if kinds.iter().enumerate().any(|(at, kind)| place(*kind) != Some(at)) {
            return Err(Failure::misuse("--link lists the same kind twice: remove one".to_owned()));
        }
        if place(LinkKind::Tls).is_some_and(|tls| tls + 1 < kinds.len()) {
            let message = "--link: every relay and client supports tls, so kinds after tls are \
                           never used: put tls last";
            return Err(Failure::misuse(message.to_owned()));
        }
        let per_circuit = place(LinkKind::TlsPerCircuit).is_some();
        if per_circuit && kinds.len() > 1 {
            let message = "--link: tls-per-circuit cannot be combined with other kinds: remove the \
                           others";
            return Err(Failure::misuse(message.to_owned()));
        }
        let quic = place(LinkKind::Quic).map(|quic| QuicLinking {
            unless_unordered: place(LinkKind::Utls).is_some_and(|utls| utls < quic),
            ..QuicLinking::default()
        });
        let named = |kind: &LinkKind| StreamFamily::named(kind.to_possible_value()?.get_name());
        let over_tcp = kinds.iter().find_map(named).unwrap_or_default();
        let unordered = place(LinkKind::Utls).is_some();
        Ok(LinkOptions { over_tcp, unordered, quic, per_circuit })
    }

    /// Parses the list `kinds` for a client, as [`LinkOptions::new`] does. A client's circuits
    /// share the link to their guard.
    ///
    /// # Errors
    /// Those of [`LinkOptions::new`], or `tls-per-circuit` is listed.
    pub(super) fn of_client(kinds: &[LinkKind]) -> Result<LinkOptions, Failure> {
        let options = LinkOptions::new(kinds)?;
        if options.per_circuit {
            let message = "--link tls-per-circuit is only for relays, because a client has one \
                           connection to its guard (first relay): use tls, utls or quic";
            return Err(Failure::misuse(message.to_owned()));
        }
        Ok(options)
    }

    /// Returns these settings, with lossy cells on QUIC links. Lossy cells travel in datagrams, and
    /// may be lost. `option` is the option that requests them, for the error message. `kinds` is
    /// the list in `--link`; if the list is empty, QUIC links are enabled. `congestion` is the
    /// congestion control of streams over lossy cells.
    ///
    /// # Errors
    /// QUIC links are not in the list.
    pub(super) fn with_lossy(
        mut self,
        option: &str,
        kinds: &[LinkKind],
        congestion: Option<SegmentControl>,
    ) -> Result<LinkOptions, Failure> {
        if self.quic.is_none() && !kinds.is_empty() {
            let message =
                format!("{option} needs QUIC: add quic to --link, before tls, or leave out --link");
            return Err(Failure::misuse(message));
        }
        self.quic.get_or_insert_default().lossy = Some(congestion.unwrap_or_default().0);
        Ok(self)
    }

    /// Returns these settings with `wanted` as the congestion control of QUIC links.
    ///
    /// # Errors
    /// `wanted` is given, but QUIC links are not listed.
    pub(super) fn with_congestion(
        mut self,
        wanted: Option<QuicCongestionArg>,
    ) -> Result<LinkOptions, Failure> {
        if let Some(wanted) = wanted {
            let Some(linking) = &mut self.quic else {
                let message = "--quic-congestion needs --link quic: add --link quic";
                return Err(Failure::misuse(message.to_owned()));
            };
            linking.congestion = wanted.into();
        }
        Ok(self)
    }

    /// Returns `wanted`, which is whether the user has chosen MPTCP, after a check that MPTCP is
    /// compatible with these settings.
    ///
    /// # Errors
    /// MPTCP is wanted, and links may be unordered. An unordered link must read a single TCP
    /// connection without subflows.
    pub(super) fn by_mptcp(self, wanted: bool) -> Result<bool, Failure> {
        if wanted && self.unordered {
            let message = "--mptcp cannot be used with --link utls, because utls cannot read \
                           connections over several paths: remove one of the two";
            return Err(Failure::misuse(message.to_owned()));
        }
        Ok(wanted)
    }

    /// Opens the taps (readers of raw TCP segments, for `--link utls`), one for each of `threads`
    /// threads that move cells. Call this function before any thread is started: it drops
    /// capabilities of the calling thread, and only later threads inherit the reduced
    /// capabilities.
    pub(super) fn taps(self, threads: usize) -> Vec<Tap> {
        if self.unordered { Tap::open_all(threads) } else { Vec::new() }
    }
}

/// Returns the log line about unordered links, if they are enabled. The line contains the type of
/// the taps (readers of raw TCP segments), and a warning if the process could not give up the
/// capability for taps.
pub(super) fn tapped(taps: &[Tap]) -> Option<String> {
    let kind = taps.first()?.kind();
    let hint = match kind {
        TapKind::None => {
            ", because neither CAP_BPF nor CAP_NET_RAW is granted; after a loss, later data waits \
             for the lost segment"
        }
        TapKind::Packets => " (with the capability CAP_BPF the kernel would copy less data)",
        TapKind::SocketFilter => "",
    };
    let kept = match Tap::keeps_capabilities() {
        true => {
            "; this process still has the capability, because the system refuses to remove it \
             (capset(2))"
        }
        false => "",
    };
    Some(format!(
        "kernel interface through which utls connections read TCP data out of order: \
         {kind}{hint}{kept}"
    ))
}

/// Parses kinds of links in a file: a single kind, several separated by commas, or a list.
///
/// # Errors
/// A kind does not exist.
pub(super) fn kinds<'de, D>(deserializer: D) -> Result<Vec<LinkKind>, D::Error>
where
    D: Deserializer<'de>,
{
    let texts = OneOrMany::deserialize(deserializer)?.texts();
    let names = texts.iter().flat_map(|text| text.split(','));
    let kind = |name: &str| {
        let unknown = |_| {
            D::Error::custom(format!(
                "'{name}' is not a kind of connection (link): choose tls, utls (TLS records that \
                 are read out of order) or quic, for a relay also tls-per-circuit"
            ))
        };
        LinkKind::from_str(name.trim(), false).map_err(unknown)
    };
    names.map(kind).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::super::client::ClientArgs;
    use super::super::relay::RelayArgs;
    use super::*;

    fn options(text: &str) -> Result<LinkOptions, Failure> {
        #[derive(Deserialize)]
        struct File(#[serde(deserialize_with = "kinds")] Vec<LinkKind>);
        let File(kinds) = File::deserialize(serde_json::json!(text)).expect("kinds");
        LinkOptions::new(&kinds)
    }

    #[test]
    fn the_first_kind_of_a_list_goes_before_the_others() {
        let quic_links =
            |unless_unordered| Some(QuicLinking { unless_unordered, ..QuicLinking::default() });
        for (text, unordered, quic) in [
            ("tls", false, None),
            ("utls", true, None),
            ("quic, tls", false, quic_links(false)),
            ("quic,utls", true, quic_links(false)),
            ("utls,quic,tls", true, quic_links(true)),
        ] {
            let over_tcp = StreamFamily::named("tls").unwrap_or_default();
            let wanted = LinkOptions { over_tcp, unordered, quic, per_circuit: false };
            assert_eq!(options(text).ok(), Some(wanted), "{text}");
        }
        let alone = options("tls-per-circuit").ok();
        assert!(alone.is_some_and(|options| options.per_circuit && options.quic.is_none()));
        assert_eq!(LinkOptions::new(&[]).ok(), Some(LinkOptions::default()));
    }

    #[test]
    fn only_the_relays_help_lists_a_link_for_each_circuit() {
        let help = |command: Command| command.term_width(0).render_long_help().to_string();
        let client = help(ClientArgs::augment_args(Command::new("client")));
        let relay = help(RelayArgs::augment_args(Command::new("relay")));
        for kind in ["- tls:", "- utls:", "- quic:"] {
            assert!(client.contains(kind) && relay.contains(kind), "{kind}: {client}");
        }
        assert!(relay.contains("- tls-per-circuit:"), "{relay}");
        assert!(!client.contains("tls-per-circuit"), "{client}");
    }

    #[test]
    fn what_would_never_be_used_is_told() {
        assert!(options("tls,quic").is_err());
        assert!(options("quic,quic").is_err());
        assert!(options("quic,tls-per-circuit").is_err());
        assert!(LinkOptions::of_client(&[LinkKind::TlsPerCircuit]).is_err());
        assert!(options("utls").unwrap_or_default().by_mptcp(true).is_err());
        assert_eq!(options("quic").unwrap_or_default().by_mptcp(true).ok(), Some(true));
        let bbr = Some(QuicCongestionArg::Bbr);
        assert!(options("utls").unwrap_or_default().with_congestion(bbr).is_err());
        let by_bbr = options("quic").unwrap_or_default().with_congestion(bbr);
        let congestion = by_bbr.ok().and_then(|options| options.quic).map(|quic| quic.congestion);
        assert_eq!(congestion, Some(QuicCongestion::Bbr));
        let lossy = |kinds: &[LinkKind]| {
            LinkOptions::new(kinds).and_then(|options| options.with_lossy("--udp-or", kinds, None))
        };
        for kinds in [&[][..], &[LinkKind::Quic], &[LinkKind::Utls, LinkKind::Quic]] {
            let quic = lossy(kinds).ok().and_then(|options| options.quic);
            assert_eq!(quic.and_then(|quic| quic.lossy), Some(LossyCongestion::BBR), "{kinds:?}");
        }
        assert!(lossy(&[LinkKind::Utls]).is_err() && lossy(&[LinkKind::TlsPerCircuit]).is_err());
        let list = serde_json::json!(["utls", "carrier-pigeon"]);
        assert!(kinds(list).is_err());
    }
}
