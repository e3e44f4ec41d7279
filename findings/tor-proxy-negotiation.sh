#!/bin/sh
# How C tor answers programs that ask its proxy ports what it understands.
#
# Guess 1 (HTTP CONNECT specification: "every request header has a capability of the same name"):
#   Tor-Capabilities lists Tor-Stream-Isolation, which tor heeds since 0.4.9.4.
# Guess 2 (RFC 1929): a SOCKS5 login with a reserved user name (proposal 351, "<torS0X>1") is refused
#   by two bytes, version 1 and a status.
# Exit status: 0 if both guesses are wrong as they were, 1 if that changes, 2 if it cannot be run.
set -eu
version=0.4.9.11-0+deb12u1
folder=$(mktemp -d)
trap 'kill "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
pid=
cd "$folder"
apt-get download "tor=$version" >/dev/null 2>&1 || { echo "tor $version: not to be had"; exit 2; }
dpkg -x tor_*.deb .
: >empty
nobody=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
usr/bin/tor -f empty --defaults-torrc empty --DataDirectory data --DisableNetwork 0 --ClientOnly 1 \
    --SocksPort 127.0.0.1:29150 --HTTPTunnelPort 127.0.0.1:29151 \
    --DirAuthority "x orport=9 no-v2 v3ident=$nobody 127.0.0.1:9 $nobody" \
    >log 2>&1 &
pid=$!
usr/bin/tor --version | head -1
python3 - <<'PYTHON'
import socket, sys, time

def ask(port, *says):
    for _ in range(100):
        try:
            link = socket.create_connection(("127.0.0.1", port), 10)
            break
        except OSError:
            time.sleep(0.1)
    else:
        sys.exit(2)
    heard = []
    for said in says:
        link.sendall(said)
        time.sleep(0.3)
        heard.append(link.recv(4096))
    return heard

(head,) = ask(29151, b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
lines = [line for line in head.decode().split("\r\n") if line.startswith("Tor-Capabilities")]
print("guess 1: 'Tor-Capabilities: ... Tor-Stream-Isolation ...'; outcome:", lines)
user = b"<torS0X>1"
_, answer = ask(29150, b"\x05\x01\x02", b"\x01" + bytes([len(user)]) + user + b"\x01p")
print("guess 2: two bytes, 01 and a status; outcome:", answer.hex(" "))
same = lines == ["Tor-Capabilities: "] and answer == bytes([5, 1, 0, 1, 0, 0, 0, 0, 0, 0])
sys.exit(0 if same else 1)
PYTHON
