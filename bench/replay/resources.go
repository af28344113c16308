package main

import "path"

type kind int

const (
	pods kind = iota
	services
	endpointSlices
	endpoints
	namespaces
	nodes
	kinds
)

type resource struct {
	path         string
	apiVersion   string
	kind         string
	metadataOnly bool
}

// All that is watched, by path. Both programs ask for the metadata of pods and namespaces only.
var resources = [kinds]*resource{
	pods:           {"/api/v1/pods", "meta.k8s.io/v1", "PartialObjectMetadata", true},
	services:       {"/api/v1/services", "v1", "Service", false},
	endpointSlices: {"/apis/discovery.k8s.io/v1/endpointslices", "discovery.k8s.io/v1", "EndpointSlice", false},
	endpoints:      {"/api/v1/endpoints", "v1", "Endpoints", false},
	namespaces:     {"/api/v1/namespaces", "meta.k8s.io/v1", "PartialObjectMetadata", true},
	nodes:          {"/api/v1/nodes", "v1", "Node", false},
}

// The last part of the path: `pods`.
func (r *resource) name() string { return path.Base(r.path) }
