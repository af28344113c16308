// Command app is the application that the cluster suite rolls, scales and kills.
//
// It answers every request with its pod's name (header X-Pod and the body) and logs
// one JSON line per event (started, sigterm, exit) with the time it happened. On
// SIGTERM it ends at once, as most programs do, or drains: stops accepting and
// finishes the requests it has.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

type event struct {
	Time     string `json:"time"`
	Event    string `json:"event"`
	Pod      string `json:"pod"`
	Detail   string `json:"detail,omitempty"`
	Requests int64  `json:"requests"`
}

type application struct {
	pod      string
	requests atomic.Int64
}

func (a *application) log(name, detail string) {
	line, _ := json.Marshal(event{
		Time:     time.Now().UTC().Format(time.RFC3339Nano),
		Event:    name,
		Pod:      a.pod,
		Detail:   detail,
		Requests: a.requests.Load(),
	})
	fmt.Fprintln(os.Stdout, string(line))
}

// ServeHTTP answers any path; ?delay=500ms holds the answer back, for requests in flight.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests.Add(1)
	if text := r.URL.Query().Get("delay"); text != "" {
		delay, err := time.ParseDuration(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		time.Sleep(delay)
	}
	w.Header().Set("X-Pod", a.pod)
	fmt.Fprintln(w, a.pod)
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func main() {
	port := flag.String("port", environment("PORT", "8080"), "listen on this `port` (env PORT)")
	onSigterm := flag.String("on-sigterm", environment("ON_SIGTERM", "exit"), "exit | drain (env ON_SIGTERM)")
	drainTimeout := flag.Duration("drain-timeout", 30*time.Second, "give up draining after this long")
	flag.Parse()
	if *onSigterm != "exit" && *onSigterm != "drain" {
		fmt.Fprintf(os.Stderr, "on-sigterm: expected exit or drain, got %q\n", *onSigterm)
		os.Exit(2)
	}

	// Before listening: a SIGTERM that comes while starting must not be ignored, as it is for
	// a process 1 without a handler.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)

	hostname, err := os.Hostname()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	app := &application{pod: environment("POD_NAME", hostname)}
	listener, err := net.Listen("tcp", ":"+*port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := &http.Server{Handler: app}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	app.log("started", "port "+*port)

	select {
	case err := <-failed:
		app.log("exit", err.Error())
		os.Exit(1)
	case <-signals:
		app.log("sigterm", *onSigterm)
	}
	if *onSigterm == "drain" {
		ctx, cancel := context.WithTimeout(context.Background(), *drainTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			app.log("exit", "drain timed out")
			os.Exit(1)
		}
	}
	app.log("exit", "")
}
