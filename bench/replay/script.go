package main

import "strconv"

// What happens to the cluster while it is watched: pods are replaced, as in rolling updates, some dozens at a time.
type script struct {
	cluster *cluster
	// Called with each event, in the order in which they happen.
	emit    func(k kind, eventType string, object render)
	version uint64
	events  int
}

// How many pods are being replaced at any time.
const underWay = 64

// A heartbeat of a node stands between that many events: every node writes its status once in five minutes.
const eventsPerHeartbeat = 200

// One pod takes the place of another: it is created, gets an address, becomes ready, and then the old one terminates.
type replacement struct {
	old, new *pod
	oldIndex int
	step     int
}

// Replaces as many pods, and ends when all of them have been.
func (s *script) run(replacements int) {
	started := 0
	var running []*replacement
	for {
		for len(running) < underWay && started < replacements {
			running = append(running, s.begin())
			started++
		}
		if len(running) == 0 {
			return
		}
		at := s.cluster.random.IntN(len(running))
		if s.advance(running[at]) {
			continue
		}
		running[at] = running[len(running)-1]
		running = running[:len(running)-1]
	}
}

// Picks a pod of a workload in which none is being replaced.
func (s *script) begin() *replacement {
	c := s.cluster
	for {
		index := c.random.IntN(len(c.pods))
		old := c.pods[index]
		if old.workload.rolling {
			continue
		}
		old.workload.rolling = true
		added := c.newPod(old.workload)
		added.standing = starting
		return &replacement{old: old, new: added, oldIndex: index}
	}
}

// The pod's step at which the kubelet has reported its address.
const addressStep = 3

// One event of a pod, and those that follow from it. False once the old pod is gone.
func (s *script) advance(r *replacement) bool {
	w := r.old.workload
	birth, death := w.class.birth, w.class.death
	step := r.step
	r.step++
	if step < len(birth) {
		s.podEvent(r.new, birth[step])
		switch step {
		case addressStep:
			r.new.listBeside(r.old)
			s.listingEvents(r.new, true)
		case len(birth) - 1:
			r.new.standing = ready
			s.listingEvents(r.new, true)
		}
		return true
	}
	step -= len(birth)
	s.podEvent(r.old, death[step])
	switch step {
	case 0:
		r.old.standing = terminating
		s.listingEvents(r.old, true)
	case len(death) - 1:
		r.old.unlist()
		s.listingEvents(r.old, false) // the Endpoints have not named it since it terminates
		s.cluster.pods[r.oldIndex] = r.new
		w.rolling = false
		return false
	}
	return true
}

func (s *script) podEvent(p *pod, step podStep) {
	s.tell(pods, step.eventType, p.as(step, s.nextVersion()))
}

func (s *script) listingEvents(p *pod, andEndpoints bool) {
	s.tell(endpointSlices, "MODIFIED", p.slice.object(s.nextVersion()))
	if andEndpoints {
		s.tell(endpoints, "MODIFIED", p.workload.endpointsObject(s.nextVersion()))
	}
}

func (s *script) tell(k kind, eventType string, object render) {
	s.emit(k, eventType, object)
	s.events++
	if s.events%eventsPerHeartbeat == 0 {
		node := s.events / eventsPerHeartbeat % s.cluster.nodes
		s.emit(nodes, "MODIFIED", s.cluster.node(node, s.nextVersion()))
	}
}

func (s *script) nextVersion() string {
	s.version++
	return versionAt(scriptVersion + s.version)
}

// Versions that lists are of, and those of events begin.
const (
	listVersion   = 1_999_999_999
	scriptVersion = 2_000_000_000
)

func versionAt(number uint64) string { return strconv.FormatUint(number, 10) }
