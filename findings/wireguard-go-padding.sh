#!/bin/sh
# WireGuard's paper (section 5.4.6) pads each payload to a multiple of 16 bytes, so a competent
# reader expects data messages of 16 k + 32 bytes. wireguard-go stops padding at the MTU: a full
# packet at MTU 1420 is 1,452 bytes long, which is no multiple of 16.
# Exit status: 0 as found, 1 if that changes.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
export GOFLAGS=-modcacherw GOPATH="$work/go" GOCACHE="$work/cache"
version=v0.0.0-20250521234502-f333402bd9cb
cat >main.go <<'GO'
package main

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
)

func node(key [32]byte, peer []byte, endpoint string) (*tuntest.ChannelTUN, *device.Device) {
	tun := tuntest.NewChannelTUN()
	silent := device.NewLogger(device.LogLevelSilent, "")
	dev := device.NewDevice(tun.TUN(), conn.NewDefaultBind(), silent)
	set := fmt.Sprintf("private_key=%s\nlisten_port=0\npublic_key=%s\nallowed_ip=0.0.0.0/0\n",
		hex.EncodeToString(key[:]), hex.EncodeToString(peer))
	if endpoint != "" {
		set += "endpoint=" + endpoint + "\n"
	}
	if err := dev.IpcSet(set); err != nil {
		panic(err)
	}
	if err := dev.Up(); err != nil {
		panic(err)
	}
	return tun, dev
}

func main() {
	seen := make(chan int, 64)
	a, b := [32]byte{8, 1: 1, 31: 64}, [32]byte{16, 1: 2, 31: 64}
	pa, _ := curve25519.X25519(a[:], curve25519.Basepoint)
	pb, _ := curve25519.X25519(b[:], curve25519.Basepoint)
	_, server := node(b, pa, "")
	text, _ := server.IpcGet()
	var port int
	for _, line := range splitLines(text) {
		fmt.Sscanf(line, "listen_port=%d", &port)
	}
	relay, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		panic(err)
	}
	go func() {
		to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
		var client *net.UDPAddr
		buffer := make([]byte, 2000)
		for {
			n, from, err := relay.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			if from.Port == port {
				relay.WriteToUDP(buffer[:n], client)
				continue
			}
			client = from
			if buffer[0] == 4 {
				seen <- n
			}
			relay.WriteToUDP(buffer[:n], to)
		}
	}()
	client, _ := node(a, pb, relay.LocalAddr().String())
	packet := tuntest.Ping(netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1"))
	full := make([]byte, 1420)
	copy(full, packet)
	full[2], full[3] = 1420>>8, 1420&255
	client.Outbound <- full
	for deadline := time.After(20 * time.Second); ; {
		select {
		case n := <-seen:
			if n < 1000 {
				continue
			}
			fmt.Printf("guess: a multiple of 16; outcome: %d bytes for 1420 (%d over)\n", n, n%16)
			if n == 1452 {
				return
			}
			os.Exit(1)
		case <-deadline:
			fmt.Println("no data came")
			os.Exit(1)
		}
	}
}

func splitLines(text string) (lines []string) {
	start := 0
	for i, c := range text {
		if c == '\n' {
			lines, start = append(lines, text[start:i]), i+1
		}
	}
	return
}
GO
go mod init finding >/dev/null 2>&1
go get "golang.zx2c4.com/wireguard@$version" >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
echo "wireguard-go $version"
timeout 300 go run .
