use super::*;

const KEY: &str = "UEFTU1dPUkQtT0YtVEhFLVRFU1QtTk9ULUEtS0VZISE=";

fn error(text: &str) -> String {
    WgQuick::parse(text, "f.conf").unwrap_err().to_string()
}

fn parse(text: &str) -> WgQuick {
    WgQuick::parse(text, "f.conf").unwrap()
}

#[test]
fn a_file_is_read_as_wg_reads_it() {
    let text = "\n# a tunnel\n[INTERFACE]\nprivatekey=x\nMtu = 1280 # small\nFwMark = 0xca6c\n\
                ListenPort= 7\n[Peer]\nPublicKey = abc= # of the server\nAllowedIPs=\n\
                Endpoint = [2001:db8::1]:51820\n[Peer]\nPublicKey=b\nAllowedIPs = 10.0.0.0/8\n";
    let file = parse(text);
    assert_eq!(file.to_string(), text);
    assert_eq!((file.mtu(), file.fwmark(), file.listen_port()), (Some(1280), Some(51820), Some(7)));
    let peer = file.peer(None).unwrap();
    assert_eq!((peer.number, peer.line, peer.public_key.as_str()), (1, 8, "abc="));
    assert_eq!(peer.endpoint, "[2001:db8::1]:51820".parse().ok());
    assert_eq!((file.peers().len(), file.is_full_tunnel()), (2, false));
}

#[test]
fn files_of_an_earlier_program_are_read() {
    let text = include_str!("../../../../tests/formats/0e0b824b/full.conf");
    let file = parse(text);
    assert_eq!(file.to_string(), text);
    assert_eq!((file.mtu(), file.fwmark(), file.is_full_tunnel()), (Some(1280), Some(51820), true));
    let text = include_str!("../../../../tests/formats/0e0b824b/two-peers.conf");
    let keys: Vec<String> =
        parse(text).peers().iter().map(|peer| peer.public_key.clone()).collect();
    assert_eq!(keys, ["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk=", "two"]);
}

#[test]
fn a_full_tunnel_is_one_that_wg_quick_routes_everything_into() {
    let full = |interface: &str, networks: &str| {
        let peer = format!("[Peer]\nPublicKey=a\nAllowedIPs = {networks}\n");
        parse(&format!("[Interface]\n{interface}{peer}")).is_full_tunnel()
    };
    assert!(full("", "0.0.0.0/0") && full("Table = auto\n", "10.0.0.0/8, ::/0"));
    assert!(!full("Table = off\n", "0.0.0.0/0") && !full("Table=7\n", "::/0"));
    assert!(!full("", "0.0.0.0/1, 128.0.0.0/1") && !full("", "10.0.0.0/10"));
}

#[test]
fn the_keys_of_amneziawg_are_taken_and_pass_through() {
    let text = "[Interface]\nPrivateKey = x\nJc = 4\njmin = 40\nJmax = 90\nS1 = 15\nS2 = 18\n\
                S3 = 12\nS4 = 12-17\nH1 = 1000000-2000000\nH2 = 5\nH3 = 6\nH4 = 7\n\
                I1 = <b 0xc000000001><r 16><t>\nHeaderProtectionKey = y=\nRandomTrailers = on\n\
                [Peer]\nPublicKey = abc=\nEndpoint = h:1\n";
    let file = parse(text);
    assert_eq!(file.to_string(), text);
    assert_eq!((file.is_obfuscated(), file.padding()), (true, 17));
    assert!(!format!("{file:?}").contains("y="));
    let plain = parse("[Interface]\nPrivateKey = x\n");
    assert_eq!((plain.is_obfuscated(), plain.padding()), (false, 0));
    let wrong = "f.conf:2: S4: 'many' is neither a number of bytes nor a range of two numbers";
    assert_eq!(error("[Interface]\nS4 = many\n"), wrong);
}

#[test]
fn marks_that_are_off_are_none() {
    for text in ["0", "off", "Off", "0x0"] {
        assert_eq!(parse(&format!("[Interface]\nFwMark = {text}\n")).fwmark(), None);
    }
}

