package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// How a pod stands in slices. It is `starting` until it is ready.
type standing int

const (
	starting standing = iota
	ready
	terminating
	standings
)

var conditions = [standings]struct{ ready, serving, terminating bool }{
	starting:    {false, false, false},
	ready:       {true, true, false},
	terminating: {false, true, true},
}

type podStep struct {
	eventType string
	template  template
}

// A workload's objects as templates: those of a pod from its creation until it is gone, its Service, and what the
// controllers write about it.
type class struct {
	birth, death []podStep
	recorded     fields
	service      template
	serviceUID   string
	// The parts of an EndpointSlice and of an Endpoints: what stands before and after the pods, and one pod.
	slice, endpoints listing
}

type listing struct {
	recorded fields
	head     template
	tail     []piece // JSON only
	ports    []byte  // of Endpoints, protobuf only
	pod      [standings]template
}

// Where a slice's endpoints and a subset's addresses stand in their messages.
// Source: k8s.io/api discovery/v1 and core/v1 (generated.proto).
const (
	sliceEndpointsField = 2
	subsetsField        = 2
	addressesField      = 1
	notReadyField       = 2
)

// An address of the length that most have.
const recordedIP = "10.100.100.100"

func newClass(path string, found *recording) (*class, error) {
	recorded, err := found.podFields()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	made := &class{recorded: recorded}
	for _, build := range []func(*recording) error{made.addPods, made.addService, made.addSlice, made.addEndpoints} {
		if err := build(found); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return made, nil
}

func (c *class) addPods(r *recording) error {
	for _, event := range r.pod {
		made, err := newTemplate(event.object, c.recorded)
		if err != nil {
			return err
		}
		step := podStep{event.eventType, made}
		if event.object.DeletionTimestamp == nil {
			c.birth = append(c.birth, step)
		} else {
			c.death = append(c.death, step)
		}
	}
	if len(c.birth) < 3 || len(c.death) < 2 || c.death[len(c.death)-1].eventType != "DELETED" {
		return fmt.Errorf("expected a pod's events from its creation until it was gone")
	}
	return nil
}

func (c *class) addService(r *recording) (err error) {
	recorded := c.recorded
	recorded[objectUID] = string(r.service.UID)
	r.service.Kind, r.service.APIVersion = "", ""
	c.serviceUID = string(r.service.UID)
	c.service, err = newTemplate(r.service, recorded)
	return err
}

func (c *class) addSlice(r *recording) error {
	slice := r.slice
	slice.Kind, slice.APIVersion = "", ""
	recorded := c.recorded
	recorded[suffix] = strings.TrimPrefix(slice.Name, slice.GenerateName)
	recorded[objectUID] = string(slice.UID)
	recorded[ownerUID] = c.serviceUID
	c.slice.recorded = recorded
	endpoint, err := endpointOf(slice.Endpoints, c.recorded[objectUID])
	if err != nil {
		return err
	}
	slice.Endpoints = []discoveryv1.Endpoint{endpoint}
	if err := c.slice.cutAround(slice, &endpoint, recorded); err != nil {
		return err
	}
	slice.Endpoints = nil
	binaryHead, err := slice.Marshal()
	c.slice.head[protobuf] = cut(binaryHead, recorded)
	if err != nil {
		return err
	}
	podFields := c.listedFields(*endpoint.NodeName)
	for state, is := range conditions {
		endpoint.Conditions = discoveryv1.EndpointConditions{Ready: &is.ready, Serving: &is.serving, Terminating: &is.terminating}
		if c.slice.pod[state], err = newTemplate(&endpoint, podFields); err != nil {
			return err
		}
	}
	return nil
}

func (c *class) addEndpoints(r *recording) error {
	endpoints := r.endpoints
	endpoints.Kind, endpoints.APIVersion = "", ""
	recorded := c.recorded
	recorded[objectUID] = string(endpoints.UID)
	c.endpoints.recorded = recorded
	address, err := addressOf(endpoints.Subsets[0].Addresses, c.recorded[objectUID])
	if err != nil {
		return err
	}
	endpoints.Subsets = endpoints.Subsets[:1]
	subset := &endpoints.Subsets[0]
	subset.Addresses, subset.NotReadyAddresses = []corev1.EndpointAddress{address}, nil
	if err := c.endpoints.cutAround(endpoints, &address, recorded); err != nil {
		return err
	}
	ports := corev1.EndpointSubset{Ports: subset.Ports}
	endpoints.Subsets = nil
	binaryHead, err := endpoints.Marshal()
	if err != nil {
		return err
	}
	c.endpoints.head[protobuf] = cut(binaryHead, recorded)
	binaryPorts, err := ports.Marshal()
	if err != nil {
		return err
	}
	c.endpoints.ports = binaryPorts
	c.endpoints.pod[ready], err = newTemplate(&address, c.listedFields(*address.NodeName))
	return err
}

func endpointOf(endpoints []discoveryv1.Endpoint, uid string) (discoveryv1.Endpoint, error) {
	for _, endpoint := range endpoints {
		if endpoint.TargetRef != nil && string(endpoint.TargetRef.UID) == uid {
			endpoint.Addresses = []string{recordedIP}
			return endpoint, nil
		}
	}
	return discoveryv1.Endpoint{}, fmt.Errorf("the slice does not list the pod")
}

func addressOf(addresses []corev1.EndpointAddress, uid string) (corev1.EndpointAddress, error) {
	for _, address := range addresses {
		if address.TargetRef != nil && string(address.TargetRef.UID) == uid {
			address.IP = recordedIP
			return address, nil
		}
	}
	return corev1.EndpointAddress{}, fmt.Errorf("the Endpoints do not list the pod as ready")
}

func (c *class) listedFields(node string) fields {
	recorded := c.recorded
	recorded[podIP], recorded[nodeName] = recordedIP, node
	recorded[ownerUID], recorded[objectVersion] = "", ""
	return recorded
}

// Cuts an object that lists one pod into what stands before and after it.
func (l *listing) cutAround(object any, pod any, recorded fields) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	inner, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	l.head[jsonText], l.tail, err = splitAround(text, inner, recorded)
	return err
}

