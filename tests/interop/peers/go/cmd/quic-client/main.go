// Command quic-client downloads one path over HTTP/3 or HTTP/0.9 ("hq-interop") with quic-go and
// prints a fetch.Result as one line of JSON.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"anabranch/peers/internal/fetch"
)

func main() {
	server := flag.String("server", "127.0.0.1:4433", "address and port of the server")
	path := flag.String("path", "/bytes/1000", "what to download")
	name := flag.String("name", "localhost", "the name that the ClientHello asks for")
	protocol := flag.String("protocol", "h3", "h3 or hq")
	version := flag.Int("version", 1, "QUIC version, 1 or 2")
	ids := flag.String("ids", "", "connection IDs of the client's own: none, some, or as the library does")
	keepAlive := flag.Duration("keep-alive", 0, "send a PING after this long without packets; 0: never")
	limit := flag.Duration("timeout", time.Minute, "give up after this long")
	flag.Parse()

	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	get := map[string]getter{"h3": getH3, "hq": getHQ}[*protocol]
	if get == nil {
		fetch.NewMeter().Finish(fmt.Errorf("no such protocol: %s", *protocol)).PrintAndExit()
	}
	meter := fetch.NewMeter()
	at := place{*server, *path, *name, dialers[*ids]}
	meter.Finish(get(ctx, at, quicConfig(*version, *keepAlive), meter)).PrintAndExit()
}

// place is the resource to fetch: the server's address, the path, the server name (SNI), and the
// dialer (nil for the library's own).
type place struct {
	server, path, name string
	dial               dialer
}

type dialer func(ctx context.Context, addr string, t *tls.Config, c *quic.Config) (*quic.Conn, error)

// dialers by the connection IDs that they use: "none" has a socket for each connection.
var dialers = map[string]dialer{"none": quic.DialAddr, "some": dialWithIDs}

// dialWithIDs connects with IDs of the library's default length.
func dialWithIDs(ctx context.Context, addr string, t *tls.Config, c *quic.Config) (*quic.Conn, error) {
	server, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	return (&quic.Transport{Conn: socket}).Dial(ctx, server, t, c)
}

type getter func(ctx context.Context, at place, c *quic.Config, m *fetch.Meter) error

func quicConfig(version int, keepAlive time.Duration) *quic.Config {
	config := &quic.Config{Versions: []quic.Version{quic.Version1}, KeepAlivePeriod: keepAlive}
	if version == 2 {
		config.Versions = []quic.Version{quic.Version2}
	}
	return config
}

func getH3(ctx context.Context, at place, c *quic.Config, m *fetch.Meter) error {
	transport := &http3.Transport{TLSClientConfig: unchecked(at.name), QUICConfig: c, Dial: at.dial}
	defer transport.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at.server+at.path, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server says %s", response.Status)
	}
	return m.Drain(response.Body)
}

func getHQ(ctx context.Context, at place, c *quic.Config, m *fetch.Meter) error {
	dial := at.dial
	if dial == nil {
		dial = quic.DialAddr
	}
	connection, err := dial(ctx, at.server, unchecked(at.name, "hq-interop"), c)
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0, "")
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = stream.SetReadDeadline(deadline) // fails on a closed stream only, as the read then does
	}
	if _, err := io.WriteString(stream, "GET "+at.path+"\r\n"); err != nil {
		return err
	}
	_ = stream.Close()
	return m.Drain(stream)
}

// unchecked accepts any certificate, because servers have self-signed ones; the test compares
// hashes.
func unchecked(name string, protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: protocols, ServerName: name}
}
