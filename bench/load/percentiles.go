package main

import (
	"math"
	"slices"
	"time"
)

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
