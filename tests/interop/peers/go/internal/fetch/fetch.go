// Package fetch reads a body to its end, and reports the result in the JSON format of all test
// clients.
package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"os"
	"time"
)

// Result of one download. Goodput counts from the first call to the last byte, handshake included.
type Result struct {
	Bytes      int64   `json:"bytes"`
	SHA256     string  `json:"sha256"`
	Seconds    float64 `json:"seconds"`
	Mbits      float64 `json:"goodput_mbits"`
	FirstByte  float64 `json:"first_byte_s"`  // from the first call to the first piece; 0 without one
	LongestGap float64 `json:"longest_gap_s"` // longest wait between two pieces of the body
	Error      string  `json:"error"`         // empty when the body ended as it should
}

// Meter is the io.Writer that a download is copied into.
type Meter struct {
	start, last time.Time
	first, gap  time.Duration
	bytes       int64
	sum         hash.Hash
}

// NewMeter starts the clock.
func NewMeter() *Meter {
	return &Meter{start: time.Now(), sum: sha256.New()}
}

// Write counts and hashes a piece of the body.
func (m *Meter) Write(p []byte) (int, error) {
	now := time.Now()
	if m.last.IsZero() {
		m.first = now.Sub(m.start)
	} else {
		m.gap = max(m.gap, now.Sub(m.last))
	}
	m.last = now
	m.bytes += int64(len(p))
	return m.sum.Write(p)
}

// Drain copies a body to its end.
func (m *Meter) Drain(body io.Reader) error {
	_, err := io.Copy(m, body)
	return err
}

// Finish turns what was seen into a Result.
func (m *Meter) Finish(err error) Result {
	seconds := time.Since(m.start).Seconds()
	r := Result{
		Bytes: m.bytes, SHA256: hex.EncodeToString(m.sum.Sum(nil)), Seconds: seconds,
		Mbits: float64(m.bytes) * 8 / 1e6 / seconds, FirstByte: m.first.Seconds(), LongestGap: m.gap.Seconds(),
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// PrintAndExit writes the result to standard output; the exit status is 1 if it holds an error.
func (r Result) PrintAndExit() {
	_ = json.NewEncoder(os.Stdout).Encode(r)
	if r.Error != "" {
		os.Exit(1)
	}
	os.Exit(0)
}
