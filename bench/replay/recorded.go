package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a recording of watches holds: one JSON event a line, as an API server sent them.
type recording struct {
	pod       []podEvent // of one pod, from its creation until it was gone
	service   *corev1.Service
	slice     *discoveryv1.EndpointSlice
	endpoints *corev1.Endpoints
	namespace *metav1.PartialObjectMetadata
	node      *corev1.Node
}

type podEvent struct {
	eventType string
	object    *metav1.PartialObjectMetadata
}

// Versions have as many digits as those of clusters that have been at work for some years.
const recordedVersion = "1000000000"

func readRecording(path string) (*recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found recording
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if err := found.add(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return &found, lines.Err()
}

func (r *recording) add(line []byte) error {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{ Namespace string } `json:"metadata"`
	}
	if err := json.Unmarshal(event.Object, &head); err != nil {
		return err
	}
	switch {
	case head.Kind == "PartialObjectMetadata" && head.Metadata.Namespace != "":
		object, err := decode[metav1.PartialObjectMetadata](event.Object)
		r.pod = append(r.pod, podEvent{event.Type, object})
		return err
	case head.Kind == "PartialObjectMetadata":
		return decodeInto(&r.namespace, event.Object)
	case head.Kind == "Service":
		return decodeInto(&r.service, event.Object)
	case head.Kind == "EndpointSlice":
		return decodeInto(&r.slice, event.Object)
	case head.Kind == "Endpoints":
		return decodeInto(&r.endpoints, event.Object)
	case head.Kind == "Node":
		return decodeInto(&r.node, event.Object)
	}
	return fmt.Errorf("an event of kind %q", head.Kind)
}

func decodeInto[T any, P interface {
	*T
	metav1.Object
}](into **T, text []byte) error {
	object, err := decode[T, P](text)
	*into = object
	return err
}

func decode[T any, P interface {
	*T
	metav1.Object
}](text []byte) (*T, error) {
	object := new(T)
	if err := json.Unmarshal(text, object); err != nil {
		return nil, err
	}
	P(object).SetResourceVersion(recordedVersion)
	return object, nil
}

// The values that the recorded pod's objects share, to be replaced by others.
func (r *recording) podFields() (fields, error) {
	pod := r.pod[len(r.pod)-1].object
	hash := pod.Labels["pod-template-hash"]
	workload, isDeployments := strings.CutSuffix(pod.GenerateName, "-"+hash+"-")
	if !isDeployments || len(pod.OwnerReferences) != 1 {
		return fields{}, fmt.Errorf("expected a pod of a Deployment, got %s", pod.Name)
	}
	return fields{
		namespaceName: pod.Namespace,
		workloadName:  workload,
		templateHash:  hash,
		ownerUID:      string(pod.OwnerReferences[0].UID),
		suffix:        strings.TrimPrefix(pod.Name, pod.GenerateName),
		objectUID:     string(pod.UID),
		objectVersion: recordedVersion,
	}, nil
}
