//! Reads the settings of the splitter from a TOML file.

use std::fs;
use std::path::Path;

use anabranch_os::toml_keys::{self, Section};

use super::options::Options;
use crate::failure::Failure;

/// Keys of the settings file: the names of the options, and the keys of a `[[path]]` table.
const KEYS: &[Section] = &[
    Section {
        path: "",
        keys: &[
            "listen",
            "to",
            "to-tcp",
            "tun",
            "route",
            "netns",
            "udp",
            "dns",
            "protocol",
            "idle",
            "max-sessions",
            "path",
            "same-egress",
            "onion-socks",
            "tls-fingerprint",
            "tls-ca",
            "stream-age",
            "fwmark",
            "schedule",
            "every",
            "redraw",
            "jitter",
            "handshake",
            "scheduled",
            "quic-tuples",
            "in-order",
            "keep-silent-paths",
            "seed",
            "key",
            "behind",
            "pad",
            "decoys",
            "wg",
            "write",
            "overwrite",
            "peer",
            "name",
            "json",
            "quiet",
            "verbose",
            "metrics",
            "trace",
            "pcap",
            "pcap-size",
            "pcap-files",
            "replace",
        ],
    },
    Section {
        path: "path",
        keys: &[
            "name",
            "interface",
            "wg",
            "address",
            "ports",
            "socks5",
            "user",
            "password",
            "password-file",
            "tcp",
            "socks5-tcp",
            "http",
            "ssh",
            "tls",
            "onion",
        ],
    },
];

/// Reads the settings in the file at `path`.
///
/// # Errors
/// The file cannot be read, is not TOML, or has an unknown key or an invalid value. The message
/// has the file and the line.
pub(crate) fn read(path: &Path) -> Result<Options, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::misuse(format!("cannot read '{name}': {error}")))?;
    toml_keys::read(&text, &name.to_string(), KEYS).map_err(|error| {
        if toml_keys::is_wg_quick(&text) {
            Failure::misuse(format!(
                "'{name}' looks like a wg-quick file, not like settings in TOML: write --wg {name}"
            ))
        } else {
            Failure::misuse(error)
        }
    })
}

#[cfg(test)]
mod tests {
    use anabranch_splitter::paths::PathSpec;
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::split::uplinks::PathChoice;
    use crate::split::values::Mark;

    fn parse(text: &str) -> Result<Options, String> {
        toml_keys::read(text, "f.toml", KEYS).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_of_the_options_is_a_key_and_no_other() {
        let command = Options::augment_args(clap::Command::new("split"));
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        let mut flags: Vec<_> = flags.collect();
        let mut keys = KEYS[0].keys.to_vec();
        flags.sort_unstable();
        keys.sort_unstable();
        assert_eq!(flags, keys);
    }

    #[test]
    fn files_of_an_earlier_program_are_read() {
        let tunnel = include_str!("../../../../tests/formats/0e0b824b/tunnel.toml");
        let tunnel = parse(tunnel).unwrap();
        let paths: Vec<_> = tunnel.paths.iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["wlan=if:wlan0", "lte=if:wwan0,ports:4", "home=addr:192.0.2.7"]);
        assert_eq!(tunnel.listen, Some("127.0.0.1:51820".parse().unwrap()));
        assert_eq!(tunnel.every, Some("100ms".parse().unwrap()));
        let interface = include_str!("../../../../tests/formats/0e0b824b/interface.toml");
        let interface = parse(interface).unwrap();
        assert_eq!((interface.tun.as_deref(), interface.route), (Some("any0"), true));
        assert_eq!((interface.netns.as_deref(), interface.udp.len()), (Some("browse"), 2));
    }

    #[test]
    fn a_file_says_what_flags_say() {
        let options = parse(
            "listen = '127.0.0.1:51820'\nto = 'vpn.example.net:51820'\nevery = '~50p'\nidle = '3m'\n\
             fwmark = 0xca6c\nmax-sessions = 10\nscheduled = ['b']\n[[path]]\nname = 'a'\n\
             interface = 'wlan0'\n[[path]]\nname = 'b'\naddress = '192.0.2.7'\nports = 8\n\
             [[path]]\nname = 'c'\nwg = 'vpn.conf'\n",
        )
        .unwrap();
        let paths: Vec<_> = options.paths.iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a=if:wlan0", "b=addr:192.0.2.7,ports:8", "c=wg:vpn.conf"]);
        assert_eq!(options.fwmark, Some(Mark(51820)));
        assert_eq!(options.every, Some("~50p".parse().unwrap()));
        assert_eq!(options.scheduled, Some(vec!["b".to_owned()]));
    }