func (c *class) appendSlice(dst []byte, enc encoding, values *fields, members []*pod) []byte {
	dst = c.slice.head.append(dst, enc, values)
	var endpoint []byte
	for i, member := range members {
		made := c.slice.pod[member.standing]
		if enc == jsonText {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = made.append(dst, enc, &member.fields)
			continue
		}
		endpoint = made.append(endpoint[:0], enc, &member.fields)
		dst = appendBytes(dst, sliceEndpointsField, endpoint)
	}
	if enc == jsonText {
		dst = template{jsonText: c.slice.tail}.append(dst, enc, values)
	}
	return dst
}

// An Endpoints object names the pods that are ready and those that start, and no longer those that terminate.
func (c *class) appendEndpoints(dst []byte, enc encoding, values *fields, members []*pod) []byte {
	dst = c.endpoints.head.append(dst, enc, values)
	if enc == jsonText {
		dst = c.appendAddresses(dst, members, ready)
		// The head ends in `"addresses":[`, the tail begins with `]`.
		if isAny(members, starting) {
			dst = append(dst, `],"notReadyAddresses":[`...)
			dst = c.appendAddresses(dst, members, starting)
		}
		return template{jsonText: c.endpoints.tail}.append(dst, enc, values)
	}
	var subset, address []byte
	for _, list := range []struct {
		field    int
		standing standing
	}{{addressesField, ready}, {notReadyField, starting}} {
		for _, member := range members {
			if member.standing != list.standing {
				continue
			}
			address = c.endpoints.pod[ready].append(address[:0], enc, &member.fields)
			subset = appendBytes(subset, list.field, address)
		}
	}
	subset = append(subset, c.endpoints.ports...)
	dst = append(dst, subsetsField<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(subset)))
	return append(dst, subset...)
}

func (c *class) appendAddresses(dst []byte, members []*pod, state standing) []byte {
	separate := false
	for _, member := range members {
		if member.standing != state {
			continue
		}
		if separate {
			dst = append(dst, ',')
		}
		separate = true
		dst = c.endpoints.pod[ready].append(dst, jsonText, &member.fields)
	}
	return dst
}

func isAny(members []*pod, state standing) bool {
	for _, member := range members {
		if member.standing == state {
			return true
		}
	}
	return false
}
