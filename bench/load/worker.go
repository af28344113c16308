package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// A review is a request made once, in which only the digits of the uid change from one sending to the next.
type review struct {
	bytes []byte
	uid   []byte // a window into bytes
}

func newReview(file, address, path string) (*review, error) {
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parsed struct{ Request struct{ Uid string } }
	if err := json.Unmarshal(body, &parsed); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	// The header fields of kube-apiserver 1.36, in its order.
	head := "POST " + path + " HTTP/1.1\r\nHost: " + address + "\r\nUser-Agent: kube-apiserver-admission\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
	request := append([]byte(head), body...)
	return locate(request, []byte(parsed.Request.Uid))
}

func locate(request, uid []byte) (*review, error) {
	if len(uid) < 24 || bytes.Count(request, uid) != 1 {
		return nil, fmt.Errorf("expected a review with one uid of at least 24 characters, got %q", uid)
	}
	at := bytes.Index(request, uid)
	return &review{bytes: request, uid: request[at : at+len(uid)]}, nil
}

func (r *review) clone() *review {
	clone, err := locate(bytes.Clone(r.bytes), bytes.Clone(r.uid))
	if err != nil {
		panic(err) // it was located before
	}
	return clone
}

// number writes a uid that no other sending of this run has: a server cannot answer from a cache of answers.
func (r *review) number(worker, sending int) {
	digits := []byte{byte(worker), byte(sending >> 24), byte(sending >> 16), byte(sending >> 8), byte(sending)}
	hex.Encode(r.uid[len(r.uid)-2*len(digits):], digits)
}

// A worker is one connection, its own copy of the review, and what it saw.
type worker struct {
	number     int
	address    string
	tls        *tls.Config
	request    *review
	conn       *tls.Conn
	reader     *bufio.Reader
	body       bytes.Buffer
	latencies  []time.Duration
	since      []time.Time // what each latency counts from
	reconnects int
	err        error
}

func (w *worker) connect() error {
	conn, err := tls.Dial("tcp", w.address, w.tls)
	if err != nil {
		return err
	}
	w.conn, w.reader = conn, bufio.NewReaderSize(conn, 16<<10)
	return nil
}

func (w *worker) closed(deadline time.Time) {
	for {
		start := time.Now()
		if !start.Before(deadline) || !w.send(start) {
			return
		}
	}
}

func (w *worker) open(due <-chan time.Time) {
	for instant := range due {
		if !w.send(instant) {
			return
		}
	}
}

// send makes one exchange; its latency counts from `since`. After a failure the worker stops.
func (w *worker) send(since time.Time) bool {
	w.request.number(w.number, len(w.latencies))
	reconnect, err := w.exchange()
	if err == nil {
		w.latencies = append(w.latencies, time.Since(since))
		w.since = append(w.since, since)
		if reconnect {
			w.reconnects++
			w.conn.Close()
			err = w.connect()
		}
	}
	w.err = err
	return err == nil
}

// exchange sends the review and judges the answer; true when the server wants the connection closed.
func (w *worker) exchange() (bool, error) {
	if _, err := w.conn.Write(w.request.bytes); err != nil {
		return false, err
	}
	response, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		return false, err
	}
	w.body.Reset()
	if _, err := io.Copy(&w.body, response.Body); err != nil {
		return false, err
	}
	answer := w.body.Bytes()
	switch {
	case response.StatusCode != http.StatusOK:
		return false, fmt.Errorf("expected 200, got %s: %.300s", response.Status, answer)
	case response.Header.Get("Content-Encoding") != "":
		return false, fmt.Errorf("expected a plain answer, got Content-Encoding %s", response.Header.Get("Content-Encoding"))
	case !bytes.Contains(answer, []byte(`"allowed":true`)), !bytes.Contains(answer, []byte(`"patch":"`)):
		return false, fmt.Errorf("expected an allowed review with a patch, got %.300s", answer)
	case !bytes.Contains(answer, w.request.uid):
		return false, fmt.Errorf("expected the answer to uid %s, got %.300s", w.request.uid, answer)
	}
	return response.Close, nil
}
