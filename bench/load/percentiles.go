package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// writeSamples leaves each review's latency to whoever wants to know what else happened at that moment.
func writeSamples(path string, workers []*worker) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for _, worker := range workers {
		for i, latency := range worker.latencies {
			fmt.Fprintf(out, "%d %.3f\n", worker.since[i].UnixMilli(), float64(latency.Nanoseconds())/1e6)
		}
	}
	return out.Flush()
}

// collect makes one result of what the connections saw. Percentiles are exact: every latency was kept.
func collect(workers []*worker, late []time.Duration, elapsed float64) Result {
	result := Result{Seconds: elapsed}
	var latencies []time.Duration
	for _, worker := range workers {
		latencies = append(latencies, worker.latencies...)
		result.Reconnects += worker.reconnects
		if worker.err != nil {
			result.Failures++
			if result.FirstError == "" {
				result.FirstError = worker.err.Error()
			}
		}
	}
	slices.Sort(latencies)
	slices.Sort(late)
	result.Requests = len(latencies)
	result.Rps = float64(len(latencies)) / elapsed
	result.P50Ms = percentile(latencies, 0.5)
	result.P90Ms = percentile(latencies, 0.9)
	result.P99Ms = percentile(latencies, 0.99)
	result.P999Ms = percentile(latencies, 0.999)
	result.MaxMs = percentile(latencies, 1)
	result.LateP99Ms = percentile(late, 0.99)
	return result
}

// percentile is the nearest-rank percentile, in milliseconds, of sorted durations; 0 when there are none.
func percentile(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := max(int(math.Ceil(share*float64(len(sorted)))), 1)
	return float64(sorted[rank-1].Nanoseconds()) / 1e6
}
