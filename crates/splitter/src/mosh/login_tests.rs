use super::*;

/// A key in the form of a session's key: the first 22 letters.
const KEY: &str = "abcdefghijklmnopqrstuv";

fn login(ssh: &str) -> Login {
    Login {
        ssh: ssh.parse().unwrap(),
        user: Some("me".into()),
        host: "there".into(),
        family: Family::Any,
        remote: RemoteIp::Proxy(vec!["/opt/a b%/anabranch".into(), "carry".into()]),
        terminal: true,
        server: "env A=b mosh-server".into(),
        bind: Bind::Ssh,
        ports: None,
        colors: Some(256),
        locale: vec![("LANG".into(), "C.UTF-8".into())],
        command: Vec::new(),
    }
}

/// Returns a login that runs, in place of ssh, a command that prints `text`.
fn saying(text: &str) -> Login {
    login(&format!("sh -c {}", quoted(&format!("printf %s {}; exit 3", quoted(text)))))
}

#[test]
fn ssh_is_run_as_mosh_runs_it() {
    let mut plain = login("ssh");
    let proxy = "ProxyCommand='/opt/a b%%/anabranch' carry -- %h %p";
    let server = "env A=b mosh-server new -c 256 -s -l 'LANG=C.UTF-8'";
    let wanted = ["-n", "-S", "none", "-o", proxy, "-tt", "me@there", "--", server];
    assert_eq!(plain.arguments(None), wanted);
    plain.command = vec!["tmux".into(), "new session".into()];
    plain.bind = Bind::Ip("192.0.2.1".parse().unwrap());
    plain.ports = Some("60000:60010".into());
    (plain.colors, plain.terminal, plain.user) = (None, false, None);
    (plain.remote, plain.family) = (RemoteIp::Local, Family::V6);
    let server = "env A=b mosh-server new -i 192.0.2.1 -p 60000:60010 -l 'LANG=C.UTF-8' -- tmux 'new session'";
    let wanted = ["-n", "-S", "none", "-6", "2001:db8::1", "--", server];
    assert_eq!(plain.arguments("2001:db8::1".parse().ok()), wanted);
}

#[test]
fn a_shell_there_says_where_ssh_came_in() {
    let asking = Login { remote: RemoteIp::Remote, server: "printf %s".into(), ..login("ssh") };
    let command = asking.remote_command();
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).env("SSH_CONNECTION", "192.0.2.7 5000 192.0.2.1 22");
    let stdout = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    assert!(
        stdout.starts_with("\nMOSH SSH_CONNECTION 192.0.2.7 5000 192.0.2.1 22\nnew"),
        "{stdout}"
    );
}

#[test]
fn a_session_is_learnt_and_the_user_sees_the_rest() {
    let mut shown = Vec::new();
    let text = format!("hello\r\nMOSH IP 192.0.2.1\nMOSH CONNECT 60001 {KEY}\r\nbanner\n");
    let learnt = saying(&text).run(&mut shown).unwrap();
    assert_eq!(learnt.server, "192.0.2.1:60001".parse().unwrap());
    assert_eq!(learnt.key.expose(), KEY);
    assert_eq!(shown, b"hello\r\n");
}

#[test]
fn each_failure_says_what_helps_and_no_key() {
    let error = |login: Login| login.run(&mut io::sink()).unwrap_err().to_string();
    assert!(error(login("/nowhere/ssh")).contains("cannot run '/nowhere/ssh': No such file"));
    let ended = error(saying("bash: mosh-server: command not found\n"));
    assert!(ended.contains("exit status: 3") && ended.contains("'ssh me@there' works"), "{ended}");
    let malformed = error(saying(&format!("MOSH CONNECT x {KEY}\n")));
    assert!(malformed.contains("has no port and key") && !malformed.contains(KEY), "{malformed}");
    let nowhere = error(saying(&format!("MOSH CONNECT 60001 {KEY}\n")));
    assert!(nowhere.contains("--remote-ip remote") && !nowhere.contains(KEY), "{nowhere}");
    let local = Login { remote: RemoteIp::Local, host: "mosh.invalid".into(), ..login("ssh") };
    assert!(error(local).starts_with("the name 'mosh.invalid' does not resolve: "));
}

#[test]
fn families_are_tried_in_their_order() {
    let both = ["[2001:db8::1]:22", "192.0.2.1:22"].map(|text| text.parse().unwrap());
    assert_eq!(Family::Any.sorted(both), [both[1], both[0]]);
    assert_eq!(Family::V6.sorted(both), [both[0]]);
    assert_eq!(Family::V4.sorted(both), [both[1]]);
}

#[test]
fn an_ssh_whose_answer_is_malformed_is_ended_and_waited_for() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ >{}; echo MOSH CONNECT x; exec sleep 600", file.display());
    let answer = login(&format!("sh -c {}", quoted(&script))).run(&mut io::sink());
    assert!(matches!(answer, Err(LoginError::Malformed)), "{answer:?}");
    let pid = std::fs::read_to_string(file).unwrap();
    // A process that nobody waited for would still be listed.
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists());
}
