package main

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

type stage int

const (
	sliceStage stage = iota
	endpointsStage
	stages
)

// What is withdrawn from as one: the slices of a Service, or its Endpoints.
type group struct {
	stage              stage
	namespace, service string
}

// A withdrawal from a group of a pod that did not seem to terminate.
type withdrawal struct {
	at    group
	since time.Time
}

// A pod that terminates.
type termination struct {
	pod   *metav1.PartialObjectMetadata
	since time.Time
}

// The watches are independent of each other: a withdrawal may show before the termination that is its reason.
const (
	inversion  = 250 * time.Millisecond
	remembered = 10 * time.Second
)

// From the event that first shows a pod's deletionTimestamp until its Service's slices, and its Endpoints, do not list
// it as ready any more. Much simpler than Linger's: it does not know what still waits, nothing of reconnects, and takes
// a pod that moves from slice to slice for one that is withdrawn.
type recorder struct {
	services corelisters.ServiceLister

	mu          sync.Mutex
	begun       bool
	terminating map[string]termination  // by the pod's uid, until it is gone
	withdrawn   map[string][]withdrawal // by the pod's uid
	forgotten   time.Time               // when those of before were last cleared out
	histograms  map[string]*[stages]histogram
	samples     [stages]int
}

func newRecorder(services corelisters.ServiceLister) *recorder {
	return &recorder{
		services:    services,
		terminating: map[string]termination{},
		withdrawn:   map[string][]withdrawal{},
		histograms:  map[string]*[stages]histogram{},
	}
}

// What a list says has happened at some time before: only from here on there are samples.
func (r *recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = true
}

func (r *recorder) found() map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return map[string]any{"slices": r.samples[sliceStage], "endpoints": r.samples[endpointsStage]}
}

func (r *recorder) watchPods(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	return handled(informer, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(was, is any) {
			before, after := was.(*metav1.PartialObjectMetadata), is.(*metav1.PartialObjectMetadata)
			if before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
				r.terminates(after)
			}
		},
		DeleteFunc: func(last any) {
			if pod, seen := last.(*metav1.PartialObjectMetadata); seen {
				r.gone(pod)
			}
		},
	})
}

func (r *recorder) watchSlices(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	return handled(informer, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(was, is any) {
			slice := is.(*discoveryv1.EndpointSlice)
			r.changed(groupOfSlice(slice), readyInSlice(was.(*discoveryv1.EndpointSlice)), readyInSlice(slice))
		},
		DeleteFunc: func(last any) {
			if slice, seen := last.(*discoveryv1.EndpointSlice); seen {
				r.changed(groupOfSlice(slice), readyInSlice(slice), nil)
			}
		},
	})
}

func (r *recorder) watchEndpoints(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	return handled(informer, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(was, is any) {
			endpoints := is.(*corev1.Endpoints)
			r.changed(groupOfEndpoints(endpoints), readyInEndpoints(was.(*corev1.Endpoints)), readyInEndpoints(endpoints))
		},
		DeleteFunc: func(last any) {
			if endpoints, seen := last.(*corev1.Endpoints); seen {
				r.changed(groupOfEndpoints(endpoints), readyInEndpoints(endpoints), nil)
			}
		},
	})
}

func (r *recorder) terminates(pod *metav1.PartialObjectMetadata) {
	now := time.Now()
	uid := string(pod.UID)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		return
	}
	r.terminating[uid] = termination{pod, now}
	for _, early := range r.withdrawn[uid] {
		if now.Sub(early.since) <= inversion {
			r.sample(early.at, pod, 0)
		}
	}
	delete(r.withdrawn, uid)
}

func (r *recorder) gone(pod *metav1.PartialObjectMetadata) {
	// One that had not been terminating was deleted without a grace.
	if pod.DeletionTimestamp == nil {
		r.terminates(pod)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(time.Now())
}

// Takes a sample of each pod that the group no longer lists as ready because it terminates.
func (r *recorder) changed(at group, before, after []string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		return
	}
	still := make(map[string]struct{}, len(after))
	for _, uid := range after {
		still[uid] = struct{}{}
	}
	for _, uid := range before {
		if _, isReady := still[uid]; isReady {
			continue
		}
		if found, terminates := r.terminating[uid]; terminates {
			r.sample(at, found.pod, now.Sub(found.since))
		} else {
			r.withdrawn[uid] = append(r.withdrawn[uid], withdrawal{at, now})
		}
	}
}

func (r *recorder) sample(at group, pod *metav1.PartialObjectMetadata, lag time.Duration) {
	service, err := r.services.Services(at.namespace).Get(at.service)
	if err != nil || service.Spec.PublishNotReadyAddresses {
		return
	}
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		return
	}
	r.samples[at.stage]++
	if r.histograms[at.namespace] == nil {
		r.histograms[at.namespace] = &[stages]histogram{}
	}
	r.histograms[at.namespace][at.stage].add(lag)
}

// Pods that have been terminating for hours are no longer waited for.
const longest = 2 * time.Hour

func (r *recorder) forget(now time.Time) {
	if now.Sub(r.forgotten) < remembered {
		return
	}
	r.forgotten = now
	for uid, found := range r.withdrawn {
		if now.Sub(found[len(found)-1].since) > remembered {
			delete(r.withdrawn, uid)
		}
	}
	for uid, found := range r.terminating {
		if now.Sub(found.since) > longest {
			delete(r.terminating, uid)
		}
	}
}

func readyInSlice(slice *discoveryv1.EndpointSlice) []string {
	uids := make([]string, 0, len(slice.Endpoints))
	for _, endpoint := range slice.Endpoints {
		if ready := endpoint.Conditions.Ready; endpoint.TargetRef != nil && (ready == nil || *ready) {
			uids = append(uids, string(endpoint.TargetRef.UID))
		}
	}
	return uids
}

func readyInEndpoints(endpoints *corev1.Endpoints) []string {
	var uids []string
	for _, subset := range endpoints.Subsets {
		for _, address := range subset.Addresses {
			if address.TargetRef != nil {
				uids = append(uids, string(address.TargetRef.UID))
			}
		}
	}
	return uids
}

func groupOfSlice(slice *discoveryv1.EndpointSlice) group {
	return group{sliceStage, slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}
}

func groupOfEndpoints(endpoints *corev1.Endpoints) group {
	return group{endpointsStage, endpoints.Namespace, endpoints.Name}
}

func handled(informer cache.SharedIndexInformer, by cache.ResourceEventHandler) cache.SharedIndexInformer {
	_, err := informer.AddEventHandler(by)
	exitOn(err)
	return informer
}
