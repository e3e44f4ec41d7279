// Command quicgo-server is quic-go's HTTP/3 server with its defaults, serving seeded bytes, or
// files.
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
	"net/http"
	"time"

	"github.com/quic-go/quic-go/http3"

	"anabranch/peers/internal/seeded"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:4433", "address and port to listen on")
	seed := flag.Uint64("seed", 1, "seed of the bytes that are served")
	site := flag.String("site", "", "folder of files to serve instead")
	certificateFile := flag.String("certificate", "", "PEM file of the certificate; one is made without it")
	keyFile := flag.String("key", "", "PEM file of the certificate's key")
	flag.Parse()
	certificate, err := identity(*certificateFile, *keyFile)
	if err != nil {
		log.Fatal(err)
	}
	handler := seeded.Handler(*seed)
	if *site != "" {
		handler = http.FileServer(http.Dir(*site))
	}
	server := http3.Server{
		Addr:      *listen,
		Handler:   handler,
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}),
	}
	log.Fatal(server.ListenAndServe())
}

func identity(certificate, key string) (tls.Certificate, error) {
	if certificate == "" {
		return selfSigned()
	}
	return tls.LoadX509KeyPair(certificate, key)
}

// selfSigned creates a self-signed certificate for "localhost", which clients do not check.
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
