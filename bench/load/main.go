// load drives an admission webhook over TLS keep-alive with HTTP/1.1, as an API server does, and prints one
// line of JSON. Two modes:
//
//	closed loop (no -rate): every connection sends its next review as soon as it has the answer: throughput.
//	open loop (-rate N):    N reviews a second whatever the server does; a latency counts from the instant at
//	                        which the review was due, so a server that stalls cannot hide those it kept waiting.
//
// Every answer is checked: 200, the uid that was asked with, allowed, and a patch.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Two, although the process is pinned to one core: the pacer blocks in a system call, and with a single P the
// runtime would take up to 10 ms to hand its slot to the goroutines that read answers.
const processors = 2

// Result is what one run measured. Times are milliseconds.
type Result struct {
	Requests   int     `json:"requests"`
	Seconds    float64 `json:"seconds"`
	Rps        float64 `json:"rps"`
	P50Ms      float64 `json:"p50ms"`
	P90Ms      float64 `json:"p90ms"`
	P99Ms      float64 `json:"p99ms"`
	P999Ms     float64 `json:"p999ms"`
	MaxMs      float64 `json:"maxms"`
	Reconnects int     `json:"reconnects"`
	// LateP99Ms is how late the pacer itself woke up: the error of the open loop's latencies.
	LateP99Ms float64 `json:"lateP99ms"`
	// Cpu is the share of one core that the generator used: near 1, it measured itself.
	Cpu        float64 `json:"cpu"`
	Failures   int     `json:"failures"`
	FirstError string  `json:"firstError,omitempty"`
}

func main() {
	address := flag.String("address", "127.0.0.1:9443", "HOST:PORT of the webhook")
	path := flag.String("path", "/mutate?timeout=2s", "path and query")
	body := flag.String("body", "", "file with the AdmissionReview to send")
	connections := flag.Int("connections", 16, "connections")
	rate := flag.Float64("rate", 0, "reviews per second; 0 = closed loop")
	duration := flag.Duration("duration", 5*time.Second, "how long to send")
	samples := flag.String("samples", "", "file for a line per review: when it was due (Unix, ms), its latency (ms)")
	flag.Parse()
	runtime.GOMAXPROCS(processors)

	review, err := newReview(*body, *address, *path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	workers, err := dial(*connections, *address, review)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	result := run(workers, *rate, *duration)
	if *samples != "" {
		if err := writeSamples(*samples, workers); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		os.Exit(1)
	}
	if result.Failures > 0 {
		os.Exit(1)
	}
}

func dial(count int, address string, review *review) ([]*worker, error) {
	workers := make([]*worker, count)
	for i := range workers {
		// The certificate is a throw-away one of this run; no session cache: an API server makes full handshakes.
		workers[i] = &worker{number: i, address: address, tls: &tls.Config{InsecureSkipVerify: true}, request: review.clone()}
		if err := workers[i].connect(); err != nil {
			return nil, err
		}
	}
	return workers, nil
}

func run(workers []*worker, rate float64, duration time.Duration) Result {
	cpuBefore := cpuSeconds()
	start := time.Now()
	deadline := start.Add(duration)
	var late []time.Duration
	var running sync.WaitGroup
	if rate > 0 {
		// Room for all that can be due, so that the pacer never waits for a connection to be free.
		due := make(chan time.Time, int(rate*duration.Seconds())+1)
		for _, worker := range workers {
			running.Go(func() { worker.open(due) })
		}
		late = pace(due, start, rate, duration)
	} else {
		for _, worker := range workers {
			running.Go(func() { worker.closed(deadline) })
		}
	}
	running.Wait()
	elapsed := time.Since(start).Seconds()
	result := collect(workers, late, elapsed)
	result.Cpu = (cpuSeconds() - cpuBefore) / elapsed
	return result
}

// pace puts the instants at which reviews are due into the channel, each when its time has come.
func pace(due chan<- time.Time, start time.Time, rate float64, duration time.Duration) []time.Duration {
	runtime.LockOSThread()
	total := int(rate * duration.Seconds())
	late := make([]time.Duration, 0, total)
	for i := range total {
		instant := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		sleepUntil(instant)
		late = append(late, time.Since(instant))
		due <- instant
	}
	close(due)
	return late
}

// sleepUntil asks the kernel: the runtime's own timers wake an idle process on whole milliseconds (epoll_wait).
func sleepUntil(instant time.Time) {
	for {
		left := time.Until(instant)
		if left <= 0 {
			return
		}
		interval := syscall.NsecToTimespec(left.Nanoseconds())
		if err := syscall.Nanosleep(&interval, nil); err != nil && err != syscall.EINTR {
			panic(err)
		}
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
