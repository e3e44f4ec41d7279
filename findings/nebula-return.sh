#!/bin/sh
# Nebula (mesh VPN) sends to the address that the last authentic packet of a host came from, so that
# a host can roam. A competent reader expects it to follow every change at once, as it does to a new
# address. Nebula 1.10.3 ignores a return to the previous address within 2 s of the last change:
# until then all answers go to the address that the host has left.
# Two nodes in one process, on loopback, without root or a TUN device; a relay between them sends
# from one of three ports, as a NAT or a host with several networks would.
# Exit status: 0 as found, 1 if that changes, 2 if it cannot be run.
set -eu
version=v1.10.3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
export GOFLAGS=-modcacherw GOPATH="$work/go" GOCACHE="$work/cache" CGO_ENABLED=0
mkdir source; cd source
cat >main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/slackhq/nebula"
	"github.com/slackhq/nebula/cert"
	"github.com/slackhq/nebula/cert_test"
	"github.com/slackhq/nebula/config"
	"github.com/slackhq/nebula/overlay"
)

type m = map[string]any

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func bound() *net.UDPConn {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(err)
	return socket
}

var begin, end = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
var ca, _, signer, _ = cert_test.NewTestCaCert(
	cert.Version2, cert.Curve_CURVE25519, begin, end, nil, nil, nil)

// node starts Nebula; what it returns takes and gives the packets inside the tunnel.
func node(inside string, port int, known m) (io.Reader, io.Writer) {
	networks := []netip.Prefix{netip.MustParsePrefix(inside + "/24")}
	_, _, key, own := cert_test.NewTestCert(
		cert.Version2, cert.Curve_CURVE25519, ca, signer, inside, begin, end, networks, nil, nil)
	root, err := ca.MarshalPEM()
	check(err)
	all := []m{{"port": "any", "proto": "any", "host": "any"}}
	text, err := json.Marshal(m{
		"pki":             m{"ca": string(root), "cert": string(own), "key": string(key)},
		"static_host_map": known,
		"listen":          m{"host": "127.0.0.1", "port": port},
		"firewall":        m{"outbound": all, "inbound": all},
	})
	check(err)
	var c config.C
	check(c.LoadString(string(text)))
	silent := logrus.New()
	silent.Out = io.Discard
	control, err := nebula.Main(&c, false, "finding", silent, overlay.NewUserDeviceFromConfig)
	check(err)
	control.Start()
	return control.Device().(*overlay.UserDevice).Pipe()
}

func main() {
	free := bound()
	server := free.LocalAddr().(*net.UDPAddr)
	free.Close()
	read, write := node("10.10.0.1", server.Port, m{})
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, err := read.Read(buffer)
			check(err)
			// Back, with the addresses and the ports exchanged.
			packet := append([]byte(nil), buffer[:n]...)
			copy(packet[12:], buffer[16:20])
			copy(packet[16:], buffer[12:16])
			copy(packet[20:], buffer[22:24])
			copy(packet[22:], buffer[20:22])
			write.Write(packet)
		}
	}()

	inside, client := bound(), atomic.Pointer[net.UDPAddr]{}
	var outside [3]*net.UDPConn
	var lock sync.Mutex
	now, moved := 0, time.Now()
	var took time.Duration
	elsewhere := 0
	for i := range outside {
		outside[i] = bound()
		go func() {
			buffer := make([]byte, 2000)
			for {
				n, _, err := outside[i].ReadFromUDP(buffer)
				check(err)
				lock.Lock()
				if buffer[0]&15 == 1 && took == 0 { // a data message
					if i == now {
						took = time.Since(moved)
					} else {
						elsewhere++
					}
				}
				lock.Unlock()
				inside.WriteToUDP(buffer[:n], client.Load())
			}
		}()
	}
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := inside.ReadFromUDP(buffer)
			check(err)
			client.Store(from)
			lock.Lock()
			outside[now].WriteToUDP(buffer[:n], server)
			lock.Unlock()
		}
	}()

	got, give := node("10.10.0.2", 0, m{"10.10.0.1": []string{inside.LocalAddr().String()}})
	go io.Copy(io.Discard, got)
	go func() { // 100 packets a second: IPv4 and UDP
		packet := make([]byte, 128)
		packet[0], packet[3], packet[8], packet[9] = 0x45, 128, 64, 17
		copy(packet[12:], []byte{10, 10, 0, 2, 10, 10, 0, 1, 0x10, 0, 0x20, 0, 0, 108})
		for ; ; time.Sleep(10 * time.Millisecond) {
			give.Write(packet)
		}
	}()

	// answered returns how long the address in use has waited for its first answer.
	answered := func() time.Duration {
		for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); {
			time.Sleep(time.Millisecond)
			lock.Lock()
			t := took
			lock.Unlock()
			if t > 0 {
				return t
			}
		}
		panic("no answer within 10 s")
	}
	answered()
	for _, step := range []struct {
		stay time.Duration // at the address before
		to   int
		what string
	}{
		{3000, 2, "new"},
		{200, 1, "the previous one"},
		{3000, 2, "the previous one"},
		{200, 3, "new"},
		{200, 1, "the one before the previous one"},
	} {
		time.Sleep(step.stay * time.Millisecond)
		lock.Lock()
		now, moved, took, elsewhere = step.to-1, time.Now(), 0, 0
		lock.Unlock()
		t := answered()
		word := "at once"
		if t > time.Second {
			word = "late"
		}
		lock.Lock()
		fmt.Printf("after %4d ms to address %d, %s: %s | %.2f s, %d answers elsewhere before\n",
			step.stay, step.to, step.what, word, t.Seconds(), elsewhere)
		lock.Unlock()
	}
}
GO
go mod init finding >/dev/null 2>&1
if ! { timeout 30 go get "github.com/slackhq/nebula@$version" && timeout 10 go get .; } >log 2>&1; then
    tail -3 log
    echo "nebula $version: not available"
    exit 2
fi
timeout 120 go build -o finding . || { echo "not built within 120 s"; exit 2; }
timeout 20 ./finding >found || { cat found; exit 1; }
echo "nebula $version"
echo "guess: at once, each time; outcome:"
sed 's/ |/,/' found
cat >wanted <<'TEXT'
after 3000 ms to address 2, new: at once
after  200 ms to address 1, the previous one: late
after 3000 ms to address 2, the previous one: at once
after  200 ms to address 3, new: at once
after  200 ms to address 1, the one before the previous one: at once
TEXT
sed 's/ |.*//' found | cmp -s - wanted
