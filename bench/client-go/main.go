// Measures endpoint lag with client-go, as its handbook has a controller written: shared informers with a transform that
// drops what is not needed, and event handlers. The yardstick of `npm run bench:watch`: what it watches and what
// it finds out is what Linger does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var (
	podsResource       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func main() {
	server := flag.String("server", "", "URL of the API server")
	ca := flag.String("ca", "", "who may vouch for it, PEM")
	expected := flag.String("events", "", "say so when as many have been handled, and as many more: 100,2000")
	flag.Parse()
	milestones, err := milestonesOf(*expected)
	exitOn(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config := &rest.Config{Host: *server, BearerToken: "bench", TLSClientConfig: rest.TLSClientConfig{CAFile: *ca}}
	exitOn(run(ctx, config, milestones))
}

func run(ctx context.Context, config *rest.Config, milestones []int64) error {
	// The metadata client does that by itself. Both take JSON from a server that has nothing else.
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	typedClient, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	typed := informers.NewSharedInformerFactoryWithOptions(typedClient, 0, informers.WithTransform(withoutManagedFields))
	partial := metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, 0, metadatainformer.WithTransform(withoutManagedFields))

	lags := newRecorder(typed.Core().V1().Services().Lister())
	counted := &counter{milestones: milestones, reached: func() { report("done", lags.found()) }}
	watched := []cache.SharedIndexInformer{
		lags.watchSlices(typed.Discovery().V1().EndpointSlices().Informer()),
		lags.watchEndpoints(typed.Core().V1().Endpoints().Informer()),
		lags.watchPods(partial.ForResource(podsResource).Informer()),
		typed.Core().V1().Services().Informer(),
		typed.Core().V1().Nodes().Informer(),
		partial.ForResource(namespacesResource).Informer(),
	}
	handlers := make([]cache.InformerSynced, 0, len(watched))
	for _, informer := range watched {
		// After the recorder's own handler, and in the same order.
		registered, err := informer.AddEventHandler(counted)
		if err != nil {
			return err
		}
		handlers = append(handlers, registered.HasSynced)
	}
	typed.StartWithContext(ctx)
	partial.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), handlers...) {
		return nil
	}
	lags.begin()
	report("synced", map[string]any{"objects": counted.initial.Load()})
	<-ctx.Done()
	return nil
}

// The most usual transform: managedFields are most of an object's metadata, and nobody here reads them.
func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// Counts what the informers have delivered.
type counter struct {
	initial, live atomic.Int64
	milestones    []int64
	reached       func()
}

// Numbers of events since the beginning.
func milestonesOf(text string) ([]int64, error) {
	var milestones []int64
	sum := int64(0)
	for _, part := range strings.Split(text, ",") {
		more, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return nil, err
		}
		sum += more
		milestones = append(milestones, sum)
	}
	return milestones, nil
}

func (c *counter) OnAdd(_ any, isInInitialList bool) {
	if isInInitialList {
		c.initial.Add(1)
	} else {
		c.count()
	}
}

func (c *counter) OnUpdate(_, _ any) { c.count() }
func (c *counter) OnDelete(any)      { c.count() }

func (c *counter) count() {
	if slices.Contains(c.milestones, c.live.Add(1)) {
		c.reached()
	}
}

// One line for each thing that the benchmark waits for.
func report(event string, values map[string]any) {
	values["at"] = event
	exitOn(json.NewEncoder(os.Stdout).Encode(values))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
