// Command wgnet is wireguard-go's device on its own user-space network stack, for machines that do
// not permit TUN interfaces. The server answers HTTP /bytes/N at 10.8.0.1 inside the tunnel;
// the client fetches a path through it and prints a fetch.Result as one line of JSON.
package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"anabranch/peers/internal/fetch"
	"anabranch/peers/internal/seeded"
)

const (
	serverAddress = "10.8.0.1"
	clientAddress = "10.8.0.2"
	tunnelMTU     = 1420
)

// tunnel has the settings of one end of a tunnel.
type tunnel struct {
	private, peer, endpoint string
	port                    int
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: wgnet keys|serve|fetch [flags]")
	}
	var t tunnel
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&t.private, "private", "", "own private key, hexadecimal")
	flags.StringVar(&t.peer, "peer", "", "public key of the other end, hexadecimal")
	flags.StringVar(&t.endpoint, "endpoint", "", "fetch: address and port of the server")
	flags.IntVar(&t.port, "port", 51820, "serve: UDP port to listen on")
	seed := flags.Uint64("seed", 1, "serve: seed of the bytes")
	path := flags.String("path", "/bytes/1000", "fetch: what to download")
	limit := flags.Duration("timeout", time.Minute, "fetch: give up after this long")
	_ = flags.Parse(os.Args[2:]) // ExitOnError: does not return an error
	switch os.Args[1] {
	case "keys":
		printKeys()
	case "serve":
		log.Fatal(serve(t, *seed))
	case "fetch":
		meter := fetch.NewMeter()
		meter.Finish(download(t, *path, *limit, meter)).PrintAndExit()
	default:
		log.Fatalf("no such command: %s", os.Args[1])
	}
}

// printKeys makes a key pair, in the hexadecimal form that WireGuard's configuration protocol uses.
func printKeys() {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]string{
		"private": hex.EncodeToString(key.Bytes()),
		"public":  hex.EncodeToString(key.PublicKey().Bytes()),
	})
}

func serve(t tunnel, seed uint64) error {
	settings := fmt.Sprintf("private_key=%s\nlisten_port=%d\npublic_key=%s\nallowed_ip=%s/32\n",
		t.private, t.port, t.peer, clientAddress)
	stack, err := up(serverAddress, settings)
	if err != nil {
		return err
	}
	listener, err := stack.ListenTCPAddrPort(netip.AddrPortFrom(netip.MustParseAddr(serverAddress), 80))
	if err != nil {
		return err
	}
	return http.Serve(listener, seeded.Handler(seed))
}

func download(t tunnel, path string, limit time.Duration, meter *fetch.Meter) error {
	settings := fmt.Sprintf("private_key=%s\npublic_key=%s\nendpoint=%s\nallowed_ip=%s/32\n",
		t.private, t.peer, t.endpoint, serverAddress)
	stack, err := up(clientAddress, settings)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+serverAddress+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: stack.DialContext}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server says %s", response.Status)
	}
	return meter.Drain(response.Body)
}

// up starts a device with the given address and settings (the text of WireGuard's cross-platform
// configuration protocol).
func up(address, settings string) (*netstack.Net, error) {
	tun, stack, err := netstack.CreateNetTUN([]netip.Addr{netip.MustParseAddr(address)}, nil, tunnelMTU)
	if err != nil {
		return nil, err
	}
	logger := device.NewLogger(device.LogLevelError, "")
	dev := device.NewDevice(tun, conn.NewDefaultBind(), logger)
	if err := dev.IpcSet(settings); err != nil {
		return nil, err
	}
	return stack, dev.Up()
}