    #[test]
    fn a_path_through_a_proxy_has_its_password_in_the_file_or_in_another() {
        let proxied = |more: &str| {
            let text = format!("[[path]]\nname = 'p'\nsocks5 = '192.0.2.1:1080'\n{more}");
            match parse(&text)?.paths.remove(0) {
                PathChoice::One(path) => Ok(path),
                PathChoice::Uplinks => panic!("a path of its own"),
            }
        };
        let spec: PathSpec = proxied("user = 'anna'\npassword = 'a,b@c'\n").unwrap();
        assert_eq!(spec.to_string(), "p=socks5:anna:...@192.0.2.1:1080");
        let credentials = spec.proxy.unwrap().credentials().unwrap().unwrap();
        assert_eq!(credentials.password, "a,b@c");
        let shown = |more| proxied(more).map(|spec| spec.to_string());
        let file = shown("interface = 'wwan0'\nuser = 'anna'\npassword-file = 'p.txt'\n");
        assert_eq!(file.unwrap(), "p=if:wwan0,socks5:anna:@p.txt@192.0.2.1:1080");
        assert_eq!(shown("user = 'anna'").unwrap(), "p=socks5:anna@192.0.2.1:1080");
        for (more, words) in [
            ("password = 'secret'", "no 'user'"),
            ("user = 'a'\npassword = 987654", "put it in quotes"),
            ("user = 'a'\npassword = 'secret'\npassword-file = 'f'", "exclude each other"),
            ("ports = 4", "'ports' does not work with a proxy"),
            ("user = ''", "1 to 255 bytes"),
        ] {
            let message: String = shown(more).unwrap_err();
            assert!(message.starts_with("f.toml:") && message.contains(words), "{message}");
            assert!(!message.contains("secret") && !message.contains("987654"), "{message}");
        }
        let stray = parse("[[path]]\nname = 'p'\nports = 1\nuser = 'anna'\n").unwrap_err();
        assert!(stray.contains("belong to a path with 'socks5'"), "{stray}");
    }

    #[test]
    fn flags_override_the_file_and_leave_the_rest_of_it() {
        let flags = Options::augment_args(clap::Command::new("split"));
        let flags = flags.get_matches_from(["split", "--every", "1s", "--path", "x=ports:2"]);
        let flags = Options::from_arg_matches(&flags).unwrap();
        let file = parse("every = '5p'\nseed = 7\njson = true\n[[path]]\nname = 'a'\nports = 1\n");
        let both = flags.over(file.unwrap());
        assert_eq!((both.every, both.seed), (Some("1s".parse().unwrap()), Some(7)));
        assert_eq!(both.paths, ["x=ports:2".parse().unwrap()]);
        assert!(both.json);
    }

    #[test]
    fn a_tunnel_and_all_uplinks_can_stand_in_a_file() {
        let text =
            "wg = 'home.conf'\nwrite = 'split.conf'\noverwrite = true\npeer = 2\npath = 'auto'\n";
        let options = parse(text).unwrap();
        assert_eq!(options.paths, [PathChoice::Uplinks]);
        assert_eq!(options.wg.as_deref(), Some(Path::new("home.conf")));
        assert!(options.overwrite && options.peer == Some("2".parse().unwrap()));
    }

