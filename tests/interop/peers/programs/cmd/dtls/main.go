// Command dtls echoes datagrams over DTLS 1.2 with connection IDs (RFC 9146; pion). As a client, it
// requests echoes, and prints the number received as one line of JSON.
//
//	dtls -listen ADDRESS:PORT
//	dtls -dial ADDRESS:PORT -count 1000
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/pion/dtls/v3/pkg/crypto/selfsign"
)

func main() {
	listen := flag.String("listen", "", "serve at this address")
	dial := flag.String("dial", "", "ask for echoes here")
	count := flag.Int("count", 1000, "echoes to ask for")
	pause := flag.Duration("pause", 5*time.Millisecond, "from one to the next")
	flag.Parse()
	if *listen != "" {
		log.Fatal(serve(*listen))
	}
	answered, err := ask(*dial, *count, *pause)
	result := map[string]any{"sent": *count, "answered": answered, "error": ""}
	if err != nil {
		result["error"] = err.Error()
	}
	json.NewEncoder(os.Stdout).Encode(result)
}

func serve(address string) error {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	certificate, err := selfsign.GenerateSelfSigned()
	if err != nil {
		return err
	}
	listener, err := dtls.Listen("udp", at, &dtls.Config{
		Certificates:          []tls.Certificate{certificate},
		ConnectionIDGenerator: dtls.RandomCIDGenerator(8),
	})
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			buffer := make([]byte, 2000)
			for {
				n, err := connection.Read(buffer)
				if err != nil {
					return
				}
				connection.Write(buffer[:n])
			}
		}()
	}
}

func ask(address string, count int, pause time.Duration) (int64, error) {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return 0, err
	}
	connection, err := dtls.Dial("udp", at, &dtls.Config{
		InsecureSkipVerify:    true,
		ConnectionIDGenerator: dtls.OnlySendCIDGenerator(),
	})
	if err != nil {
		return 0, err
	}
	var answered atomic.Int64
	go func() {
		buffer := make([]byte, 2000)
		for {
			if _, err := connection.Read(buffer); err != nil {
				return
			}
			answered.Add(1)
		}
	}()
	message := make([]byte, 400)
	start := time.Now()
	for number := range count {
		if _, err := connection.Write(message); err != nil {
			return answered.Load(), err
		}
		time.Sleep(time.Until(start.Add(pause * time.Duration(number))))
	}
	time.Sleep(time.Second)
	return answered.Load(), nil
}
