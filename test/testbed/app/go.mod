module linger.dev/test/cluster/app

go 1.21
