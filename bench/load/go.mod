module linger.dev/bench/load

go 1.25.0
