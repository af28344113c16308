package main

// How much there is to read, as JSON: the sizes that the results state.
type volume struct {
	Objects map[string]int `json:"objects"`
	// Mean bytes of an object in a list.
	ObjectBytes map[string]int `json:"objectBytes"`
	ListBytes   int            `json:"listBytes"`
	Events      map[string]int `json:"events"`
	EventBytes  map[string]int `json:"eventBytes"`
	// The trial before the stream, and the stream.
	TrialEvents   int `json:"trialEvents"`
	StreamEvents  int `json:"streamEvents"`
	StreamBytes   int `json:"streamBytes"`
	ProtobufBytes int `json:"protobufBytes"`
	// Pods of which the endpoint lag can be measured: each in its slice and in its Endpoints.
	TrialReplacements int `json:"trialReplacements"`
	Replacements      int `json:"replacements"`
}

// Plays everything once to nobody.
func (s *server) volume() volume {
	v := volume{
		Objects: map[string]int{}, ObjectBytes: map[string]int{},
		Events: map[string]int{}, EventBytes: map[string]int{},
		TrialReplacements: trialReplacements, Replacements: s.replacements,
	}
	c := newCluster(s.templates, s.services, s.pods)
	var scratch []byte
	for k, resource := range resources {
		sum := 0
		for i := range c.count(kind(k)) {
			scratch = c.object(kind(k), i, recordedVersion)(scratch[:0], jsonText)
			sum += len(scratch)
		}
		name := resource.name()
		v.Objects[name] = c.count(kind(k))
		v.ObjectBytes[name] = sum / max(1, c.count(kind(k)))
		v.ListBytes += sum
	}
	events := [kinds]int{}
	bytes := [kinds]int{}
	script := script{cluster: c}
	script.emit = func(kind, string, render) { v.TrialEvents++ }
	script.run(trialReplacements)
	script.emit = func(k kind, eventType string, object render) {
		scratch = appendEvent(scratch[:0], jsonText, resources[k], eventType, object)
		events[k]++
		bytes[k] += len(scratch)
		scratch = appendEvent(scratch[:0], protobuf, resources[k], eventType, object)
		v.ProtobufBytes += len(scratch)
	}
	script.run(s.replacements)
	for k, resource := range resources {
		if events[k] == 0 {
			continue
		}
		v.Events[resource.name()] = events[k]
		v.EventBytes[resource.name()] = bytes[k] / events[k]
		v.StreamEvents += events[k]
		v.StreamBytes += bytes[k]
	}
	return v
}