#[test]
fn each_mistake_is_told_with_its_line() {
    let cases = [
        (
            "[Interface]\nPrivatKey = x\n",
            "f.conf:2: unknown key `PrivatKey` in [Interface]; did you mean `PrivateKey`?",
        ),
        (
            "[Peer]\n\nZzz = x\n",
            "f.conf:3: unknown key `Zzz` in [Peer]; known: PublicKey, PresharedKey, AllowedIPs, \
             Endpoint, PersistentKeepalive",
        ),
        (
            "[Interface]\nEndpoint = a:1\n",
            "f.conf:2: `Endpoint` belongs to [Peer], not to [Interface]: move it there",
        ),
        ("[Pear]\n", "f.conf:1: unknown section: expected [Interface] or [Peer]"),
        (
            "MTU = 1\n",
            "f.conf:1: this setting is above the first [Section]: move it below [Interface] \
             or [Peer]",
        ),
        (
            "[Interface]\n[Interface]\n",
            "f.conf:2: a second [Interface]: a file has only one, so remove one",
        ),
        (
            "[Interface]\nMTU = 1\n\nmtu = 2\n",
            "f.conf:4: MTU is given twice: remove one; the first is in line 2",
        ),
        ("[Interface]\nMTU = big\n", "f.conf:2: MTU: 'big' is not a whole number above 0"),
        ("[Interface]\nMTU =\n", "f.conf:2: MTU has no value: write one, or remove the line"),
        (
            "[Interface]\nListenPort = 65536\n",
            "f.conf:2: ListenPort: '65536' is not a port: write 0 to 65535",
        ),
        (
            "[Interface]\nFwMark = red\n",
            "f.conf:2: FwMark: 'red' is not a firewall mark: write a number, 0x and a hexadecimal \
             one, or off",
        ),
        (
            "[Peer]\nPublicKey=a\nEndpoint = h:0\n",
            "f.conf:3: Endpoint: '0' is not a port: write 1 to 65535",
        ),
        (
            "[Peer]\nPublicKey=a\nEndpoint = h:https\n",
            "f.conf:3: Endpoint: 'https' is not a port: write 1 to 65535",
        ),
        (
            "[Peer]\nPublicKey=a\nEndpoint = h\n",
            "f.conf:3: Endpoint: 'h' is not a server's address: write HOST:PORT, with an IPv6 \
             address in brackets",
        ),
        ("[Interface]\n[Peer]\nEndpoint = h:1\n", "f.conf:2: this peer has no PublicKey: add it"),
        (
            "[Interface]\n\u{1b}[2J\n",
            "f.conf:2: this line is neither a [Section] nor KEY = VALUE: correct or remove it",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(error(text), message);
    }
}

#[test]
fn no_message_and_no_debug_form_tells_a_secret() {
    for text in [
        format!("[Interface]\nPrivateKy = {KEY}\n"),
        format!("[Interface]\n{KEY}\n"),
        format!("[Interface]\nPrivateKey : {KEY}\n"),
        format!("[Interface]\nPrivateKey {KEY}\n"),
        format!("[Interface]\nPrivateKey = {KEY}\nPrivateKey = {KEY}\n"),
        format!("[Peer]\nPrivateKey = {KEY}\n"),
    ] {
        assert!(!error(&text).contains(&KEY[..12]), "{}", error(&text));
    }
    let file = parse(&format!("[Interface]\nPrivateKey = {KEY}\n"));
    assert!(!format!("{file:?}").contains(&KEY[..12]));
}

#[test]
fn the_peer_is_asked_for_where_two_would_do() {
    let none = parse("[Interface]\n[Peer]\nPublicKey = a\n");
    let message = none.peer(None).unwrap_err().to_string();
    assert_eq!(
        message,
        "f.conf: no peer has an Endpoint, so there is no server to split to: add an Endpoint"
    );
    let two = "[Peer]\nPublicKey=aa=\nEndpoint=h:1\n[Peer]\nPublicKey=bb=\n[Peer]\nPublicKey=cc=\nEndpoint=i:2\n";
    let two = parse(two);
    let ends = "1 (aa=, h:1), 3 (cc=, i:2)";
    let message = |choice: Option<PeerChoice>| two.peer(choice.as_ref()).unwrap_err().to_string();
    let ask = "f.conf: several peers have an Endpoint; choose one with --peer: ";
    assert_eq!(message(None), format!("{ask}{ends}"));
    let key = |key: &str| PeerChoice::Key(key.to_owned());
    assert_eq!(two.peer(Some(&PeerChoice::Number(3))).unwrap().public_key, "cc=");
    assert_eq!(two.peer(Some(&key("aa="))).unwrap().number, 1);
    let missing = message(Some(PeerChoice::Number(4)));
    let list = format!("peers with an Endpoint: {ends}");
    assert_eq!(missing, format!("f.conf: no peer '4' in this file; {list}"));
    assert_eq!(message(Some(key("bb="))), format!("f.conf: peer 'bb=' has no Endpoint; {list}"));
}