    #[test]
    fn a_form_that_is_not_the_flags_is_shown_the_right_one() {
        let mistake = |text: &str| parse(text).unwrap_err();
        for (text, wanted) in [
            ("every = 100\n", "f.toml:1: `every`: '100' "),
            ("listen = 51820\n", "write ADDRESS:PORT, such as 127.0.0.1:51820"),
            ("[path]\nname = 'a'\n", "a [[path]] table (in double brackets)"),
            ("path = 'all'\n", "f.toml:1: `path`: 'all'"),
            ("to = true\n", "`to`: it is not a text: put the value in quotes"),
        ] {
            let message = mistake(text);
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn a_flag_that_may_repeat_is_one_value_or_a_list_of_them() {
        let options = parse(
            "path = ['a=if:wlan0', 'b=ports:2', 'auto']\nscheduled = 'a,b'\npad = 640\n\
             udp = '7000-7010'\ndns = '192.0.2.53'\n",
        )
        .unwrap();
        let paths: Vec<_> = options.paths.iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a=if:wlan0", "b=ports:2", "auto"]);
        assert_eq!(options.scheduled, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((options.pad, options.udp.len(), options.dns.len()), (vec![640], 1, 1));
        assert_eq!(parse("path = 'a=if:wlan0'").unwrap().paths.len(), 1);
        for (text, words) in [
            ("\npath = ['wlan0']\n", "f.toml:2: `path`: 'wlan0' is not a path"),
            ("\npath = [7]\n", "f.toml:2: `path`: 7: expected a path written as in --path"),
            ("dns = ['x']\n", "f.toml:1: `dns`: 'x': it is not an IP address"),
            ("pad = ['x']\n", "f.toml:1: `pad`: 'x': it is not a whole number of 0 or more"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.starts_with(words), "{message}");
        }
    }

    #[test]
    fn a_file_may_ask_for_an_interface() {
        let options = parse(
            "tun = 'any0'\nroute = true\nnetns = 'browse'\nudp = [5000, '6000-6010']\n\
             dns = ['192.0.2.53']\n",
        )
        .unwrap();
        let udp: Vec<_> = options.udp.iter().map(ToString::to_string).collect();
        assert_eq!((options.tun.as_deref(), options.route), (Some("any0"), true));
        assert_eq!((udp.join(" "), options.dns.len()), ("5000 6000-6010".into(), 1));
    }

    #[test]
    fn a_number_out_of_range_is_told_with_key_value_and_range() {
        let path = |more: &str| parse(&format!("[[path]]\nname = 'a'\n{more}\n")).unwrap_err();
        for number in ["-3", "0", "65", "70000", "-9223372036854775808"] {
            let wanted = format!("f.toml:3: `ports`: {number}: write a whole number from 1 to 64");
            assert_eq!(path(&format!("ports = {number}")), wanted);
        }
        for number in ["-3", "0", "17", "300"] {
            let wanted = format!("f.toml:3: `onion`: {number}: write a whole number from 1 to 16");
            assert_eq!(path(&format!("onion = {number}")), wanted);
        }
        let words = "f.toml:3: `ports`: 'x': expected a whole number from 1 to 64";
        assert_eq!(path("ports = 'x'"), words);
        let pad = parse("pad = -3\n").unwrap_err();
        assert_eq!(pad, "f.toml:1: `pad`: '-3': it is not a whole number of 0 or more");
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let mistake = |text: &str| parse(text).unwrap_err();
        let near = "f.toml:2: unknown key `evry`; did you mean `every`?";
        assert_eq!(mistake("to = 'a:1'\nevry = '1p'\n"), near);
        for (text, line) in [
            ("\nevery = '0p'\n", "f.toml:2: "),
            ("\nevery = 5\n", "f.toml:2: "),
            ("fwmark = -1\n", "f.toml:1: "),
            ("max-sessions = 0\n", "f.toml:1: "),
            ("[[path]]\nname = 'a'\nports = 1\n\n[[path]]\nname = 'b'\n", "f.toml:5: "),
            ("[[path]]\nname = 'a'\nports = 0\n", "f.toml:3: "),
            ("[[path]]\ninterface = 'a'\n", "f.toml:1: "),
            ("[[path]]\nname = 'a'\ninterface = 'b'\nwg = 'b.conf'\n", "f.toml:1: "),
            ("path = 'a'\n", "f.toml:1: "),
            ("tun = 'any0'\nudp = [5000, '7-5']\n", "f.toml:2: "),
        ] {
            let message = mistake(text);
            assert!(message.starts_with(line) && !message.contains('\n'), "{message}");
        }
    }
}
