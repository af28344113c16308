// The API server of `npm run bench:watch`: it lists and streams a cluster that is made of recorded objects, over TLS,
// HTTP/2 or HTTP/1.1, as JSON or protobuf, whatever the program under test asks for. Every program gets the same.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	cert := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "its key, PEM")
	serviceCount := flag.Int("services", 13_000, "Services, each with a Deployment, Endpoints and EndpointSlices")
	podCount := flag.Int("pods", 150_000, "their pods, together")
	replacements := flag.Int("replacements", 6_000, "pods that are replaced while they are watched")
	flag.Parse()

	made, err := readTemplates(flag.Args())
	exitOn(err)
	server := &server{templates: made, services: *serviceCount, pods: *podCount, replacements: *replacements}
	server.reset(false)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	exitOn(err)
	// What the benchmark reads: where the server is, and what it has to tell.
	exitOn(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"port": listener.Addr().(*net.TCPAddr).Port, "volume": server.volume(),
	}))
	exitOn(http.ServeTLS(listener, server.handler(), *cert, *key))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
