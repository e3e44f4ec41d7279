// Command kcp sends zero bytes over KCP (kcp-go with its defaults, no encryption, no error
// correction), and prints the receiver's result as one line of JSON. With -kcptun the packets are
// those of kcptun's defaults: AES, and 3 packets of error correction for each 10.
//
//	kcp -listen ADDRESS:PORT
//	kcp -dial ADDRESS:PORT -bytes 1000000 -timeout 20s
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"time"

	"github.com/xtaci/kcp-go/v5"
)

var (
	block          kcp.BlockCrypt
	shards, parity int
)

func main() {
	listen := flag.String("listen", "", "serve at this address")
	dial := flag.String("dial", "", "download from this address")
	length := flag.Uint64("bytes", 1_000_000, "bytes to ask for")
	timeout := flag.Duration("timeout", 20*time.Second, "time for all of it")
	kcptun := flag.Bool("kcptun", false, "encrypt and correct errors as kcptun does")
	flag.Parse()
	if *kcptun {
		var err error
		if block, err = kcp.NewAESBlockCrypt(make([]byte, 32)); err != nil {
			log.Fatal(err)
		}
		shards, parity = 10, 3
	}
	if *listen != "" {
		log.Fatal(serve(*listen))
	}
	start := time.Now()
	received, err := download(*dial, *length, *timeout)
	result := map[string]any{"bytes": received, "seconds": time.Since(start).Seconds(), "error": ""}
	if err != nil {
		result["error"] = err.Error()
	}
	json.NewEncoder(os.Stdout).Encode(result)
}

func serve(address string) error {
	listener, err := kcp.ListenWithOptions(address, block, shards, parity)
	if err != nil {
		return err
	}
	for {
		session, err := listener.AcceptKCP()
		if err != nil {
			return err
		}
		go answer(session)
	}
}

func answer(session *kcp.UDPSession) {
	defer session.Close()
	setUp(session)
	var asked [8]byte
	if _, err := io.ReadFull(session, asked[:]); err != nil {
		return
	}
	left := binary.BigEndian.Uint64(asked[:])
	piece := make([]byte, 16<<10)
	for left > 0 {
		n, err := session.Write(piece[:min(left, uint64(len(piece)))])
		if err != nil {
			return
		}
		left -= uint64(n)
	}
	time.Sleep(time.Minute) // what is on its way is sent again by this session
}

func download(address string, length uint64, timeout time.Duration) (int64, error) {
	session, err := kcp.DialWithOptions(address, block, shards, parity)
	if err != nil {
		return 0, err
	}
	setUp(session)
	session.SetDeadline(time.Now().Add(timeout))
	if _, err := session.Write(binary.BigEndian.AppendUint64(nil, length)); err != nil {
		return 0, err
	}
	return io.CopyN(io.Discard, session, int64(length))
}

// setUp configures a session as kcptun's mode "fast" does.
func setUp(session *kcp.UDPSession) {
	session.SetNoDelay(0, 30, 2, 1)
	session.SetWindowSize(256, 256)
	session.SetStreamMode(true)
}
