// Command quicgo-server is quic-go's HTTP/3 server with its defaults, serving seeded bytes.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"math/big"
	"time"

	"github.com/quic-go/quic-go/http3"

	"anabranch/peers/internal/seeded"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:4433", "address and port to listen on")
	seed := flag.Uint64("seed", 1, "seed of the bytes that are served")
	flag.Parse()
	certificate, err := selfSigned()
	if err != nil {
		log.Fatal(err)
	}
	server := http3.Server{
		Addr:      *listen,
		Handler:   seeded.Handler(*seed),
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}),
	}
	log.Fatal(server.ListenAndServe())
}

// selfSigned makes a certificate for "localhost" that nobody needs to trust: clients skip the check.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
