// Package seeded generates the bytes that every test server sends, so that the harness can compute
// the hash itself.
//
// The stream for a seed is the concatenation of SHA-256("anabranch" || seed || i) for i = 0, 1, 2,
// … with seed and i as big-endian 64-bit numbers. The Rust and the Python servers make the same
// bytes.
package seeded

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

const prefix = "anabranch"

// Reader yields the endless stream of one seed; bound it with io.LimitReader.
type Reader struct {
	input []byte
	next  uint64
	left  []byte
}

// NewReader starts at the first byte of the stream of seed.
func NewReader(seed uint64) *Reader {
	input := make([]byte, len(prefix)+16)
	copy(input, prefix)
	binary.BigEndian.PutUint64(input[len(prefix):], seed)
	return &Reader{input: input}
}

// Read fills p and never fails.
func (r *Reader) Read(p []byte) (int, error) {
	filled := 0
	for filled < len(p) {
		if len(r.left) == 0 {
			r.refill()
		}
		n := copy(p[filled:], r.left)
		r.left = r.left[n:]
		filled += n
	}
	return filled, nil
}

func (r *Reader) refill() {
	binary.BigEndian.PutUint64(r.input[len(prefix)+8:], r.next)
	block := sha256.Sum256(r.input)
	r.left = block[:]
	r.next++
}

// Hash returns the hexadecimal SHA-256 of the first n bytes of the stream.
func Hash(seed uint64, n int64) string {
	sum := sha256.New()
	_, _ = io.CopyN(sum, NewReader(seed), n) // neither side can fail
	return hex.EncodeToString(sum.Sum(nil))
}

// Handler serves the stream at /bytes/N and its hash at /sha256/N.
func Handler(seed uint64) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes/{n}", withLength(func(w http.ResponseWriter, n int64) {
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = io.CopyN(w, NewReader(seed), n) // fails only when the client has gone
	}))
	mux.HandleFunc("GET /sha256/{n}", withLength(func(w http.ResponseWriter, n int64) {
		fmt.Fprintln(w, Hash(seed, n))
	}))
	return mux
}

func withLength(serve func(http.ResponseWriter, int64)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
		if err != nil || n < 0 {
			http.Error(w, "the length must be a number", http.StatusBadRequest)
			return
		}
		serve(w, n)
	}
}
