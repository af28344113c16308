package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A pod, and what its objects say of it.
type pod struct {
	fields
	workload *workload
	slice    *slice
	standing standing
}

// An EndpointSlice.
type slice struct {
	fields
	workload *workload
	members  []*pod
}

// A Deployment with its Service, the Service's Endpoints and its EndpointSlices. The fields are the Service's.
type workload struct {
	fields
	class        *class
	endpointsUID string
	slices       []*slice
	rolling      bool
}

// All objects of the cluster, created identically for every program that is measured.
type cluster struct {
	templates  *templates
	workloads  []*workload
	slices     []*slice
	pods       []*pod
	namespaces int
	nodes      int
	random     *rand.Rand
}

// The controller's limit (--max-endpoints-per-slice) is 100; some room is left for the pods that a rollout adds.
const podsPerSlice = 90

// A few Services have most of the pods: of a hundred Services, as many have that many times the mean.
var sizes = []struct {
	services int
	share    float64
}{{1, 18}, {4, 5}, {10, 2.4}, {25, 0.9}, {60, 0.27}}

// Ordinary proportions: 30 Services to a namespace, 50 pods to a node.
const (
	servicesPerNamespace = 30
	podsPerNode          = 50
)

func newCluster(made *templates, serviceCount, podCount int) *cluster {
	c := &cluster{
		templates:  made,
		namespaces: serviceCount/servicesPerNamespace + 1,
		nodes:      podCount/podsPerNode + 1,
		random:     rand.New(rand.NewPCG(1, 2)),
	}
	left := podCount
	for number := range serviceCount {
		w := c.newWorkload(made.classes[number%len(made.classes)], number)
		following := serviceCount - number - 1
		// Each that follows has one pod at least; the last one takes what is left.
		size := max(1, min(sizeOf(number, float64(podCount)/float64(serviceCount)), left-following))
		if following == 0 {
			size = left
		}
		left -= size
		for range size {
			p := c.newPod(w)
			c.pods = append(c.pods, p)
			c.list(p)
		}
	}
	return c
}

func sizeOf(number int, mean float64) int {
	at := number * 37 % 100 // each of a hundred in a row once, mixed
	for _, s := range sizes {
		if at < s.services {
			return int(mean*s.share + 0.5)
		}
		at -= s.services
	}
	return 1
}

func (c *cluster) newWorkload(class *class, number int) *workload {
	name := class.recorded[workloadName]
	w := &workload{class: class, endpointsUID: c.newUID()}
	w.fields = fields{
		namespaceName: namespaceAt(number / servicesPerNamespace),
		workloadName:  fmt.Sprintf("%s%05d", strings.TrimRight(name, "0123456789"), number),
		templateHash:  fmt.Sprintf("%010x", c.random.Uint64()>>24),
		ownerUID:      c.newUID(),
		objectUID:     c.newUID(),
		objectVersion: recordedVersion,
	}
	c.workloads = append(c.workloads, w)
	return w
}

func (c *cluster) newPod(w *workload) *pod {
	p := &pod{fields: w.fields, workload: w, standing: ready}
	p.fields[suffix] = letters(c.random.Uint64())
	p.fields[objectUID] = c.newUID()
	p.fields[podIP] = fmt.Sprintf("10.%d.%d.%d", 100+c.random.IntN(100), 100+c.random.IntN(100), 100+c.random.IntN(100))
	p.fields[nodeName] = nodeAt(c.random.IntN(c.nodes))
	return p
}

// Lists a pod in its Service's last slice, or in one more.
func (c *cluster) list(p *pod) {
	w := p.workload
	last := len(w.slices) - 1
	if last < 0 || len(w.slices[last].members) == podsPerSlice {
		added := &slice{fields: w.fields, workload: w}
		added.fields[suffix] = letters(c.random.Uint64())
		added.fields[ownerUID] = w.fields[objectUID]
		added.fields[objectUID] = c.newUID()
		w.slices = append(w.slices, added)
		c.slices = append(c.slices, added)
		last++
	}
	p.slice = w.slices[last]
	p.slice.members = append(p.slice.members, p)
}

// Lists a pod where the one stands that it replaces: a rollout needs no slice of its own.
func (p *pod) listBeside(other *pod) {
	p.slice = other.slice
	p.slice.members = append(p.slice.members, p)
}

func (p *pod) unlist() {
	kept := make([]*pod, 0, len(p.slice.members))
	for _, member := range p.slice.members {
		if member != p {
			kept = append(kept, member)
		}
	}
	p.slice.members = kept
}

func (w *workload) members() []*pod {
	if len(w.slices) == 1 {
		return w.slices[0].members
	}
	var all []*pod
	for _, slice := range w.slices {
		all = append(all, slice.members...)
	}
	return all
}

func (c *cluster) newUID() string {
	a, b := c.random.Uint64(), c.random.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0xfff, b&0xffffffffffff)
}

// As the API server makes the end of a generated name: k8s.io/apimachinery pkg/util/rand (alphanums).
func letters(random uint64) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	var text [5]byte
	for i := range text {
		text[i] = alphabet[random%uint64(len(alphabet))]
		random /= uint64(len(alphabet))
	}
	return string(text[:])
}

func namespaceAt(number int) string { return fmt.Sprintf("b-team-%03d", number) }
func nodeAt(number int) string      { return fmt.Sprintf("n%05d", number) }
