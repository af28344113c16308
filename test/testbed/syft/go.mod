module linger.dev/test/cluster/syft

go 1.26.8

require github.com/anchore/syft v1.57.0
