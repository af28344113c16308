package main

import (
	"math"
	"time"
)

// Logarithmic buckets of 2 %, from a millisecond to two hours: what Linger's estimates are made of.
type histogram struct {
	counts []uint32
}

const growth = 1.04

var buckets = bucketOf(2*time.Hour) + 1

func bucketOf(lag time.Duration) int {
	return max(0, int(math.Log(lag.Seconds()*1000)/math.Log(growth)))
}

func (h *histogram) add(lag time.Duration) {
	if h.counts == nil {
		h.counts = make([]uint32, buckets)
	}
	h.counts[min(bucketOf(max(lag, time.Millisecond)), buckets-1)]++
}
